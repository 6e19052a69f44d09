/* More requests than the pages hold, all the time. */
#define TEST_SEEDS 3
#include "test_rng.h"
#include "test_engine_scene.h"

struct wish {
    uint32_t from, count, tokens;
    uint64_t seed;
    int32_t priority;
};

static struct job_spec spec_of(const struct wish *w)
{
    struct job_spec s = greedy(prompt + w->from, w->count, w->tokens);
    s.sampling.temperature = 1;
    s.sampling.seed = w->seed;
    s.priority = w->priority;
    return s;
}

static bool has_room(struct fixture *f, void *arg)
{
    struct engine_numbers n = numbers(f);
    (void)arg;
    return n.running + n.waiting < 12;
}

/* A preempted request continues with the same tokens, and every request ends. */
PROPERTY(random_requests_in_few_pages_get_their_tokens, seed)
{
    enum { COUNT = 24 };
    struct fixture f, alone;
    struct wish wishes[COUNT];
    struct rng rng = {seed, 0};
    const char *dir = seed % 2 ? TINY("qwen3_5") : TINY("qwen3");
    struct engine_opts o = test_engine_opts(dir), plenty = o;
    o.max_model_len = 640;
    o.kv_bytes_max = 20 * model_shape(o.model)->page_bytes;
    o.prefix_cache_bytes = rng_below(&rng, 2) ? 1 << 20 : 0;
    test_engine_start(&f, dir, &o);
    test_engine_start(&alone, dir, &plenty);
    struct account_list before = list_accounts();
    for (int i = 0; i < COUNT; i++) {
        struct wish *w = &wishes[i];
        *w = (struct wish){(uint32_t)rng_below(&rng, 4) * 32, 1 + (uint32_t)rng_below(&rng, 300),
                           1 + (uint32_t)rng_below(&rng, 300), rng_next(&rng),
                           (int32_t)rng_below(&rng, 3) - 1};
        struct job_spec s = spec_of(w);
        wait_until(&f, has_room, NULL);
        struct client *c = submit(&f, &s);
        if (rng_below(&rng, 8) == 0)
            abort_client(&f, c);
    }
    wait_all(&f);
    assert_true(numbers(&f).preemptions > 0);
    for (int i = 0; i < COUNT; i++) {
        if (f.clients[i]->finish.reason == FINISH_ABORTED)
            continue;
        struct job_spec s = spec_of(&wishes[i]);
        struct client *c = submit(&alone, &s);
        wait_over(&alone, c);
        expect_same(f.clients[i], c);
    }
    free_clients(&alone);
    wait_until(&alone, is_empty, NULL);
    expect_settled(&f, &before);
    test_engine_close(&alone);
    test_engine_close(&f);
}

TEST_MAIN()
