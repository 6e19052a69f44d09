/* pace.c - SCHED_IDLE while it is enough, sleep where it is not.
 *
 * SCHED_IDLE has 3 parts where nice 0 has 1024: on a machine with all processors busy a load would take
 * hundreds of times as long. One piece that took eight times its processor time is the sign. Then pieces
 * at nice 0 with pauses between them get their share for some seconds, after which SCHED_IDLE is tried
 * again. */
#include "base/pace.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/priority.h"

#include <time.h>

#define STARVED_TIMES 8 /* limit of a piece's time, in multiples of its processor time */
#define STARVED_NS    (5 * NS_PER_MS)
#define SLEEPS_NS     (4 * NS_PER_S)
#define SLEEP_TIMES   3 /* as long as the piece has worked */
#define SLEEP_MAX_NS  (100 * NS_PER_MS)

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void begin_piece(struct pace *p)
{
    p->wall_ns = clock_now_ns();
    p->cpu_ns = cpu_now_ns();
}

void pace_begin(struct pace *p)
{
    *p = (struct pace){.may_return = priority_may_return()};
    begin_piece(p);
}

static void rest(struct pace *p, uint64_t worked_ns)
{
    uint64_t ns = MIN_OF(worked_ns * SLEEP_TIMES, SLEEP_MAX_NS);
    struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    (void)nanosleep(&t, NULL);
    p->slept_ns += ns;
}

void pace_next(struct pace *p, bool others_compute)
{
    uint64_t now_ns = clock_now_ns(), wall_ns = now_ns - p->wall_ns, worked_ns = cpu_now_ns() - p->cpu_ns;
    if (priority_is_low() && wall_ns > STARVED_NS && wall_ns > STARVED_TIMES * worked_ns)
        p->sleeps_until_ns = now_ns + SLEEPS_NS;
    bool sleeps = !p->may_return || now_ns < p->sleeps_until_ns;
    if (others_compute && !sleeps)
        priority_lower();
    else
        priority_normal();
    if (others_compute && sleeps)
        rest(p, worked_ns);
    begin_piece(p);
}

void pace_end(struct pace *p)
{
    priority_normal();
    begin_piece(p);
}
