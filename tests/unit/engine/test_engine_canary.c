/* The engine with the bundled model: its reference's answers, and stop strings in real text. */
#include "test_engine.h"
#include "base/buf.h"
#include "base/slice.h"
#include "engine/engine_numbers.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "sample/sampler_params.h"
#include "tokenizer/tokenizer.h"

#define PROMPT_MAX 2048

struct canary_case {
    uint32_t prompt[PROMPT_MAX], prompt_count, want[64], want_count;
};

static struct canary_case canary_cases[24];

static uint32_t load_cases(void)
{
    json_t *g = golden_load("canary-8bit"), *cases = json_object_get(g, "cases");
    uint32_t count = (uint32_t)json_array_size(cases);
    assert_int_equal(count, COUNT_OF(canary_cases));
    for (uint32_t i = 0; i < count; i++) {
        struct canary_case *c = &canary_cases[i];
        const json_t *j = json_array_get(cases, i);
        c->prompt_count = golden_ids(json_object_get(j, "prompt_ids"), c->prompt, PROMPT_MAX);
        c->want_count = golden_ids(json_object_get(j, "greedy_ids"), c->want, 64);
    }
    json_decref(g);
    return count;
}

static struct job_spec canary_spec(const struct canary_case *c)
{
    struct job_spec s = greedy(c->prompt, c->prompt_count, 64);
    s.sampling.stop_ids[0] = 8180;
    s.sampling.stop_ids[1] = 8178;
    s.sampling.stop_count = 2;
    return s;
}

static void expect_golden(const struct client *c, const struct canary_case *want)
{
    expect_tokens(c, want->want, want->want_count);
    assert_int_equal(c->finish.reason, FINISH_STOP);
    assert_int_equal(c->finish.stop_token, 8180);
    assert_false(c->finish.stopped_by_string);
}

TEST(the_bundled_model_answers_as_its_reference_eight_at_a_time)
{
    struct fixture f;
    struct engine_opts o = test_engine_opts(CANARY);
    uint32_t count = load_cases();
    test_engine_start(&f, CANARY, &o);
    for (uint32_t i = 0; i < count; i++) {
        struct job_spec s = canary_spec(&canary_cases[i]);
        submit(&f, &s);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < count; i++)
        expect_golden(f.clients[i], &canary_cases[i]);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    assert_int_equal(n.finished[FINISH_STOP], count);
    assert_int_equal(n.preemptions, 0);
    assert_true(n.steps > 24 && n.completion_tokens > 24 * 5 && n.busy_ns > 0);
    test_engine_close(&f);
}

/* Eight rows have so many logits that workers take part in their samples; one has not. */
TEST(sampled_tokens_are_the_same_alone_and_eight_at_a_time)
{
    enum { ROWS = 8, TOKENS = 12 };
    static const float temperatures[] = {1, 0.7f, 0, 1.5f}, top_ps[] = {1, 0.9f};
    struct fixture f;
    struct engine_opts o = test_engine_opts(CANARY);
    struct job_spec specs[ROWS];
    load_cases();
    test_engine_start(&f, CANARY, &o);
    for (uint32_t i = 0; i < ROWS; i++) {
        specs[i] = greedy(canary_cases[i].prompt, canary_cases[i].prompt_count, TOKENS);
        specs[i].sampling.temperature = temperatures[i % COUNT_OF(temperatures)];
        specs[i].sampling.top_p = top_ps[i / 4];
        specs[i].sampling.top_k = i == 7 ? 4 : 0;
        specs[i].sampling.seed = i;
        submit(&f, &specs[i]);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < ROWS; i++) {
        struct client *alone = submit(&f, &specs[i]);
        wait_over(&f, alone);
        expect_tokens(f.clients[i], alone->ids, alone->count);
    }
    test_engine_close(&f);
}

/* A device samples. An id that logit_bias names twice makes it give whole rows, and changes no sample where
 * nothing is added. The CPU gives whole rows always. */
TEST(samples_of_the_device_are_those_from_whole_rows)
{
    enum { ROWS = 10, TOKENS = 16 };
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } samples[ROWS] = {{0, 1, 0, 0},   {0.7f, 0.95f, 0, 20}, {1, 0.9f, 0, 0},  {1.5f, 1, 0.02f, 0},
                       {2, 1, 0, 700}, {2, 0.9999f, 0, 0},   {1, 1, 1e-9f, 0}, {2, 0.99f, 0.1f, 0},
                       {1, 1, 0, 0},   {2, 1, 0, 0}};
    static const struct logit_bias twice[] = {{5, 0}, {5, 0}};
    struct fixture f;
    struct engine_opts o = test_engine_opts(CANARY);
    struct job_spec specs[ROWS];
    if (!test_device_is_fake())
        skip();
    load_cases();
    test_engine_start(&f, CANARY, &o);
    for (uint32_t i = 0; i < ROWS; i++) {
        specs[i] = greedy(canary_cases[i].prompt, canary_cases[i].prompt_count, TOKENS);
        specs[i].sampling.temperature = samples[i].temperature;
        specs[i].sampling.top_p = samples[i].top_p;
        specs[i].sampling.top_k = samples[i].top_k;
        specs[i].sampling.min_p = samples[i].min_p;
        specs[i].sampling.presence_penalty = i % 3 == 1 ? 1.5f : 0;
        specs[i].sampling.repetition_penalty = i % 4 == 1 ? 0.9f : 1;
        specs[i].sampling.logprobs = i % 2;
        specs[i].sampling.top_logprobs = i % 2 * 3;
        specs[i].sampling.seed = i;
        submit(&f, &specs[i]);
    }
    wait_all(&f);
    struct fake_numbers n = fake_device_numbers(test_device);
    assert_true(n.sampled >= ROWS * TOKENS && n.rows > 0 && n.rows < n.sampled / 8);
    for (uint32_t i = 0; i < ROWS; i++) {
        specs[i].sampling.bias = twice;
        specs[i].sampling.bias_count = 2;
        struct client *whole = submit(&f, &specs[i]);
        wait_over(&f, whole);
        expect_tokens(f.clients[i], whole->ids, whole->count);
    }
    assert_true(fake_device_numbers(test_device).sampled == n.sampled);
    test_engine_close(&f);
}

/* ---- stop strings ---- */

struct stop_case {
    const char *stop;
    const char *text; /* the rest of "accessdb is in section 8." */
    uint32_t tokens;  /* sampled; 0: it is not found */
};

static void run_stop(struct fixture *f, const struct stop_case *c)
{
    struct job_spec spec = canary_spec(&canary_cases[1]);
    struct slice stops[] = {SLICE("never in it"), slice_of(c->stop)};
    struct buf text;
    spec.stops = stops;
    spec.stop_count = 2;
    struct client *got = submit(f, &spec);
    wait_over(f, got);
    if (c->tokens == 0) {
        expect_golden(got, &canary_cases[1]);
        return;
    }
    expect_tokens(got, canary_cases[1].want, c->tokens);
    assert_int_equal(got->finish.reason, FINISH_STOP);
    assert_true(got->finish.stopped_by_string);
    assert_int_equal(got->finish.stop_index, 1);
    assert_int_equal(got->finish.text_bytes, strlen(c->text));
    buf_init(&text, 4096, NULL);
    assert_int_equal(tokenizer_decode(f->m->tokenizer, got->ids, got->count, true, &text), 0);
    assert_true(slice_starts(buf_slice(&text), slice_of(c->text)));
    buf_done(&text);
}

TEST(stop_strings_end_where_they_begin)
{
    static const struct stop_case cases[] = {
        {"section 8", "accessdb is in ", 0},
        {"ccess", "a", 0},
        {" in section", "accessdb is", 0},
        {".", "accessdb is in section 8", 0},
        {"section 9", "", 0},
        {"8. And", "", 0},
        {"<|im_end|>", "", 0},
    };
    struct fixture f;
    struct engine_opts o = test_engine_opts(CANARY);
    load_cases();
    test_engine_start(&f, CANARY, &o);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct stop_case c = cases[i];
        struct buf text;
        buf_init(&text, 4096, NULL);
        /* Enough tokens for the string to appear. */
        const struct canary_case *g = &canary_cases[1];
        for (uint32_t n = 1; c.tokens == 0 && n < g->want_count; n++) {
            buf_clear(&text);
            assert_int_equal(tokenizer_decode(f.m->tokenizer, g->want, n, true, &text), 0);
            if (slice_find(buf_slice(&text), slice_of(c.stop), 0) != SIZE_MAX)
                c.tokens = n;
        }
        buf_done(&text);
        assert_int_equal(c.tokens > 0, c.text[0] != 0);
        run_stop(&f, &c);
    }
    test_engine_close(&f);
}

TEST(min_tokens_come_before_a_stop_string)
{
    struct fixture f;
    struct engine_opts o = test_engine_opts(CANARY);
    load_cases();
    test_engine_start(&f, CANARY, &o);
    struct job_spec spec = canary_spec(&canary_cases[1]);
    struct slice stop = SLICE(" ");
    spec.stops = &stop;
    spec.stop_count = 1;
    struct client *early = submit(&f, &spec);
    spec.sampling.min_tokens = 5;
    struct client *late = submit(&f, &spec);
    wait_all(&f);
    assert_true(early->count < 5 && late->count > 5);
    assert_int_equal(early->finish.text_bytes, strlen("accessdb"));
    test_engine_close(&f);
}

TEST_MAIN()
