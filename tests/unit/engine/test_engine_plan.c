/* An engine takes the bytes that it announced, or fewer. */
#define TEST_SEEDS 8
#include "test_rng.h"
#include "test_engine.h"

#include "engine/engine_opts.h"
#include "engine/job.h"
#include "grammar/matcher.h"
#include "model/model.h"

static void expect_enough(const char *dir, const struct engine_opts *o)
{
    struct fixture f = {0};
    struct engine_plan plan;
    const struct model_shape *shape = model_shape(o->model);
    engine_plan(o, shape, &plan);
    test_engine_open(&f, dir, o);
    struct account *own = account_find(f.account, "engine"), *kv = account_find(f.account, "kv");
    assert_non_null(own);
    assert_non_null(kv);
    uint64_t pages = account_numbers(kv).planned / shape->page_bytes;
    uint64_t states = o->prefix_cache_bytes ? 2 * o->max_num_seqs + 1024 : o->max_num_seqs;
    uint64_t planned = plan.fixed_bytes + pages * plan.page_bytes + states * plan.state_bytes;
    uint64_t used = account_numbers(own).used;
    if (used > planned)
        fail_msg("%llu bytes are used, %llu were planned", (unsigned long long)used,
                 (unsigned long long)planned);
    /* A plan of twice as much would be a plan of nothing. */
    assert_true(planned < 2 * used + (1 << 20));
    test_engine_close(&f);
}

static void expect_enough_of_all(const char *dir)
{
    struct engine_opts o = test_engine_opts(dir);
    expect_enough(dir, &o);
    o.prefix_cache_bytes = (uint64_t)1 << 30;
    expect_enough(dir, &o);
    o.kv_bytes_max = (uint64_t)4 << 30;
    o.max_queue = 5000;
    expect_enough(dir, &o);
    o.max_num_seqs = 1;
    o.max_queue = 1;
    expect_enough(dir, &o);
}

TEST(an_engine_takes_what_it_planned)
{
    expect_enough_of_all(TINY("qwen3"));
}

TEST(one_with_states_as_well)
{
    expect_enough_of_all(TINY("qwen3_5_moe"));
}

TEST(the_bundled_model_s_as_well)
{
    expect_enough_of_all(CANARY);
}

PROPERTY(no_job_is_larger_than_planned, seed)
{
    struct rng rng = {seed, 0};
    uint64_t fixed, token;
    const struct job_tables tables = {
        .keys = true, .ngram = seed % 2, .groups = 1 + (uint32_t)rng_below(&rng, PAGE_GROUPS_MAX)};
    job_bytes_max(true, &tables, &fixed, &token);
    for (int i = 0; i < 2000; i++) {
        uint64_t tokens = 2 + rng_below(&rng, 1ull << (4 + rng_below(&rng, 18)));
        struct slice stops[ENGINE_STOP_STRINGS_MAX];
        static const char text[ENGINE_STOP_STRING_BYTES_MAX];
        struct job_spec s = {.prompt_count = 1, .max_tokens = (uint32_t)tokens - 1, .stops = stops};
        s.stop_count = (uint32_t)rng_below(&rng, COUNT_OF(stops) + 1);
        for (uint32_t k = 0; k < s.stop_count; k++)
            stops[k] = (struct slice){text, 1 + rng_below(&rng, sizeof(text))};
        s.cut_count = (uint32_t)rng_below(&rng, ENGINE_CUTS_MAX + 1);
        s.image_count = (uint32_t)rng_below(&rng, ENGINE_IMAGES_MAX + 1);
        s.prompt_logprobs = rng_below(&rng, 2);
        sampler_params_default(&s.sampling);
        s.sampling.presence_penalty = (float)rng_below(&rng, 2);
        s.sampling.bias_count = (uint32_t)rng_below(&rng, SAMPLER_BIAS_MAX + 1);
        s.sampling.top_logprobs = (uint32_t)rng_below(&rng, SAMPLER_TOP_MAX + 1);
        s.speculative = rng_below(&rng, 4);
        assert_true(job_bytes(&s, &tables) <= fixed + token * tokens);
        s.grammar = (struct grammar_entry *)&s;
        uint64_t matcher = JOB_MATCHER_BYTES + tokens * JOB_MATCHER_TOKEN_BYTES;
        assert_true(job_bytes(&s, &tables) <=
                    fixed + token * tokens + MIN_OF(matcher, JOB_MATCHER_BYTES_MAX));
    }
}

TEST_MAIN()
