/* log.c - format on the stack, write once: lines of different threads never mix. */
#include "base/log.h"

#include "base/clock.h"
#include "base/log_mask.h"
#include "base/log_ring.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FATAL_WAIT_MS 1000

static const char *const level_names[] = {"fatal", "error", "warn", "info", "debug"};
static _Atomic int log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, (int)level);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

bool log_level_parse(const char *name, enum log_level *ret)
{
    for (unsigned i = LOG_LEVEL_ERROR; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret = (enum log_level)i;
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

void log_write(enum log_level level, const char *event, const char *format, ...)
{
    static _Atomic unsigned lost;
    char line[1024];
    struct timespec t;
    if (!is_read(level == LOG_LEVEL_FATAL ? FATAL_WAIT_MS : 0)) {
        atomic_fetch_add(&lost, 1);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    size_t n = clock_text(t.tv_sec, line);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ level=%s event=%s ", t.tv_nsec / 1000000,
                          level_names[level], event);
    unsigned lines_lost = atomic_exchange(&lost, 0);
    if (lines_lost > 0)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "lines_lost=%u ", lines_lost);
    va_list ap;
    va_start(ap, format);
    int m = vsnprintf(line + n, sizeof(line) - n, format, ap);
    va_end(ap);
    n = m < 0 ? n : n + (size_t)m;
    if (n > sizeof(line) - 1)
        n = sizeof(line) - 1;
    log_mask(line, n);
    log_ring_put(level, line, n);
    line[n] = '\n';
    if (write(STDERR_FILENO, line, n + 1) < 0)
        return; /* no other place to report it */
}
