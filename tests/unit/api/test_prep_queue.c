/* The order of preparation: short before long, tenants in turn, and no starvation. */
#include "test.h"

#include "api/prep_queue.h"

#include <sched.h>

#define LONG_BYTES ((size_t)4 << 20)

struct scene {
    struct prep_queue q;
    struct prep_entry entries[512];
    uint32_t count;
    uint64_t now_ns;
};

static struct scene *scene_new(void)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    prep_queue_init(&s->q);
    return s;
}

static void scene_free(struct scene *s)
{
    while (prep_queue_take(&s->q, PREP_LONG))
        ;
    prep_queue_done(&s->q);
    free(s);
}

static struct prep_entry *put(struct scene *s, uint64_t tenant, size_t bytes)
{
    assert_true(s->count < sizeof(s->entries) / sizeof(s->entries[0]));
    struct prep_entry *e = &s->entries[s->count++];
    *e = (struct prep_entry){.bytes = bytes, .fair.tenant = tenant};
    list_init(&e->fair.link);
    prep_queue_put(&s->q, e, s->now_ns++);
    return e;
}

TEST(short_ones_go_first_and_equals_in_the_order_of_arrival)
{
    struct scene *s = scene_new();
    struct prep_entry *big = put(s, 0, LONG_BYTES), *a = put(s, 0, 100), *b = put(s, 0, 100);
    struct prep_entry *mid = put(s, 0, 100000);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), a);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), b);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), mid);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), big);
    assert_null(prep_queue_take(&s->q, PREP_LONG));
    scene_free(s);
}

TEST(a_lane_leaves_what_is_too_long_for_it)
{
    struct scene *s = scene_new();
    struct prep_entry *big = put(s, 0, LONG_BYTES), *mid = put(s, 0, PREP_SHORT_BYTES);
    assert_null(prep_queue_take(&s->q, PREP_SHORT));
    struct prep_entry *small = put(s, 0, PREP_SHORT_BYTES - 1);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_SHORT), small);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_MEDIUM), mid);
    assert_null(prep_queue_take(&s->q, PREP_MEDIUM));
    struct prep_queue_numbers n;
    prep_queue_numbers(&s->q, &n);
    assert_true(n.count == 1 && n.bytes == LONG_BYTES);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), big);
    scene_free(s);
}

/* Short ones come all the time; each takes 500 ms. */
TEST(a_long_one_waits_for_a_minute_at_most)
{
    struct scene *s = scene_new();
    struct prep_entry *big = put(s, 7, 64 * LONG_BYTES), *e;
    put(s, 7, 100);
    while ((e = prep_queue_take(&s->q, PREP_LONG)) != big) {
        assert_non_null(e);
        s->now_ns += 500000000;
        put(s, 7, 100);
    }
    assert_in_range(s->now_ns, PREP_TURN_NS_MAX / 2, PREP_TURN_NS_MAX + 1000000000);
    scene_free(s);
}

TEST(a_short_one_goes_before_many_that_are_longer_and_came_lately)
{
    struct scene *s = scene_new();
    for (int i = 0; i < 64; i++) {
        put(s, 0, 64000);
        s->now_ns += 10000000;
    }
    struct prep_entry *mine = put(s, 0, 1000);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_SHORT), mine);
    scene_free(s);
}

TEST(a_tenant_waits_for_no_others_queue)
{
    struct scene *s = scene_new();
    for (int i = 0; i < 100; i++)
        put(s, 1, 60000);
    for (int i = 0; i < 10; i++)
        assert_int_equal(prep_queue_take(&s->q, PREP_LONG)->fair.tenant, 1);
    /* A larger entry waits for one of the other tenant's, not for all. */
    struct prep_entry *mine = put(s, 2, 200000);
    struct prep_entry *e = prep_queue_take(&s->q, PREP_LONG);
    if (e != mine)
        assert_ptr_equal(prep_queue_take(&s->q, PREP_LONG), mine);
    /* Having had its turn it waits until the other has had as much. */
    struct prep_entry *again = put(s, 2, 1000);
    uint32_t between = 0;
    while ((e = prep_queue_take(&s->q, PREP_LONG)) != again)
        between++;
    assert_in_range(between, 1, 5);
    scene_free(s);
}

TEST(a_tenant_that_was_away_is_owed_nothing)
{
    struct scene *s = scene_new();
    for (int i = 0; i < 200; i++) {
        put(s, 1, 50000);
        prep_queue_take(&s->q, PREP_LONG);
    }
    for (int i = 0; i < 20; i++) {
        put(s, 2, 50000);
        put(s, 1, 50000);
    }
    uint32_t firsts = 0;
    for (int i = 0; i < 20; i++)
        firsts += prep_queue_take(&s->q, PREP_LONG)->fair.tenant == 1;
    assert_in_range(firsts, 8, 12);
    scene_free(s);
}

#define MS 1000000ull

/* Bodies of a hundred bytes whose grammars take 200 ms each. */
TEST(a_tenant_whose_requests_take_long_leaves_the_lanes_of_short_ones)
{
    struct scene *s = scene_new();
    /* Some wait already when the first ends. */
    for (int i = 0; i < 50; i++)
        put(s, 1, 100);
    prep_queue_take(&s->q, PREP_SHORT);
    prep_queue_took(&s->q, 1, 100, 200 * MS);
    for (int i = 0; i < 50; i++)
        put(s, 1, 100);
    assert_null(prep_queue_take(&s->q, PREP_SHORT));
    assert_null(prep_queue_take(&s->q, PREP_MEDIUM));
    struct prep_entry *mine = put(s, 2, 100);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_SHORT), mine);
    mine = put(s, 2, 100);
    assert_int_equal(prep_queue_take(&s->q, PREP_LONG)->fair.tenant, 2);
    assert_int_equal(prep_queue_take(&s->q, PREP_LONG)->fair.tenant, 1);
    scene_free(s);
}

TEST(a_tenant_whose_requests_are_short_again_comes_back)
{
    struct scene *s = scene_new();
    for (int i = 0; i < 20; i++)
        prep_queue_took(&s->q, 1, 100, 200 * MS);
    uint32_t count = 0;
    for (struct prep_entry *e = NULL; !e; count++) {
        put(s, 1, 100);
        e = prep_queue_take(&s->q, PREP_SHORT);
        prep_queue_take(&s->q, PREP_LONG);
        prep_queue_took(&s->q, 1, 100, MS);
    }
    assert_in_range(count, 5, 30);
    scene_free(s);
}

/* Texts of 4 MiB that take a second each, which is more than their bytes cost. */
TEST(a_tenants_short_requests_wait_for_none_of_its_long_texts)
{
    struct scene *s = scene_new();
    put(s, 1, LONG_BYTES);
    put(s, 1, LONG_BYTES);
    struct prep_entry *waiting = put(s, 1, 100), *medium = put(s, 1, PREP_SHORT_BYTES);
    prep_queue_took(&s->q, 1, LONG_BYTES, 1000 * MS);
    struct prep_entry *later = put(s, 1, 100);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_SHORT), waiting);
    assert_ptr_equal(prep_queue_take(&s->q, PREP_SHORT), later);
    assert_null(prep_queue_take(&s->q, PREP_SHORT));
    assert_ptr_equal(prep_queue_take(&s->q, PREP_MEDIUM), medium);
    assert_null(prep_queue_take(&s->q, PREP_MEDIUM));
    scene_free(s);
}

TEST(a_tenant_is_charged_processor_time)
{
    struct scene *s = scene_new();
    uint32_t firsts = 0;
    for (int i = 0; i < 40; i++) {
        put(s, 1, 100);
        put(s, 2, 100);
    }
    for (int i = 0; i < 22; i++) {
        uint64_t tenant = prep_queue_take(&s->q, PREP_LONG)->fair.tenant;
        firsts += tenant == 1;
        prep_queue_took(&s->q, tenant, 100, tenant == 1 ? 100 * MS : 10 * MS);
    }
    assert_in_range(firsts, 1, 4);
    scene_free(s);
}

TEST(the_past_of_so_many_tenants_is_kept)
{
    struct scene *s = scene_new();
    for (uint64_t tenant = 1; tenant <= PREP_TENANTS; tenant++)
        prep_queue_took(&s->q, tenant, 100, 200 * MS);
    put(s, 1, 100);
    assert_null(prep_queue_take(&s->q, PREP_SHORT));
    /* The longest away is forgotten, which is the second one now. */
    prep_queue_took(&s->q, 1000, 100, 200 * MS);
    put(s, 2, 100);
    assert_int_equal(prep_queue_take(&s->q, PREP_SHORT)->fair.tenant, 2);
    scene_free(s);
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    struct prep_queue *q;
    enum prep_lane lane;
    uint32_t taken;
    _Atomic uint32_t *all;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct prep_entry *e;
    while ((e = prep_queue_wait(w->q, w->lane))) {
        assert_true(w->lane != PREP_SHORT || e->bytes < PREP_SHORT_BYTES);
        w->taken++;
        (*w->all)++;
    }
    return NULL;
}

TEST(threads_take_each_entry_once_and_end_when_it_is_closed)
{
    for (int round = 0; round < 20; round++) {
        struct scene *s = scene_new();
        struct worker workers[4];
        _Atomic uint32_t all = 0;
        uint32_t sum = 0;
        for (int i = 0; i < 4; i++) {
            workers[i] = (struct worker){.q = &s->q, .lane = (enum prep_lane)(i % PREP_LANES), .all = &all};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < 500; i++)
            put(s, i % 3, i * 3001);
        while (round % 2 && all < 500)
            sched_yield();
        prep_queue_close(&s->q);
        for (int i = 0; i < 4; i++) {
            pthread_join(workers[i].thread, NULL);
            sum += workers[i].taken;
        }
        assert_int_equal(sum, 500);
        scene_free(s);
    }
}

TEST_MAIN()
