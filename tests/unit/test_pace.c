/* A long task beside others: when it steps back, and that it never stands still. */
#include "test.h"

#include "base/clock.h"
#include "base/pace.h"
#include "base/priority.h"

#include <sched.h>

#ifndef SCHED_IDLE
#define SCHED_IDLE 5
#endif

TEST(it_is_low_only_while_others_compute)
{
    struct pace p;
    pace_begin(&p);
    assert_false(priority_is_low());
    for (int i = 0; i < 3; i++) {
        pace_next(&p, true);
        assert_int_equal(priority_is_low(), p.may_return);
        assert_int_equal(sched_getscheduler(0), p.may_return ? SCHED_IDLE : SCHED_OTHER);
        pace_next(&p, false);
        assert_false(priority_is_low());
        assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    }
    pace_next(&p, true);
    pace_end(&p);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
}

static void work_ms(uint64_t ms)
{
    uint64_t end_ns = clock_now_ns() + ms * NS_PER_MS;
    while (clock_now_ns() < end_ns)
        ;
}

TEST(one_that_is_starved_sleeps_between_its_pieces_instead)
{
    struct pace p;
    pace_begin(&p);
    pace_next(&p, true);
    p.wall_ns -= NS_PER_S; /* as if the piece had taken this much longer than it worked */
    pace_next(&p, true);
    assert_false(priority_is_low());
    uint64_t slept_ns = p.slept_ns;
    work_ms(2);
    pace_next(&p, true);
    assert_false(priority_is_low());
    assert_true(p.slept_ns > slept_ns);
    /* It does not sleep while no work runs. */
    slept_ns = p.slept_ns;
    work_ms(2);
    pace_next(&p, false);
    assert_int_equal(p.slept_ns, slept_ns);
    /* After a while it tries again to be low. */
    p.sleeps_until_ns = clock_now_ns();
    pace_next(&p, true);
    assert_int_equal(priority_is_low(), p.may_return);
    pace_end(&p);
}

TEST(one_whose_own_process_takes_all_processors_stays_low)
{
    struct pace p;
    pace_begin(&p);
    p.may_return = true;
    pace_next(&p, true);
    p.wall_ns -= NS_PER_S;
    p.process_ns -= p.processors * NS_PER_S; /* as if all of them had worked for this process */
    pace_next(&p, true);
    assert_true(priority_is_low());
    assert_int_equal(p.slept_ns, 0);
    pace_end(&p);
}

TEST(where_nobody_may_return_from_low_it_sleeps)
{
    struct pace p;
    pace_begin(&p);
    p.may_return = false;
    work_ms(2);
    pace_next(&p, true);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    assert_true(p.slept_ns > 0 && p.slept_ns <= 100 * NS_PER_MS);
}

TEST_MAIN()
