/* test_workers.c - the pool: every tile once, turns in order, nothing left over. */
#include "test.h"

#include "base/check.h"
#include "base/clock.h"
#include "kernel/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { TILES_MAX = 512 };

struct count {
    atomic_uint tiles[TILES_MAX];
    uint32_t workers;
    /* Plain memory: a run's writes must be visible after it, and to the next run. */
    uint32_t plain[TILES_MAX];
};

static void count_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct count *c = arg;
    ASSERT(tile < TILES_MAX && worker < c->workers);
    atomic_fetch_add(&c->tiles[tile], 1);
    c->plain[tile]++;
}

static void sleep_us(uint32_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

TEST(every_tile_runs_exactly_once)
{
    static const uint32_t counts[] = {1, 2, 3, 8};
    for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
        struct workers *w;
        struct count c = {.workers = counts[i]};
        uint32_t want[TILES_MAX] = {0};
        assert_int_equal(workers_create(counts[i], NULL, &w), 0);
        assert_int_equal(workers_count(w), counts[i]);
        workers_turn_begin(w);
        for (uint32_t run = 0; run < 3000; run++) {
            uint32_t tiles = run * 37 % (run % 8 ? 20 : TILES_MAX);
            workers_run(w, count_tile, &c, tiles);
            for (uint32_t t = 0; t < tiles; t++)
                want[t]++;
            assert_memory_equal(c.plain, want, sizeof want);
            if (run % 500 == 0)
                sleep_us(200); /* the others fall asleep */
        }
        workers_turn_end(w);
        for (uint32_t t = 0; t < TILES_MAX; t++)
            assert_int_equal(atomic_load(&c.tiles[t]), want[t]);
        workers_free(w);
    }
}

static void meet(void *arg, uint32_t tile, uint32_t worker)
{
    atomic_uint *here = arg;
    (void)tile;
    (void)worker;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 3)
        sched_yield();
}

TEST(tiles_run_on_all_workers_at_once)
{
    struct workers *w;
    assert_int_equal(workers_create(3, NULL, &w), 0);
    workers_turn_begin(w);
    for (uint32_t i = 0; i < 50; i++) {
        atomic_uint here = 0;
        sleep_us(i % 2 ? 100 : 1);
        workers_run(w, meet, &here, 3); /* each tile waits for the other two: fewer workers would hang */
        assert_int_equal(atomic_load(&here), 3);
    }
    workers_turn_end(w);
    workers_free(w);
}

struct queue {
    struct workers *w;
    atomic_uint asked, served;
    uint32_t order[8];
    atomic_uint inside;
};

struct visitor {
    struct queue *q;
    uint32_t number;
    pthread_t thread;
};

static void *visit(void *arg)
{
    struct visitor *v = arg;
    atomic_fetch_add(&v->q->asked, 1);
    workers_turn_begin(v->q->w);
    ASSERT(atomic_fetch_add(&v->q->inside, 1) == 0);
    v->q->order[atomic_fetch_add(&v->q->served, 1)] = v->number;
    sleep_us(100);
    atomic_fetch_sub(&v->q->inside, 1);
    workers_turn_end(v->q->w);
    return NULL;
}

TEST(turns_are_first_come_first_served)
{
    struct queue q = {0};
    struct visitor v[8];
    assert_int_equal(workers_create(2, NULL, &q.w), 0);
    workers_turn_begin(q.w); /* no other caller gets in while the queue forms */
    for (uint32_t i = 0; i < 8; i++) {
        v[i] = (struct visitor){.q = &q, .number = i};
        assert_int_equal(pthread_create(&v[i].thread, NULL, visit, &v[i]), 0);
        while (atomic_load(&q.asked) <= i)
            sched_yield();
        sleep_us(20000); /* from asking to waiting inside the call */
    }
    assert_int_equal(atomic_load(&q.served), 0);
    workers_turn_end(q.w);
    for (uint32_t i = 0; i < 8; i++)
        pthread_join(v[i].thread, NULL);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(q.order[i], i);
    workers_free(q.w);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

TEST(an_idle_pool_uses_no_cpu)
{
    struct workers *w;
    struct count c = {.workers = 4};
    assert_int_equal(workers_create(4, NULL, &w), 0);
    workers_turn_begin(w);
    workers_run(w, count_tile, &c, 16);
    workers_turn_end(w);
    sleep_us(20000);
    uint64_t before = cpu_ns();
    for (uint32_t i = 0; i < 10; i++)
        sleep_us(20000);
    assert_true(cpu_ns() - before < 20 * NS_PER_MS);
    workers_free(w);
}

TEST(stacks_are_charged_and_given_back)
{
    struct ledger *l;
    struct account *a;
    struct workers *w;
    assert_int_equal(ledger_create(ACCOUNT_NO_LIMIT, &l), 0);
    assert_int_equal(account_open(ledger_root(l), "stacks", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &a), 0);
    assert_int_equal(workers_create(3, a, &w), 0);
    uint64_t used = account_numbers(a).used;
    assert_true(used >= 2 * (256 << 10) && used % 2 == 0);
    workers_free(w);
    assert_int_equal(account_numbers(a).reserved, 0);
    /* Room for one stack of two: nothing stays charged. */
    account_set_limit(a, used / 2);
    w = NULL;
    assert_int_equal(workers_create(3, a, &w), -ENOMEM);
    assert_null(w);
    assert_int_equal(account_numbers(a).reserved, 0);
    account_close(a);
    ledger_free(l);
}

TEST(counts_out_of_bounds_are_refused)
{
    struct workers *w = NULL;
    assert_int_equal(workers_create(0, NULL, &w), -EINVAL);
    assert_int_equal(workers_create(257, NULL, &w), -EINVAL);
    assert_null(w);
    workers_free(NULL);
    assert_in_range(workers_default_count(), 1, 256);
    assert_true(workers_default_count() <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
}

TEST(the_pool_is_busy_during_a_turn_and_shortly_after)
{
    struct workers *w;
    assert_int_equal(workers_create(2, NULL, &w), 0);
    assert_false(workers_busy(w));
    workers_turn_begin(w);
    assert_true(workers_busy(w));
    sleep_us(50000);
    assert_true(workers_busy(w));
    workers_turn_end(w);
    for (int i = 0; workers_busy(w) && i < 1000; i++)
        sleep_us(1000);
    assert_false(workers_busy(w));
    workers_free(w);
}

TEST(a_turn_is_tried_without_waiting)
{
    struct workers *w = NULL;
    assert_int_equal(workers_create(2, NULL, &w), 0);
    assert_true(workers_turn_try(w));
    assert_false(workers_turn_try(w));
    assert_true(workers_busy(w));
    workers_turn_end(w);
    workers_turn_begin(w);
    assert_false(workers_turn_try(w));
    workers_turn_end(w);
    assert_true(workers_turn_try(w));
    workers_turn_end(w);
    workers_free(w);
}

TEST_MAIN()
