/* Places of agents in an engine: what stays under pressure, who is refused, and when a place is free. */
#define TEST_SEEDS 2
#include "test_rng.h"
#include "test_engine.h"
#include "test_engine_orders.h"

#include "cache/leases.h"
#include "engine/engine_numbers.h"

enum { PROMPT_MAX = 512, PAGES = 100, AGENT_TOKENS = 256 };

static const char *const models[] = {"qwen3", "qwen3_5", "gemma3"};

static void open_engine(struct fixture *f, const char *name, uint32_t agents, uint64_t idle_ns)
{
    char dir[256];
    snprintf(dir, sizeof(dir), TINY("%s"), name);
    struct engine_opts o = test_engine_opts(dir);
    const struct model_shape *shape = model_shape(o.model);
    o.prefix_cache_bytes = PAGES * shape->page_bytes + 16 * (uint64_t)shape->state_bytes;
    o.max_model_len = MIN_OF(o.max_model_len, 512);
    o.kv_bytes_max = (PAGES + 64) * shape->page_bytes;
    o.agents = agents;
    o.agent_tokens = AGENT_TOKENS;
    o.agent_idle_ns = idle_ns;
    test_engine_start(f, dir, &o);
}

static void fill(uint32_t *prompt, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (uint32_t)(rng_at(seed, i) % 500);
}

static struct client *run(struct fixture *f, const uint32_t *prompt, uint32_t count, uint64_t tenant,
                          const struct job_leases *leases)
{
    struct job_spec spec = greedy(prompt, count, 4);
    spec.tenant = tenant;
    spec.leases = *leases;
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    return c;
}

static struct client *say(struct fixture *f, uint64_t agent, uint64_t seed, uint32_t count)
{
    uint32_t prompt[PROMPT_MAX];
    fill(prompt, count, seed);
    return run(f, prompt, count, 1, &(struct job_leases){.agent = agent});
}

/* Prompts of no agent, more than the cache holds. */
static void press(struct fixture *f)
{
    for (uint64_t i = 0; i < 40; i++)
        (void)say(f, 0, 1000 + i, 320);
}

static struct engine_numbers wait_agents(struct fixture *f, uint32_t count)
{
    struct engine_numbers n;
    uint64_t until_ns = clock_now_ns() + 20 * NS_PER_S;
    do {
        engine_numbers(f->engine, &n);
    } while ((n.agents != count || n.agents_running > 0) && clock_now_ns() < until_ns && usleep(1000) == 0);
    assert_int_equal(n.agents, count);
    return n;
}

static void run_agents(const char *name)
{
    struct fixture f = {0};
    open_engine(&f, name, 2, 3600 * NS_PER_S);
    (void)say(&f, 5, 7, 200);
    (void)say(&f, 6, 8, 200);
    press(&f);
    assert_int_equal(say(&f, 5, 7, 240)->finish.cached_tokens, 192);
    press(&f);
    assert_int_equal(say(&f, 6, 8, 200)->finish.cached_tokens, 192);
    assert_true(say(&f, 5, 7, 240)->finish.cached_tokens >= 224);
    /* Beyond its share a prefix is cached as any other; recurrent layers have their snapshot there. */
    struct client *c = say(&f, 7, 9, 200);
    assert_int_equal(c->finish.reason, FINISH_AGENTS_FULL);
    assert_int_equal(c->finish.retry_after_s, 3600);
    assert_non_null(strstr(c->finish.error, "All 2 places of agents"));
    assert_int_equal(c->finish.completion_tokens, 0);
    struct engine_numbers n = wait_agents(&f, 2);
    assert_int_equal(n.agents_refused, 1);
    assert_int_equal(n.agents_taken, 2);
    /* Requests of no agent go on. */
    assert_int_equal(say(&f, 0, 9, 200)->finish.reason, FINISH_LENGTH);
    test_engine_close(&f);
}

TEST(a_place_keeps_its_prefix_and_one_agent_too_many_is_refused)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_agents(models[i]);
}

TEST(a_session_has_a_place_until_it_ends)
{
    struct fixture f = {0};
    uint32_t prompt[PROMPT_MAX];
    struct job_leases open = {.session = JOB_OPENS_SESSION, .ttl_s = 3600, .id = {9}};
    open_engine(&f, "qwen3_5", 1, NS_PER_MS);
    open.agent = job_session_agent(open.id);
    fill(prompt, 200, 3);
    assert_int_equal(run(&f, prompt, 200, 1, &open)->finish.reason, FINISH_LENGTH);
    /* Not after the idle time, which is a millisecond. */
    usleep(20000);
    assert_int_equal(say(&f, 5, 7, 200)->finish.reason, FINISH_AGENTS_FULL);
    const struct lease_id *id = (const struct lease_id *)open.id;
    assert_true(engine_session_set(f.engine, id, 1, 0));
    (void)wait_agents(&f, 0);
    assert_int_equal(say(&f, 5, 7, 200)->finish.reason, FINISH_LENGTH);
    /* The idle engine frees it in time. */
    assert_int_equal(wait_agents(&f, 0).agents_expired, 1);
    test_engine_close(&f);
}

TEST(thousands_of_agents_come_and_go)
{
    struct fixture f = {0};
    open_engine(&f, "qwen3_5", 3, 1);
    uint64_t refused = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        refused += say(&f, 1 + i, i % 50, 33 + i % 64)->finish.reason == FINISH_AGENTS_FULL;
        if (i % 256 == 0)
            free_clients(&f);
    }
    struct engine_numbers n = wait_agents(&f, 0);
    assert_int_equal(n.agents_taken + refused, 2000);
    assert_int_equal(n.agent_tokens, 0);
    struct test_cleared cleared;
    assert_int_equal(test_clear(f.engine, &cleared), 0);
    /* The close demands that the ledger is as it began. */
    test_engine_close(&f);
}

TEST_MAIN()
