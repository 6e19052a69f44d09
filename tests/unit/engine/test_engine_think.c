/* Ends of reasoning: the marker comes after exactly so many tokens, or at a loop, and the tokens are the same
 * however they are computed. */
#define TEST_DRAFTS_MAX 3
#include "test_engine.h"

#include "engine/engine_numbers.h"
#include "engine/engine_think.h"
#include "engine/stream.h"
#include "spec/drafting.h"

#define DIR TINY("qwen3")

enum { PROMPT = 40, JOBS = 8, TOKENS = 100, BUDGET = 37, OPEN = 490, CLOSE = 500 };

/* ---- the state ---- */

static struct engine_think thinking(uint32_t budget, bool inside)
{
    return (struct engine_think){.limits = {.budget = budget,
                                            .inside = inside,
                                            .open = {OPEN},
                                            .open_count = 1,
                                            .close = {CLOSE, CLOSE + 1, CLOSE + 2},
                                            .close_count = 3}};
}

static void take(struct engine_think *t, uint32_t count, uint32_t token)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(engine_think_forced(t), ENGINE_THINK_NONE);
        engine_think_take(t, token);
    }
}

static void expect_close(struct engine_think *t, uint32_t from)
{
    for (uint32_t i = from; i < 3; i++) {
        assert_int_equal(engine_think_forced(t), CLOSE + i);
        engine_think_take(t, CLOSE + i);
    }
    assert_int_equal(engine_think_forced(t), ENGINE_THINK_NONE);
}

TEST(the_marker_is_forced_after_the_budget)
{
    struct engine_think t = thinking(5, true);
    take(&t, 5, 7);
    expect_close(&t, 0);
    take(&t, 20, 7);
}

TEST(a_budget_of_nothing_ends_reasoning_at_once)
{
    struct engine_think t = thinking(0, true);
    expect_close(&t, 0);
}

TEST(reasoning_that_ends_by_itself_is_left_alone)
{
    struct engine_think t = thinking(5, true);
    take(&t, 1, 7);
    for (uint32_t i = 0; i < 3; i++)
        take(&t, 1, CLOSE + i);
    take(&t, 20, 7);
}

TEST(a_marker_that_has_begun_is_completed)
{
    struct engine_think t = thinking(5, true);
    take(&t, 3, 7);
    take(&t, 1, CLOSE);
    take(&t, 1, CLOSE + 1);
    expect_close(&t, 2);
}

TEST(a_marker_that_is_broken_off_does_not_count)
{
    struct engine_think t = thinking(6, true);
    take(&t, 1, CLOSE);
    take(&t, 1, CLOSE + 1);
    take(&t, 1, 7);
    take(&t, 2, CLOSE);
    take(&t, 1, CLOSE + 1);
    expect_close(&t, 2);
}

TEST(reasoning_that_begins_later_counts_from_there_and_all_together)
{
    struct engine_think t = thinking(4, false);
    take(&t, 20, 7);
    take(&t, 1, OPEN);
    take(&t, 4, 7);
    expect_close(&t, 0);
    take(&t, 3, 7);
    take(&t, 1, OPEN);
    expect_close(&t, 0);
}

TEST(without_a_marker_there_is_no_budget)
{
    struct engine_think t = {.limits = {.inside = true}};
    take(&t, 9, 7);
    assert_false(engine_think_is_on(&t));
}

TEST(markers_are_checked)
{
    struct job_thinking l = thinking(1, true).limits;
    assert_int_equal(engine_think_check(&l, 512), 0);
    assert_int_equal(engine_think_check(&l, CLOSE + 2), -EINVAL);
    l.open_count = JOB_MARKER_MAX + 1;
    assert_int_equal(engine_think_check(&l, 512), -EINVAL);
}

/* ---- the engine ---- */

static uint32_t prompt[PROMPT];

__attribute__((constructor)) static void fill_prompt(void)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = 3 + (i * 97 + i / 13) % 400;
}

static struct job_spec spec_of(uint32_t i, bool bounded)
{
    static const float temperatures[] = {0, 0.7f, 1, 1.6f};
    struct job_spec spec = greedy(prompt, PROMPT - i, TOKENS);
    spec.sampling.temperature = temperatures[i % 4];
    spec.sampling.seed = i;
    spec.sampling.frequency_penalty = i % 3 == 1 ? 0.5f : 0;
    spec.sampling.logprobs = i % 2;
    spec.sampling.top_logprobs = i % 2;
    spec.speculative = true;
    if (bounded)
        spec.thinking = thinking(BUDGET + i % 3, true).limits;
    return spec;
}

static struct client *wanted[JOBS];

static void run_all(struct fixture *f, bool alone, bool compare)
{
    struct client *got[JOBS];
    for (uint32_t i = 0; i < JOBS; i++) {
        struct job_spec spec = spec_of(i, true);
        got[i] = submit(f, &spec);
        if (alone)
            wait_over(f, got[i]);
    }
    wait_all(f);
    for (uint32_t i = 0; i < JOBS; i++) {
        if (!compare) {
            wanted[i] = malloc(sizeof(*wanted[i]));
            *wanted[i] = *got[i];
        }
        assert_int_equal(got[i]->count, TOKENS);
        assert_memory_equal(got[i]->ids, wanted[i]->ids, TOKENS * sizeof(uint32_t));
        if (i % 2)
            assert_memory_equal(got[i]->logprobs, wanted[i]->logprobs, TOKENS * sizeof(float));
    }
}

/* Outputs are those without a budget up to it; then the marker; then those of a prompt with all of that. */
static void check_outputs(struct fixture *f)
{
    for (uint32_t i = 0; i < JOBS;
         i += 4) { /* greedy ones: a sample depends on nothing but position and logits */
        struct job_spec spec = spec_of(i, false);
        uint32_t budget = BUDGET + i % 3, longer[PROMPT + TOKENS], count = spec.prompt_count + budget + 3;
        spec.sampling.frequency_penalty = 0;
        struct client *without = submit(f, &spec);
        wait_over(f, without);
        if (i % 3 != 1)
            assert_memory_equal(without->ids, wanted[i]->ids, budget * sizeof(uint32_t));
        for (uint32_t k = 0; k < 3; k++)
            assert_int_equal(wanted[i]->ids[budget + k], CLOSE + k);
        memcpy(longer, spec.prompt, spec.prompt_count * sizeof(uint32_t));
        memcpy(longer + spec.prompt_count, wanted[i]->ids, (budget + 3) * sizeof(uint32_t));
        spec = greedy(longer, count, TOKENS - budget - 3);
        struct client *after = submit(f, &spec);
        wait_over(f, after);
        if (i % 3 != 1)
            assert_memory_equal(after->ids, wanted[i]->ids + budget + 3, after->count * sizeof(uint32_t));
    }
}

TEST(tokens_are_the_same_alone_in_a_batch_with_drafts_and_after_preemption)
{
    struct fixture f;
    struct engine_numbers n;
    struct engine_opts o = test_engine_opts(DIR);
    o.prefix_cache_bytes = 4 << 20;
    test_engine_start(&f, DIR, &o);
    run_all(&f, true, false);
    check_outputs(&f);
    run_all(&f, false, true);
    test_engine_close(&f);
    o = test_engine_opts(DIR);
    o.drafting = (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = 3, .always = true};
    test_engine_start(&f, DIR, &o);
    run_all(&f, false, true);
    engine_numbers(f.engine, &n);
    assert_true(n.draft_tokens > 0);
    test_engine_close(&f);
    o = test_engine_opts(DIR);
    o.max_model_len = 256;
    o.kv_bytes_max = 14 * model_shape(o.model)->page_bytes;
    test_engine_start(&f, DIR, &o);
    run_all(&f, false, true);
    engine_numbers(f.engine, &n);
    assert_true(n.preemptions > 0);
    test_engine_close(&f);
    for (uint32_t i = 0; i < JOBS; i++)
        free(wanted[i]);
}

TEST(a_marker_that_ends_the_sequence_ends_it)
{
    struct fixture f;
    struct engine_opts o = test_engine_opts(DIR);
    test_engine_start(&f, DIR, &o);
    struct job_spec spec = spec_of(0, true);
    spec.sampling.stop_ids[0] = CLOSE + 1;
    spec.sampling.stop_count = 1;
    spec.sampling.min_tokens = 90;
    struct client *c = submit(&f, &spec);
    wait_over(&f, c);
    assert_int_equal(c->finish.reason, FINISH_STOP);
    assert_int_equal(c->finish.stop_token, CLOSE + 1);
    test_engine_close(&f);
}

/* ---- loops ---- */

enum { LOOP = 7, REPEATS = 9 };

/* A reply of one token: its reasoning loops, then its answer. */
static struct job_spec looping(bool ends_reasoning)
{
    static const struct logit_bias bias = {LOOP, 100};
    struct job_spec spec = greedy(prompt, PROMPT, TOKENS);
    spec.sampling.bias = &bias;
    spec.sampling.bias_count = 1;
    spec.speculative = true;
    spec.thinking = thinking(UINT32_MAX, true).limits;
    spec.repetition = (struct repetition_params){
        .pattern_min = 1, .pattern_max = 40, .count = REPEATS, .ends_reasoning = ends_reasoning};
    return spec;
}

static struct client *run_one(struct fixture *f, struct job_spec spec)
{
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    return c;
}

static void check_loops(struct fixture *f)
{
    struct client *c = run_one(f, looping(false));
    assert_int_equal(c->finish.reason, FINISH_REPETITION);
    assert_int_equal(c->count, REPEATS);
    assert_int_equal(c->finish.reasoning_loops, 0);
    c = run_one(f, looping(true));
    assert_int_equal(c->finish.reason, FINISH_REPETITION);
    assert_int_equal(c->finish.reasoning_loops, 1);
    assert_int_equal(c->count, 2 * REPEATS + 3);
    for (uint32_t i = 0; i < c->count; i++)
        assert_int_equal(c->ids[i], i >= REPEATS && i < REPEATS + 3 ? CLOSE + i - REPEATS : LOOP);
    /* Limits and ends of the request come first. */
    struct job_spec spec = looping(false);
    spec.max_tokens = REPEATS;
    assert_int_equal(run_one(f, spec)->finish.reason, FINISH_LENGTH);
    spec = looping(false);
    spec.sampling.min_tokens = 50;
    c = run_one(f, spec);
    assert_int_equal(c->finish.reason, FINISH_REPETITION);
    assert_int_equal(c->count, 50);
    spec.repetition.pattern_max = 0;
    assert_int_equal(run_one(f, spec)->finish.reason, FINISH_LENGTH);
    /* Without markers there is no reasoning to end. */
    spec = looping(true);
    spec.thinking.close_count = 0;
    assert_int_equal(run_one(f, spec)->count, REPEATS);
}

TEST(a_loop_ends_the_reasoning_or_the_reply_with_and_without_drafts)
{
    struct fixture f;
    struct engine_numbers n;
    struct engine_opts o = test_engine_opts(DIR);
    test_engine_start(&f, DIR, &o);
    check_loops(&f);
    test_engine_close(&f);
    o = test_engine_opts(DIR);
    o.drafting = (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = 3, .always = true};
    test_engine_start(&f, DIR, &o);
    check_loops(&f);
    engine_numbers(f.engine, &n);
    assert_true(n.draft_tokens > 0);
    test_engine_close(&f);
}

TEST_MAIN()
