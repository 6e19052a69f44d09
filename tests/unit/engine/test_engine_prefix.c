/* Prefixes change the computation, never the output: golden answers from the cache, conversations, random
 * traffic. */
#define TEST_SEEDS 3 /* models and accounts are few */
#include "test_rng.h"
#include "test_engine.h"
#include "test_engine_orders.h"

#include "cache/page_pool.h"

#define PROMPT_MAX 2048

static const char *const tiny_models[] = {"qwen3", "llama", "qwen3_5", "qwen3_5_moe", "granitemoehybrid",
                                          "olmo3", "gemma3"};

static bool shows_prefixes; /* engine_opts.shows_prefixes */
static uint64_t steps_ns;   /* how long steps should be, so how large the chunks are; 0: as usual */

static void open_engine(struct fixture *f, const char *dir, bool reuse, uint32_t pages, uint32_t snapshots)
{
    struct engine_opts o = test_engine_opts(dir);
    const struct model_shape *shape = model_shape(o.model);
    o.prefix_cache_bytes = !reuse ? 0 : (uint64_t)snapshots * shape->state_bytes + pages * shape->page_bytes;
    o.max_model_len = MIN_OF(o.max_model_len, pages * PAGE_TOKENS);
    o.kv_bytes_max = pages * shape->page_bytes;
    o.shows_prefixes = shows_prefixes;
    if (steps_ns)
        o.step_ns = o.step_alone_ns = steps_ns;
    test_engine_start(f, dir, &o);
}

static struct client *run(struct fixture *f, const struct job_spec *spec)
{
    struct client *c = submit(f, spec);
    wait_over(f, c);
    return c;
}

static uint32_t whole_pages_before(uint32_t tokens)
{
    return (tokens - 1) / PAGE_TOKENS * PAGE_TOKENS;
}

static void run_golden(const char *name)
{
    char dir[256];
    struct fixture f = {0};
    uint32_t prompt[PROMPT_MAX], want[64];
    snprintf(dir, sizeof(dir), TINY("%s"), name);
    json_t *g = golden_load(name), *text = json_object_get(g, "text");
    uint32_t prompt_count = golden_ids(json_object_get(text, "prompt"), prompt, PROMPT_MAX);
    uint32_t count = golden_ids(json_object_get(text, "greedy"), want, 64);
    open_engine(&f, dir, true, 200, 4);
    struct job_spec spec = greedy(prompt, prompt_count, count);
    expect_tokens(run(&f, &spec), want, count);
    assert_int_equal(f.clients[0]->finish.cached_tokens, 0);
    /* Alone and all at once. */
    for (uint32_t i = 0; i < 9; i++)
        i ? (void)submit(&f, &spec) : (void)run(&f, &spec);
    wait_all(&f);
    for (uint32_t i = 1; i < f.client_count; i++) {
        expect_tokens(f.clients[i], want, count);
        assert_int_equal(f.clients[i]->finish.cached_tokens, whole_pages_before(prompt_count));
    }
    test_engine_close(&f);
    json_decref(g);
}

TEST(golden_answers_from_the_cache)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++)
        run_golden(tiny_models[i]);
}

static void fill_prompt(uint32_t *prompt, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (uint32_t)(rng_at(seed, i) % 500);
}

/* Before the request, from another thread than the engine's. */
TEST(what_other_threads_see_of_a_prefix_is_what_a_request_finds)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++) {
        char dir[256];
        struct fixture f = {0};
        uint32_t prompt[9 * PAGE_TOKENS + 5], count = COUNT_OF(prompt);
        shows_prefixes = true;
        snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
        open_engine(&f, dir, true, 200, 4);
        shows_prefixes = false;
        fill_prompt(prompt, count, i + 3);
        struct job_spec spec = greedy(prompt, count, 3), shorter = greedy(prompt, 4 * PAGE_TOKENS + 1, 3);
        assert_int_equal(engine_cached_tokens(f.engine, &spec), 0);
        (void)run(&f, &shorter);
        const uint32_t seen = engine_cached_tokens(f.engine, &spec);
        assert_int_equal(seen, 4 * PAGE_TOKENS);
        assert_int_equal(run(&f, &spec)->finish.cached_tokens, seen);
        assert_int_equal(engine_cached_tokens(f.engine, &spec), whole_pages_before(count));
        spec.tenant++;
        assert_int_equal(engine_cached_tokens(f.engine, &spec), 0);
        spec.tenant--;
        prompt[0]++;
        assert_int_equal(engine_cached_tokens(f.engine, &spec), 0);
        test_engine_close(&f);
    }
}

/* In a copy of its last page. With recurrent layers the state before that token is not kept. */
TEST(a_prompt_of_whole_pages_that_comes_again_computes_its_last_token)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++) {
        char dir[256];
        struct fixture f = {0}, fresh = {0};
        uint32_t prompt[12 * PAGE_TOKENS], count = COUNT_OF(prompt);
        snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
        open_engine(&f, dir, true, 200, 4);
        open_engine(&fresh, dir, false, 200, 0);
        fill_prompt(prompt, count, i + 3);
        struct job_spec spec = greedy(prompt, count, 40);
        const struct client *alone = run(&fresh, &spec);
        for (uint32_t n = 0; n < 2; n++)
            expect_tokens(run(&f, &spec), alone->ids, 40);
        for (uint32_t n = 0; n < 3; n++)
            (void)submit(&f, &spec);
        wait_all(&f);
        bool recurrent = model_shape(f.m->model)->state_bytes > 0;
        for (uint32_t n = 1; n < f.client_count; n++) {
            expect_tokens(f.clients[n], alone->ids, 40);
            assert_int_equal(f.clients[n]->finish.cached_tokens,
                             recurrent ? whole_pages_before(count) : count - 1);
        }
        test_engine_close(&f);
        test_engine_close(&fresh);
    }
}

/* The next turn begins with all that was said: the answer too is found again. */
TEST(a_conversation_goes_on_where_it_was)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++) {
        char dir[256];
        struct fixture f = {0}, fresh = {0};
        uint32_t said[PROMPT_MAX], count = 50;
        snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
        open_engine(&f, dir, true, 200, 4);
        open_engine(&fresh, dir, false, 200, 0);
        fill_prompt(said, count, i + 1);
        for (uint32_t turn = 0; turn < 5; turn++) {
            struct job_spec spec = greedy(said, count, 70);
            struct client *c = run(&f, &spec);
            expect_same(c, run(&fresh, &spec));
            uint32_t before = turn == 0 ? 0 : count - 9;
            assert_int_equal(c->finish.cached_tokens, turn == 0 ? 0 : whole_pages_before(before));
            memcpy(said + count, c->ids, c->count * sizeof(said[0]));
            count += c->count;
            fill_prompt(said + count, 9, turn + 100);
            count += 9;
        }
        test_engine_close(&f);
        test_engine_close(&fresh);
    }
}

/* The common prefix of two prompts is found at the cuts that the first was given, however those come. */
TEST(a_prefix_is_found_again_at_a_cut)
{
    static const uint32_t nonsense[] = {9000, 101, 0, 31, UINT32_MAX, 101, 200, 70, 199};
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++)
        for (uint32_t given = 0; given <= COUNT_OF(nonsense); given += COUNT_OF(nonsense)) {
            char dir[256];
            struct fixture f = {0};
            uint32_t prompt[200];
            snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
            fill_prompt(prompt, 200, 11);
            open_engine(&f, dir, true, 200, 6);
            bool recurrent = model_shape(test_model(dir)->model)->state_bytes > 0;
            struct job_spec spec = greedy(prompt, 200, 4);
            spec.cuts = nonsense;
            spec.cut_count = given;
            run(&f, &spec);
            fill_prompt(prompt + 101, 99, 12);
            struct client *c = run(&f, &spec);
            assert_int_equal(c->finish.cached_tokens, recurrent && given == 0 ? 0 : 96);
            fill_prompt(prompt + 75, 125, 13);
            assert_int_equal(run(&f, &spec)->finish.cached_tokens, recurrent && given == 0 ? 0 : 64);
            test_engine_close(&f);
        }
}

/* Pages are found anywhere, a recurrent state only where it was kept: only for that a prompt takes one step
 * more. */
TEST(only_with_a_recurrent_state_does_a_prompt_take_a_step_for_each_cut)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++) {
        char dir[256];
        struct fixture f = {0};
        struct engine_numbers before, after;
        uint32_t prompt[100], cut = 32;
        snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
        steps_ns = 100 * NS_PER_S;
        open_engine(&f, dir, true, 200, 6);
        steps_ns = 0;
        bool recurrent = model_shape(test_model(dir)->model)->state_bytes > 0;
        struct job_spec spec = greedy(prompt, 100, 1);
        spec.cuts = &cut;
        spec.cut_count = 1;
        fill_prompt(prompt, 100, 1);
        run(&f, &spec);
        engine_numbers(f.engine, &before);
        fill_prompt(prompt, 100, 2);
        run(&f, &spec);
        engine_numbers(f.engine, &after);
        assert_int_equal(after.steps - before.steps, recurrent ? 3 : 1);
        test_engine_close(&f);
    }
}

/* All at once: one prefills the prompt, the others only the tokens after its last whole page. */
TEST(choices_of_one_request_read_their_prompt_once)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++) {
        char dir[256];
        struct fixture f = {0}, fresh = {0};
        uint32_t prompt[330], readers = 0;
        snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[i]);
        fill_prompt(prompt, 330, 21);
        open_engine(&f, dir, true, 200, 8);
        open_engine(&fresh, dir, false, 200, 0);
        struct job_spec spec = greedy(prompt, 330, 40);
        for (uint32_t k = 0; k < 4; k++)
            submit(&f, &spec);
        wait_all(&f);
        struct client *alone = run(&fresh, &spec);
        for (uint32_t k = 0; k < 4; k++) {
            expect_same(f.clients[k], alone);
            readers += f.clients[k]->finish.cached_tokens < whole_pages_before(330);
        }
        assert_int_equal(readers, 1);
        test_engine_close(&f);
        test_engine_close(&fresh);
    }
}

TEST(another_salt_shares_nothing)
{
    struct fixture f = {0};
    uint32_t prompt[100];
    fill_prompt(prompt, 100, 7);
    open_engine(&f, TINY("qwen3"), true, 64, 0);
    struct job_spec spec = greedy(prompt, 100, 4);
    run(&f, &spec);
    spec.cache_salt = SLICE("tenant");
    assert_int_equal(run(&f, &spec)->finish.cached_tokens, 0);
    assert_int_equal(run(&f, &spec)->finish.cached_tokens, 96);
    test_engine_close(&f);
}

TEST(a_cleared_cache_holds_nothing_and_is_filled_again)
{
    struct fixture f = {0};
    struct test_cleared cleared;
    uint32_t prompt[200];
    fill_prompt(prompt, 200, 9);
    open_engine(&f, TINY("qwen3_5"), true, 64, 4);
    struct job_spec spec = greedy(prompt, 200, 4);
    run(&f, &spec);
    assert_int_equal(test_clear(f.engine, &cleared), 0);
    assert_int_equal(cleared.entries, 6);
    assert_true(cleared.bytes_reclaimed > 0);
    assert_int_equal(run(&f, &spec)->finish.cached_tokens, 0);
    assert_int_equal(run(&f, &spec)->finish.cached_tokens, 192);
    assert_int_equal(test_clear(f.engine, &cleared), 0);
    assert_int_equal(test_clear(f.engine, &cleared), 0);
    assert_int_equal(cleared.entries, 0);
    assert_int_equal(cleared.bytes_reclaimed, 0);
    test_engine_close(&f);
}

TEST(an_engine_that_remembers_sleeps_when_it_is_idle)
{
    struct fixture f = {0};
    uint32_t prompt[100];
    struct engine_numbers before, after;
    fill_prompt(prompt, 100, 8);
    open_engine(&f, TINY("qwen3_5"), true, 64, 2);
    struct job_spec spec = greedy(prompt, 100, 4);
    run(&f, &spec);
    struct timespec cpu[2], pause = {0, 300 * 1000 * 1000};
    nanosleep(&pause, NULL);
    engine_numbers(f.engine, &before);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    engine_numbers(f.engine, &after);
    assert_int_equal(before.steps, after.steps);
    /* A tenth of the time is far more than sleeping takes and far less than turning does. */
    assert_true((cpu[1].tv_sec - cpu[0].tv_sec) * 1000000000 + cpu[1].tv_nsec - cpu[0].tv_nsec <
                30 * 1000 * 1000);
    test_engine_close(&f);
}

/* Events in the pools, and to requests without a client. */
static void trouble(struct fixture *f, struct rng *rng)
{
    struct test_cleared given;
    uint32_t prompt[300];
    switch (rng_below(rng, 16)) {
    case 0:
        engine_reclaim(f->engine);
        break;
    case 1:
        assert_int_equal(test_trim(f->engine, &given), 0);
        break;
    case 2:
        assert_int_equal(test_clear(f->engine, &given), 0);
        break;
    case 3:
    case 4: {
        fill_prompt(prompt, 300, rng_below(rng, 3));
        struct job_spec spec = greedy(prompt, 300, 50);
        struct client *c = submit(f, &spec);
        wait_tokens(f, c, (uint32_t)rng_below(rng, 4));
        if (c->stream)
            stream_close(c->stream);
        engine_wake(f->engine);
        break;
    }
    default:
        break;
    }
}

/* Prompts of three families, more than the pages hold: hits, evictions, preemption, shared reading, trims,
 * aborts. */
PROPERTY(random_traffic_has_the_same_tokens, seed)
{
    struct fixture f = {0}, fresh = {0};
    struct rng rng = {seed, 0};
    struct client *mine[24];
    char dir[256];
    uint32_t prompts[24][400], counts[24], cached = 0;
    snprintf(dir, sizeof(dir), TINY("%s"), tiny_models[seed % COUNT_OF(tiny_models)]);
    steps_ns = NS_PER_US << rng_below(&rng, 16);
    open_engine(&f, dir, true, 30, 1 + (uint32_t)rng_below(&rng, 3));
    steps_ns = 0;
    open_engine(&fresh, dir, false, 200, 0);
    for (uint32_t i = 0; i < COUNT_OF(prompts); i++) {
        uint32_t alike = 64 + (uint32_t)rng_below(&rng, 200);
        uint32_t cuts[] = {alike, (uint32_t)rng_below(&rng, 400), 130};
        counts[i] = alike + 1 + (uint32_t)rng_below(&rng, 100);
        fill_prompt(prompts[i], counts[i], 1000 + i);
        fill_prompt(prompts[i], alike, rng_below(&rng, 3));
        struct job_spec spec = greedy(prompts[i], counts[i], 1 + (uint32_t)rng_below(&rng, 60));
        spec.sampling.temperature = i % 2 ? 1 : 0;
        spec.sampling.seed = i;
        spec.cuts = cuts;
        spec.cut_count = (uint32_t)rng_below(&rng, COUNT_OF(cuts) + 1);
        mine[i] = submit(&f, &spec);
        submit(&fresh, &spec);
        trouble(&f, &rng);
        if (rng_below(&rng, 4) == 0)
            wait_all(&f);
    }
    wait_all(&f);
    wait_all(&fresh);
    for (uint32_t i = 0; i < COUNT_OF(prompts); i++) {
        expect_same(mine[i], fresh.clients[i]);
        cached += mine[i]->finish.cached_tokens;
    }
    /* With states, a few snapshots may all be evicted before a request needs them. */
    assert_true(cached > 0 || model_shape(f.m->model)->state_bytes > 0);
    test_engine_close(&f);
    test_engine_close(&fresh);
}

TEST_MAIN()
