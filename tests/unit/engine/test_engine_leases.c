/* Sessions and wishes of an engine's requests: what stays, what is refused, and what other threads see. */
#define TEST_SEEDS 2
#include "test_rng.h"
#include "test_engine.h"
#include "test_engine_orders.h"

#include "cache/leases.h"
#include "engine/engine_numbers.h"

#define PROMPT_MAX 1024

static const char *const models[] = {"qwen3", "qwen3_5", "gemma3"};

static void open_engine(struct fixture *f, const char *name, uint32_t pages)
{
    char dir[256];
    snprintf(dir, sizeof(dir), TINY("%s"), name);
    struct engine_opts o = test_engine_opts(dir);
    const struct model_shape *shape = model_shape(o.model);
    o.prefix_cache_bytes = pages * shape->page_bytes + 16 * (uint64_t)shape->state_bytes;
    o.max_model_len = MIN_OF(o.max_model_len, 512);
    o.kv_bytes_max = (pages + 64) * shape->page_bytes;
    test_engine_start(f, dir, &o);
}

static void fill(uint32_t *prompt, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (uint32_t)(rng_at(seed, i) % 500);
}

static struct client *run(struct fixture *f, const uint32_t *prompt, uint32_t count,
                          const struct job_leases *leases)
{
    struct job_spec spec = greedy(prompt, count, 4);
    if (leases)
        spec.leases = *leases;
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    return c;
}

/* Other prompts, more than the cache holds. */
static void press(struct fixture *f)
{
    uint32_t prompt[PROMPT_MAX];
    for (uint64_t i = 0; i < 40; i++) {
        fill(prompt, 320, 1000 + i);
        (void)run(f, prompt, 320, NULL);
    }
}

static struct job_leases session_of(uint32_t number, enum job_session use)
{
    struct job_leases ret = {.session = use, .ttl_s = 3600, .follows = true};
    memcpy(ret.id, &number, sizeof(number));
    return ret;
}

static struct lease_info wait_session(struct fixture *f, const struct job_leases *l)
{
    struct lease_info info = {0};
    for (uint64_t until_ns = clock_now_ns() + 20 * NS_PER_S; clock_now_ns() < until_ns; usleep(1000))
        if (engine_session(f->engine, (const struct lease_id *)l->id, 0, &info) && info.tokens > 0)
            return info;
    fail();
    return info;
}

static void wait_no_leases(struct fixture *f)
{
    struct engine_numbers n;
    uint64_t until_ns = clock_now_ns() + 20 * NS_PER_S;
    do {
        engine_numbers(f->engine, &n);
    } while ((n.sessions > 0 || n.leased_bytes > 0) && clock_now_ns() < until_ns && usleep(1000) == 0);
    assert_int_equal(n.sessions, 0);
    assert_int_equal(n.leased_bytes, 0);
}

static void run_session(const char *name)
{
    struct fixture f = {0};
    uint32_t prompt[PROMPT_MAX];
    open_engine(&f, name, 100);
    struct job_leases open = session_of(1, JOB_OPENS_SESSION), more = session_of(1, JOB_CONTINUES_SESSION);
    fill(prompt, 330, 7);
    struct client *c = run(&f, prompt, 200, &open);
    assert_true(c->finish.reason == FINISH_LENGTH && c->finish.leased_tokens >= 192);
    assert_true(wait_session(&f, &open).tokens >= 192);
    press(&f);
    c = run(&f, prompt, 330, &more);
    assert_int_equal(c->finish.cached_tokens, 192);
    assert_true(c->finish.leased_tokens >= 320);
    press(&f);
    /* A request that only continues it finds the moved end, and takes it along. */
    c = run(&f, prompt, 330, NULL);
    assert_true(c->finish.cached_tokens >= 320);
    /* A second session of this id, one of another tenant, and one that never fits. */
    struct job_spec spec = greedy(prompt, 330, 4);
    spec.leases = more;
    spec.tenant = 9;
    struct client *other = submit(&f, &spec);
    wait_over(&f, other);
    assert_int_equal(other->finish.reason, FINISH_LEASE_REFUSED);
    assert_true(engine_session_set(f.engine, (const struct lease_id *)open.id, 0, 0));
    assert_false(engine_session_set(f.engine, (const struct lease_id *)open.id, 0, 0));
    wait_no_leases(&f);
    press(&f);
    assert_int_equal(run(&f, prompt, 330, NULL)->finish.cached_tokens, 0);
    test_engine_close(&f);
}

TEST(a_session_survives_pressure_and_moves_with_its_chain)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_session(models[i]);
}

TEST(a_session_that_does_not_fit_is_refused_with_the_numbers)
{
    struct fixture f = {0};
    uint32_t prompt[PROMPT_MAX];
    open_engine(&f, "qwen3", 24);
    fill(prompt, 400, 7);
    struct job_leases open = session_of(1, JOB_OPENS_SESSION);
    struct client *c = run(&f, prompt, 400, &open);
    assert_int_equal(c->finish.reason, FINISH_LEASE_REFUSED);
    assert_non_null(strstr(c->finish.error, "The session needs "));
    assert_int_equal(c->finish.prompt_tokens > 0 && c->finish.completion_tokens == 0, 1);
    wait_no_leases(&f);
    test_engine_close(&f);
}

TEST(a_wish_outlives_the_prefixes_of_others)
{
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        struct fixture f = {0};
        uint32_t prompt[PROMPT_MAX];
        open_engine(&f, models[i], 100);
        fill(prompt, 330, 7);
        struct job_leases wish = {.wishes = {{160, 3600}, {UINT32_MAX, 300}}, .wish_count = 2};
        struct client *c = run(&f, prompt, 330, &wish);
        assert_true(c->finish.wished_tokens >= 320);
        press(&f);
        assert_true(run(&f, prompt, 330, NULL)->finish.cached_tokens >= 320);
        test_engine_close(&f);
    }
}

TEST(leases_end_in_time_and_a_closing_engine_ends_them)
{
    struct fixture f = {0};
    uint32_t prompt[PROMPT_MAX];
    open_engine(&f, "qwen3_5", 100);
    fill(prompt, 330, 7);
    struct job_leases first = session_of(1, JOB_OPENS_SESSION), second = session_of(2, JOB_OPENS_SESSION);
    (void)run(&f, prompt, 100, &first);
    (void)wait_session(&f, &first);
    /* A deadline that has passed: the idle engine ends it. */
    assert_true(engine_session_set(f.engine, (const struct lease_id *)first.id, 0, 1));
    wait_no_leases(&f);
    (void)run(&f, prompt, 100, &second);
    (void)wait_session(&f, &second);
    test_engine_close(&f);
}

TEST_MAIN()
