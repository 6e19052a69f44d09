/* progress.c - when to say something again, and the two ways to say it. */
#include "cli/progress.h"

#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/output.h"

#include <stdio.h>

#define PROGRESS_QUIET_NS    (300 * NS_PER_MS) /* a load that is over by then needs no line */
#define PROGRESS_REDRAW_NS   (100 * NS_PER_MS)
#define PROGRESS_LOG_NS      (2 * NS_PER_S) /* between log lines, and ... */
#define PROGRESS_LOG_PERCENT 10             /* ... at least this much further */

void progress_init(struct progress *p, const char *what, const char *doing)
{
    *p = (struct progress){
        .what = what, .doing = doing, .terminal = terminal_is(stderr), .started_ns = clock_now_ns()};
}

/* Fits in 80 columns, because a wrapped line could not be erased. The cursor waits at the start of the line,
 * so that a log line overwrites it. */
static void draw(const struct progress *p, uint64_t done, uint64_t total, double seconds)
{
    char rest[48] = "";
    if (done > 0 && done < total)
        snprintf(rest, sizeof(rest), ", %.0f s left", (double)(total - done) * seconds / (double)done);
    fputs("\r\033[K", stderr);
    plain_printf(stderr, "%s %.24s: %u %%, %s of %s%s", p->doing, p->what,
                 (unsigned)(done * 100.0 / (double)total), bytes_text(done).text, bytes_text(total).text,
                 rest);
    fputc('\r', stderr);
    fflush(stderr);
}

void progress_show(struct progress *p, uint64_t done, uint64_t total)
{
    uint64_t now = clock_now_ns(), since = now - (p->shown_ns ? p->shown_ns : p->started_ns);
    double seconds = (double)(now - p->started_ns) / NS_PER_S;
    if (total == 0 || now - p->started_ns < PROGRESS_QUIET_NS)
        return;
    done = done < total ? done : total;
    unsigned percent = (unsigned)((double)done * 100.0 / (double)total);
    if (p->terminal && (!p->drawn || since >= PROGRESS_REDRAW_NS)) {
        draw(p, done, total, seconds);
        p->drawn = true;
        p->shown_ns = now;
    } else if (!p->terminal && since >= PROGRESS_LOG_NS &&
               percent >= p->shown_percent + PROGRESS_LOG_PERCENT) {
        LOG_INFO("loading", "model=%s percent=%u bytes=%llu bytes_total=%llu after_ms=%llu", p->what, percent,
                 (ull)done, (ull)total, (ull)((now - p->started_ns) / NS_PER_MS));
        p->shown_ns = now;
        p->shown_percent = percent;
    }
}

void progress_done(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}
