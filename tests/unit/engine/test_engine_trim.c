/* Trims of an engine: at rest, on order, and when memory is short; and that no token changes. */
#define TEST_SEEDS 3 /* models and accounts are few */
#include "test_engine.h"
#include "test_engine_orders.h"

#include "cache/page_pool.h"
#include "memory/units.h"

#define PROMPTS 40
/* One of so many prompts is asked again. A sanitizer need not see each of them. */
#ifdef TEST_SANITIZED
#define AGAIN_EVERY 4
#else
#define AGAIN_EVERY 1
#endif
#define PROMPT_MAX 1600

static uint64_t pools_used(struct fixture *f)
{
    uint64_t used = account_numbers(f->account).used;
    return used;
}

static struct engine_numbers numbers(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n;
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void fill_prompt(uint32_t *prompt, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (uint32_t)(rng_at(seed, i) % 500);
}

/* Pages for several units, and a cache that may hold all of it unless `cache` is false. */
static struct engine_opts opts_of(const char *dir, bool cache)
{
    struct engine_opts o = test_engine_opts(dir);
    o.kv_bytes_max = 64 * UNIT_BYTES;
    o.prefix_cache_bytes = cache ? 64 * UNIT_BYTES : 0;
    return o;
}

static struct client *run(struct fixture *f, uint64_t seed, uint32_t tokens, uint32_t wanted)
{
    uint32_t prompt[PROMPT_MAX];
    fill_prompt(prompt, tokens, seed);
    struct job_spec spec = greedy(prompt, tokens, wanted);
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    return c;
}

static void fill_cache(struct fixture *f)
{
    for (uint32_t i = 0; i < PROMPTS; i++)
        run(f, i, 300 + i * 30, 2);
}

static bool is_trimmed(struct fixture *f, void *arg)
{
    (void)arg;
    struct engine_numbers n = numbers(f);
    return n.idle && n.trim.bytes > 0 && n.pending_trim_bytes == 0;
}

TEST(what_is_free_goes_within_a_second_of_the_last_request)
{
    struct fixture f = {0};
    struct engine_opts o = opts_of(TINY("qwen3_5"), false);
    test_engine_start(&f, TINY("qwen3_5"), &o);
    uint64_t before = pools_used(&f);
    run(&f, 1, 1500, 4);
    uint64_t ended_ns = clock_now_ns();
    wait_until(&f, is_trimmed, NULL);
    /* The bound is a second; a machine that does much else gets more. */
    assert_true(clock_now_ns() - ended_ns < 5 * NS_PER_S);
    assert_int_equal(pools_used(&f), before);
    struct engine_numbers n = numbers(&f);
    assert_int_equal(n.trim.trims, 1);
    assert_int_equal(n.trim.bytes, n.trim.units * UNIT_BYTES);
    assert_true(n.trim.slices >= n.trim.units && n.trim.slice_max_ns > 0);
    test_engine_close(&f);
}

TEST(units_that_were_wanted_again_stay_longer)
{
    struct fixture f = {0};
    struct engine_opts o = opts_of(TINY("qwen3"), false);
    test_engine_start(&f, TINY("qwen3"), &o);
    for (uint32_t i = 0; i < 30; i++) {
        run(&f, i, 100, 2);
        sleep_ms(70);
    }
    /* Each request takes a unit. Without patience nearly all of them would be decommitted and committed
     * again. */
    assert_true(numbers(&f).units_recommitted < 10);
    wait_until(&f, is_trimmed, NULL);
    test_engine_close(&f);
}

TEST(nothing_goes_by_itself_when_units_are_kept)
{
    struct fixture f = {0};
    struct engine_opts o = opts_of(TINY("qwen3_5"), false);
    struct test_cleared given;
    o.keep_units = true;
    test_engine_start(&f, TINY("qwen3_5"), &o);
    uint64_t before = pools_used(&f);
    run(&f, 1, 1500, 4);
    sleep_ms(300);
    uint64_t held = pools_used(&f) - before;
    assert_true(held > 0);
    assert_int_equal(numbers(&f).trim.trims, 0);
    assert_int_equal(test_trim(f.engine, &given), 0);
    assert_int_equal(given.bytes_reclaimed, held);
    assert_int_equal(pools_used(&f), before);
    test_engine_close(&f);
}

/* The oldest prefixes go, the others are moved together, and they are found where they are now. */
static void reclaim(const char *dir)
{
    struct fixture f = {0}, fresh = {0};
    struct engine_opts o = opts_of(dir, true), none = opts_of(dir, false);
    struct test_cleared given;
    uint32_t cached = 0;
    test_engine_start(&f, dir, &o);
    test_engine_start(&fresh, dir, &none);
    fill_cache(&f);
    for (uint32_t times = 0; times < 4; times++) {
        uint64_t before = numbers(&f).cache_bytes;
        engine_reclaim(f.engine);
        /* An order queues after it, and is answered when both are done. */
        assert_int_equal(test_trim(f.engine, &given), 0);
        run(&f, 1000 + times, 40, 1);
        assert_true(numbers(&f).cache_bytes < before);
    }
    struct engine_numbers n = numbers(&f);
    assert_true(n.reclaims >= 4 && n.cache_pages_evicted > 0 && n.trim.units > 0);
    for (uint32_t i = PROMPTS; i-- > 0;) {
        if (i % AGAIN_EVERY != AGAIN_EVERY - 1)
            continue;
        struct client *c = run(&f, i, 300 + i * 30, 8);
        expect_same(c, run(&fresh, i, 300 + i * 30, 8));
        cached += c->finish.cached_tokens;
    }
    assert_true(cached > 0);
    if (model_shape(f.m->model)->page_bytes < UNIT_BYTES / 2)
        assert_true(n.trim.moves > 0);
    test_engine_close(&f);
    test_engine_close(&fresh);
}

TEST(prefixes_that_moved_give_the_same_tokens)
{
    reclaim(TINY("qwen3"));
    reclaim(TINY("qwen3_5_moe"));
}

TEST(an_order_is_answered_while_seqs_run)
{
    struct fixture f = {0}, fresh = {0};
    struct engine_opts o = opts_of(TINY("qwen3_5"), true), none = opts_of(TINY("qwen3_5"), false);
    struct test_cleared given;
    uint32_t prompt[64];
    test_engine_start(&f, TINY("qwen3_5"), &o);
    test_engine_start(&fresh, TINY("qwen3_5"), &none);
    fill_cache(&f);
    fill_prompt(prompt, 64, 77);
    struct job_spec spec = greedy(prompt, 64, 1500);
    struct client *c = submit(&f, &spec);
    wait_tokens(&f, c, 1);
    assert_int_equal(test_clear(f.engine, &given), 0);
    assert_true(given.entries > 0 && given.bytes_reclaimed > 0);
    assert_false(c->over);
    assert_int_equal(test_trim(f.engine, &given), 0);
    wait_over(&f, c);
    struct client *same = submit(&fresh, &spec);
    wait_over(&fresh, same);
    expect_same(c, same);
    test_engine_close(&f);
    test_engine_close(&fresh);
}

/* Both pools below one limit, which a cache would like to fill alone: each gives for the other, and every
 * request is served. */
TEST(pools_share_their_limit)
{
    struct fixture f = {0}, fresh = {0};
    const char *dir = TINY("qwen3_5");
    struct engine_opts o = opts_of(dir, true), none = opts_of(dir, false);
    const struct model_shape *shape = model_shape(test_model(dir)->model);
    o.max_num_seqs = 2;
    uint64_t states = ROUND_UP(4 * (uint64_t)shape->state_bytes, UNIT_BYTES) + UNIT_BYTES;
    uint64_t pages = ROUND_UP(2 * (uint64_t)PROMPT_MAX / PAGE_TOKENS * shape->page_bytes, UNIT_BYTES);
    o.pools_bytes_max = states + pages;
    o.kv_bytes_max = pages;
    test_engine_start(&f, dir, &o);
    test_engine_start(&fresh, dir, &none);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct client *c = run(&f, i, 300 + i * 30, 4);
        assert_int_equal(c->finish.reason, FINISH_LENGTH);
        expect_same(c, run(&fresh, i, 300 + i * 30, 4));
    }
    struct engine_numbers n = numbers(&f);
    assert_true(n.cache_pages_evicted + n.cache_snapshots_evicted > 0);
    test_engine_close(&f);
    test_engine_close(&fresh);
}

static void *order(void *arg)
{
    struct fixture *f = arg;
    struct test_cleared given;
    int r = test_trim(f->engine, &given);
    assert_true(r == 0 || r == -EPIPE);
    return NULL;
}

TEST(an_order_is_answered_when_the_engine_ends)
{
    struct fixture f = {0};
    struct engine_opts o = opts_of(TINY("qwen3"), true);
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .shut = true};
    struct engine_faults faults = {.step = gate_step, .arg = &gate};
    uint32_t prompt[64];
    pthread_t waits;
    o.faults = &faults;
    test_engine_start(&f, TINY("qwen3"), &o);
    fill_prompt(prompt, 64, 5);
    struct job_spec spec = greedy(prompt, 64, 1000);
    submit(&f, &spec);
    gate_wait(&gate);
    assert_int_equal(pthread_create(&waits, NULL, order, &f), 0);
    sleep_ms(50);
    gate_set(&gate, false, 0);
    /* The order's thread reads f.engine no more once it has the answer. */
    pthread_join(waits, NULL);
    test_engine_close(&f);
}

TEST_MAIN()
