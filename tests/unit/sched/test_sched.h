/* test_sched.h - a scheduler on its own, and one step of it, for its tests. */
#ifndef PLATEAU_TESTS_TEST_SCHED_H
#define PLATEAU_TESTS_TEST_SCHED_H

#include "test_ledger.h"

#include "base/arena.h"
#include "cache/page_pool.h"
#include "cache/page_state.h"
#include "cache/prefix_index.h"
#include "sched/sched.h"
#include "sched/sched_state.h"

struct page_pool_opts;

/* Makes a scheduler with one group of pages; its pool and itself are in *arena. The caller ends both. */
static inline void open_with_pages(const struct sched_opts *opts, const struct page_pool_opts *pages,
                                   struct arena **arena, struct page_pool **pool, struct sched **sched)
{
    struct sched_opts o = *opts;
    struct arena_opts room = {.bytes_max = page_pool_arena_bytes(pages) + sched_arena_bytes(&o)};
    assert_int_equal(arena_create(&room, arena), 0);
    assert_int_equal(page_pool_create(*arena, pages, pool), 0);
    o.groups[0].pages = *pool;
    o.group_count = 1;
    assert_int_equal(sched_create(*arena, &o, sched), 0);
}

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
