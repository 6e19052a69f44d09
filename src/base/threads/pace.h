/* pace.h - runs a long task, such as a load, without slowing other work of this process.
 *
 * The task calls pace_next() after each piece of its work, of a few milliseconds at most, and says whether
 * others compute. While they do not, it runs as any thread of nice 0. While they do, it runs as SCHED_IDLE.
 * If other programs leave it less than an eighth of a processor, or if the system would not let it return
 * from there (RLIMIT_NICE), it runs at nice 0. It then sleeps three times as long as it works. So it never
 * stands still because other programs use all processors. While this process itself uses them all, the task
 * stays at SCHED_IDLE. Each thread for itself. */
#ifndef PLATEAU_BASE_PACE_H
#define PLATEAU_BASE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace_clocks {
    uint64_t wall_ns;
    uint64_t thread_ns, process_ns; /* processor time of this thread, of this process */
};

struct pace {
    struct pace_clocks began; /* clocks when the present piece began */
    uint64_t sleeps_until_ns; /* SCHED_IDLE starved it: until then it sleeps between pieces */
    uint64_t slept_ns;        /* in all; for tests and reports */
    uint32_t processors;      /* that this process may use */
    bool may_return;          /* from SCHED_IDLE */
};

/* The calling thread begins such a task. */
void pace_begin(struct pace *p);
/* Between two pieces. May sleep, for 100 ms at most. */
void pace_next(struct pace *p, bool others_compute);
/* As `pace_next()`, but for a piece that ended at `now`; the caller sets `began`. For tests. */
void pace_piece(struct pace *p, bool others_compute, const struct pace_clocks *now);
/* The present times. */
struct pace_clocks pace_clocks_now(void);
/* The following work is not in pieces: normal priority. */
void pace_end(struct pace *p);

#endif
