/* A long task beside others: when it steps back, and that it never stands still. On a busy machine a piece
 * may take any time, so these tests give each piece its times. */
#include "test.h"

#include "base/clock.h"
#include "base/threads/pace.h"
#include "base/threads/priority.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#ifndef SCHED_IDLE
#define SCHED_IDLE 5
#endif

#define MS NS_PER_MS

/* A task on two processors that may return from SCHED_IDLE, whose first piece begins. */
static struct pace begun(void)
{
    struct pace p;
    pace_begin(&p);
    p.processors = 2;
    p.may_return = true;
    return p;
}

/* A piece: how long it took, the processor time of this thread, and of the whole process. */
static void piece(struct pace *p, bool others_compute, uint64_t wall_ns, uint64_t worked_ns,
                  uint64_t process_ns)
{
    struct pace_clocks now = p->began;
    now.wall_ns += wall_ns;
    now.thread_ns += worked_ns;
    now.process_ns += process_ns;
    pace_piece(p, others_compute, &now);
    p->began = now;
}

/* A thread cannot return from SCHED_IDLE without the right to it; then the rest of a test means nothing. */
static bool may_return(void)
{
    return priority_may_return();
}

TEST(it_is_low_only_while_others_compute)
{
    struct pace p;
    pace_begin(&p);
    assert_int_equal(p.may_return, may_return());
    assert_false(priority_is_low());
    for (int i = 0; i < 3; i++) {
        piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
        assert_int_equal(priority_is_low(), p.may_return);
        assert_int_equal(sched_getscheduler(0), p.may_return ? SCHED_IDLE : SCHED_OTHER);
        piece(&p, false, 2 * MS, 2 * MS, 2 * MS);
        assert_false(priority_is_low());
        assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    }
    piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
    pace_end(&p);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
}

/* The longest piece that does not count as starved, and one that is a moment longer. */
TEST(it_is_starved_by_time_and_by_share)
{
    static const struct {
        uint64_t wall_ns, worked_ns, process_ns;
        bool starved;
    } pieces[] = {
        {5 * MS, 0, 0, false},
        {5 * MS + 1, 0, 0, true}, /* five milliseconds at least */
        {80 * MS, 10 * MS, 0, false},
        {80 * MS + 8, 10 * MS, 0, true}, /* less than an eighth of a processor */
        {400 * MS, 0, 700 * MS, false},
        {400 * MS, 0, 700 * MS - 1, true}, /* not by this process */
        {400 * MS, 100 * MS, 0, false},
    };
    if (!may_return())
        skip();
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        struct pace p = begun();
        piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
        assert_true(priority_is_low());
        piece(&p, true, pieces[i].wall_ns, pieces[i].worked_ns, pieces[i].process_ns);
        assert_int_equal(priority_is_low(), !pieces[i].starved);
        pace_end(&p);
    }
}

TEST(one_that_is_starved_sleeps_between_its_pieces_instead)
{
    if (!may_return())
        skip();
    struct pace p = begun();
    piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
    assert_int_equal(p.slept_ns, 0);
    piece(&p, true, NS_PER_S, 1 * MS, 1 * MS);
    assert_false(priority_is_low());
    assert_int_equal(p.slept_ns, 3 * MS); /* three times as long as it worked */
    piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
    assert_false(priority_is_low());
    assert_int_equal(p.slept_ns, 9 * MS);
    /* It does not sleep while no work runs. */
    piece(&p, false, 2 * MS, 2 * MS, 2 * MS);
    assert_int_equal(p.slept_ns, 9 * MS);
    /* At normal priority a long piece starves nothing; after four seconds it tries again to be low. */
    piece(&p, true, 4 * NS_PER_S - 4 * MS - 1, 0, 0);
    assert_false(priority_is_low());
    piece(&p, true, 1, 0, 0);
    assert_true(priority_is_low());
    pace_end(&p);
}

TEST(it_sleeps_for_a_tenth_of_a_second_at_most)
{
    struct pace p = begun();
    p.may_return = false;
    piece(&p, true, 60 * MS, 60 * MS, 60 * MS);
    assert_int_equal(p.slept_ns, 100 * MS);
}

TEST(where_nobody_may_return_from_low_it_sleeps)
{
    struct pace p = begun();
    p.may_return = false;
    uint64_t before_ns = clock_now_ns();
    piece(&p, true, 2 * MS, 2 * MS, 2 * MS);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    assert_int_equal(p.slept_ns, 6 * MS);
    assert_true(clock_now_ns() - before_ns >= p.slept_ns);
}

static void work_ms(uint64_t ms)
{
    uint64_t end_ns = clock_now_ns() + ms * MS;
    while (clock_now_ns() < end_ns)
        ;
}

static void *work(void *arg)
{
    (void)arg;
    work_ms(2);
    return NULL;
}

static uint64_t cpu_ns(clockid_t whose)
{
    struct timespec t;
    assert_int_equal(clock_gettime(whose, &t), 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

TEST(a_piece_is_measured_by_the_clocks_of_time_thread_and_process)
{
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, work, NULL), 0);
    pthread_join(other, NULL);
    uint64_t wall_ns = clock_now_ns(), thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID),
             process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    struct pace_clocks now = pace_clocks_now();
    assert_in_range(now.wall_ns, wall_ns, clock_now_ns());
    assert_in_range(now.thread_ns, thread_ns, cpu_ns(CLOCK_THREAD_CPUTIME_ID));
    assert_in_range(now.process_ns, process_ns, cpu_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/* A test knows only bounds of a real piece. */
TEST(the_next_piece_begins_after_the_sleep)
{
    struct pace p;
    pace_begin(&p);
    struct pace_clocks first = p.began;
    p.may_return = false;
    work_ms(2);
    pace_next(&p, true);
    assert_true(p.slept_ns > 0 && p.slept_ns <= 100 * MS);
    assert_true(p.began.wall_ns >= first.wall_ns + 2 * MS + p.slept_ns && p.began.wall_ns <= clock_now_ns());
    assert_true(p.slept_ns <= 3 * (p.began.thread_ns - first.thread_ns));
}

TEST_MAIN()
