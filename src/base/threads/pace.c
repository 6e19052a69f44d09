/* pace.c - SCHED_IDLE while it is enough, sleep where it is not.
 *
 * SCHED_IDLE has 3 parts where nice 0 has 1024: on a machine with all processors busy a load would take
 * hundreds of times as long. One piece that took eight times its processor time is the sign, if this process
 * used less than seven eighths of the processors meanwhile. Then pieces at nice 0 with pauses between them
 * get their share for some seconds, after which SCHED_IDLE is tried again. Without the second condition the
 * steps of a stream are such a sign: on two cores its gaps rose from 1.4 to 6.8 ms while a model loaded. */
#include "base/threads/pace.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/threads/priority.h"

#include <sched.h>
#include <time.h>

#define STARVED_TIMES 8 /* limit of a piece's time, in multiples of its processor time */
#define STARVED_NS    (5 * NS_PER_MS)
#define OWN_SHARE     0.875 /* share of the processors: above it, this process itself starves the task */
#define SLEEPS_NS     (4 * NS_PER_S)
#define SLEEP_TIMES   3 /* a sleep lasts this times the piece's work */
#define SLEEP_MAX_NS  (100 * NS_PER_MS)

static uint64_t cpu_now_ns(clockid_t whose)
{
    struct timespec t;
    clock_gettime(whose, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

struct pace_clocks pace_clocks_now(void)
{
    return (struct pace_clocks){.wall_ns = clock_now_ns(),
                                .thread_ns = cpu_now_ns(CLOCK_THREAD_CPUTIME_ID),
                                .process_ns = cpu_now_ns(CLOCK_PROCESS_CPUTIME_ID)};
}

static uint32_t count_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* True if other programs starved a piece that ran as SCHED_IDLE until `now`. */
static bool is_starved(const struct pace *p, const struct pace_clocks *now)
{
    uint64_t wall_ns = now->wall_ns - p->began.wall_ns, worked_ns = now->thread_ns - p->began.thread_ns;
    double process_ns = (double)(now->process_ns - p->began.process_ns);
    return wall_ns > STARVED_NS && wall_ns > STARVED_TIMES * worked_ns &&
           process_ns < OWN_SHARE * p->processors * (double)wall_ns;
}

void pace_begin(struct pace *p)
{
    *p = (struct pace){.processors = count_processors(), .may_return = priority_may_return()};
    p->began = pace_clocks_now();
}

static void rest(struct pace *p, uint64_t worked_ns)
{
    uint64_t ns = MIN_OF(worked_ns * SLEEP_TIMES, SLEEP_MAX_NS);
    struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    (void)nanosleep(&t, NULL);
    p->slept_ns += ns;
}

void pace_piece(struct pace *p, bool others_compute, const struct pace_clocks *now)
{
    if (priority_is_low() && is_starved(p, now))
        p->sleeps_until_ns = now->wall_ns + SLEEPS_NS;
    bool sleeps = !p->may_return || now->wall_ns < p->sleeps_until_ns;
    if (others_compute && !sleeps)
        priority_lower();
    else
        priority_normal();
    if (others_compute && sleeps)
        rest(p, now->thread_ns - p->began.thread_ns);
}

void pace_next(struct pace *p, bool others_compute)
{
    struct pace_clocks now = pace_clocks_now();
    pace_piece(p, others_compute, &now);
    p->began = pace_clocks_now();
}

void pace_end(struct pace *p)
{
    priority_normal();
    p->began = pace_clocks_now();
}
