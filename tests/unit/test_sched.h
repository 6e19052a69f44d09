/* test_sched.h - one step of a scheduler on its own, for its tests. */
#ifndef PLATEAU_TESTS_TEST_SCHED_H
#define PLATEAU_TESTS_TEST_SCHED_H

#include "test_ledger.h"

#include "sched/sched.h"

/* Plans, computes for a millisecond, and checks every invariant on the way. index may be NULL. */
static inline void step_of(struct sched *sched, struct sched_events *ev, struct sched_plan *plan,
                           const struct prefix_index *index)
{
    sched_plan(sched, ev, plan);
    sched_check(sched);
    ev->now_ns += 1000000;
    if (plan->seq_count > 0)
        sched_done(sched, &(struct sched_results){ev->now_ns, true});
    sched_check(sched);
    if (index)
        prefix_index_check(index);
}

#endif
