/* log.c - formatted on the stack, written once: lines of different threads never mix. */
#include "base/log.h"

#include "base/clock.h"
#include "base/log_format.h"
#include "base/log_mask.h"
#include "base/log_ring.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FATAL_WAIT_MS 1000

static _Atomic int log_level_now = LOG_LEVEL_INFO;
/* Set before other threads log. */
static enum log_format format = LOG_FORMAT_TEXT;
static bool colours;

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, (int)level);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *ret)
{
    for (unsigned i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
        if (strcmp(name, log_level_name((enum log_level)i)) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* systemd sets JOURNAL_STREAM to the device and inode of the stream; standard error may be another by now. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

static bool shows_colours(void)
{
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && !(none && none[0]) && kind && strcmp(kind, "dumb") != 0;
}

void log_set_format(enum log_format f)
{
    if (f == LOG_FORMAT_AUTO)
        f = is_journal() ? LOG_FORMAT_JOURNAL : isatty(STDERR_FILENO) ? LOG_FORMAT_PEOPLE : LOG_FORMAT_TEXT;
    format = f;
    colours = shows_colours();
    tzset(); /* reads its file now, not on the thread of a later line */
}

bool log_format_parse(const char *name, enum log_format *ret)
{
    static const char *const names[] = {"auto", "text", "journal", "json"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum log_format)i;
            return true;
        }
    }
    return false;
}

/* Whether a line of less than PIPE_BUF bytes goes in at once, or within that time. */
static bool is_read(int wait_ms)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, wait_ms) != 0;
}

void log_write(enum log_level level, const char *event, const char *text, ...)
{
    static _Atomic unsigned lost;
    static atomic_bool torn; /* the disk had room for a part of the last line */
    char line[LOG_LINE_BYTES], formed[LOG_FORM_BYTES];
    struct timespec t;
    if (!is_read(level == LOG_LEVEL_FATAL ? FATAL_WAIT_MS : 0)) {
        atomic_fetch_add(&lost, 1);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    size_t n = clock_text(t.tv_sec, line);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ ", t.tv_nsec / 1000000);
    const size_t time_len = n;
    n += (size_t)snprintf(line + n, sizeof(line) - n, "level=%s event=%s ", log_level_name(level), event);
    unsigned lines_lost = atomic_exchange(&lost, 0);
    if (lines_lost > 0)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "lines_lost=%u ", lines_lost);
    va_list ap;
    va_start(ap, text);
    int m = vsnprintf(line + n, sizeof(line) - n, text, ap);
    va_end(ap);
    n = m < 0 ? n : n + (size_t)m;
    if (n > sizeof(line) - 1)
        n = sizeof(line) - 1;
    log_mask(line, n);
    log_ring_put(level, line, n);
    const struct log_parts parts = {level, t.tv_sec, line, n, time_len};
    n = log_format_write(format, colours, &parts, formed);
    if (atomic_exchange(&torn, false) && write(STDERR_FILENO, "\n", 1) != 1)
        atomic_store(&torn, true);
    ssize_t written = atomic_load(&torn) ? 0 : write(STDERR_FILENO, formed, n);
    if (written == (ssize_t)n)
        return;
    atomic_fetch_add(&lost, lines_lost + 1); /* a later line reports them */
    if (written > 0)
        atomic_store(&torn, true);
}
