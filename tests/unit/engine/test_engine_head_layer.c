/* MTP and EAGLE-3 heads whose hidden states lie in the pages, and in recurrent states. Alone, in
 * batches, after hits and preemption, they change no token. */
#include "test_engine_draft.h"

#define PROMPT_TOKENS 70
#define ANSWER_TOKENS 100

static const char *const heads[] = {TINY("glm4_moe_mtp"),   TINY("deepseek_v3_mtp"), TINY("ernie4_5_moe_mtp"),
                                    TINY("nemotron_h_mtp"), TINY("qwen3_eagle"),     TINY("lfm2_eagle")};
static uint32_t texts[SPECS][PROMPT_TOKENS];

static struct engine_opts opts_of(const char *dir)
{
    struct engine_opts o = test_engine_opts(dir);
    o.max_model_len = PROMPT_TOKENS + ANSWER_TOKENS;
    return o;
}

static void fill(struct job_spec *specs)
{
    for (uint32_t i = 0; i < SPECS; i++) {
        for (uint32_t k = 0; k < PROMPT_TOKENS; k++)
            texts[i][k] = 3 + (i * 31 + k % 11 * 7 + k / 20) % 60;
        specs[i] = greedy(texts[i], PROMPT_TOKENS - i, ANSWER_TOKENS);
        specs[i].speculative = true;
    }
    specs[1].sampling.temperature = 0.9f;
    specs[1].sampling.seed = 5;
    specs[2].sampling.repetition_penalty = 1.2f;
}

static void open_plain(struct fixture *f, const char *dir, const struct job_spec *specs)
{
    struct engine_opts o = opts_of(dir);
    test_engine_start(f, dir, &o);
    submit_all(f, specs, SPECS);
    assert_int_equal(numbers_of(f).drafts, 0);
}

static void draft_with_head(struct engine_opts *o)
{
    o->drafting = (struct drafting_opts){.by = DRAFTING_MTP, .drafts_max = TEST_DRAFTS_MAX, .always = true};
}

TEST(heads_in_a_layer_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct fixture plain, f;
        struct job_spec specs[SPECS];
        struct engine_opts o = opts_of(heads[i]);
        assert_true(model_shape(o.model)->mtp);
        assert_int_equal(model_shape(o.model)->state_bytes > 0,
                         strstr(heads[i], "nemotron") || strstr(heads[i], "lfm2"));
        fill(specs);
        open_plain(&plain, heads[i], specs);
        draft_with_head(&o);
        o.prefix_cache_bytes = 64 << 20;
        test_engine_start(&f, heads[i], &o);
        submit_all(&f, specs, SPECS);
        for (uint32_t k = 0; k < SPECS; k++)
            wait_over(&f, submit(&f, &specs[k]));
        for (uint32_t k = 0; k < 2 * SPECS; k++)
            expect_alike(f.clients[k], plain.clients[k % SPECS]);
        assert_true(f.clients[SPECS]->finish.cached_tokens >= 2 * PAGE_TOKENS);
        assert_true(numbers_of(&f).draft_tokens > 2 * SPECS * ANSWER_TOKENS);
        test_engine_close(&f);
        test_engine_close(&plain);
    }
}

/* A page that is found has the hidden state that the head goes on from: drafts are the same ones. */
TEST(a_prefix_that_is_found_changes_no_draft)
{
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct fixture f;
        struct job_spec specs[SPECS];
        struct engine_opts o = opts_of(heads[i]);
        fill(specs);
        draft_with_head(&o);
        o.prefix_cache_bytes = 64 << 20;
        test_engine_start(&f, heads[i], &o);
        wait_over(&f, submit(&f, &specs[0]));
        struct engine_numbers once = numbers_of(&f);
        wait_over(&f, submit(&f, &specs[0]));
        struct engine_numbers twice = numbers_of(&f);
        expect_alike(f.clients[1], f.clients[0]);
        assert_true(f.clients[1]->finish.cached_tokens >= 2 * PAGE_TOKENS);
        assert_int_equal(twice.draft_tokens, 2 * once.draft_tokens);
        assert_int_equal(twice.accepted_tokens, 2 * once.accepted_tokens);
        test_engine_close(&f);
    }
}

TEST(preemption_between_drafts_of_such_a_head_changes_no_token)
{
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct fixture plain, f;
        struct job_spec specs[SPECS];
        struct engine_opts o = opts_of(heads[i]);
        fill(specs);
        open_plain(&plain, heads[i], specs);
        draft_with_head(&o);
        o.kv_bytes_max =
            3 * (uint64_t)DIV_UP(o.max_model_len, PAGE_TOKENS) * model_shape(o.model)->page_bytes;
        test_engine_start(&f, heads[i], &o);
        submit_all(&f, specs, SPECS);
        for (uint32_t k = 0; k < SPECS; k++)
            expect_alike(f.clients[k], plain.clients[k]);
        assert_true(numbers_of(&f).preemptions > 0);
        test_engine_close(&f);
        test_engine_close(&plain);
    }
}

TEST_MAIN()
