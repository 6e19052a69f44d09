/* The budget of steps, with made-up machines: what a step costs there is known. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "base/page_tokens.h"
#include "cache/page_pool.h"
#include "engine/budget.h"

#include <math.h>

#define MS 1000000.0

/* A step's cost in ms: fixed, per decoding sequence, per prompt token; noise is a share. */
struct machine {
    double fixed_ms, seq_ms, prompt_ms, noise;
};

/* 16 cores and 0.6 billion parameters; two cores and 2 billion; two cores and 0.6 billion in bf16; all in
 * cache. */
static const struct machine machines[] = {
    {8, 2.1, 0.94, 0.08}, {52, 12, 10.7, 0.08}, {42, 8.4, 3.7, 0.08}, {1, 0.3, 0.1, 0.08}};

static double true_ms(const struct machine *m, uint32_t seqs, uint32_t prompt)
{
    return m->fixed_ms + seqs * m->seq_ms + prompt * m->prompt_ms;
}

static double expected_ms(const struct budget *b, uint32_t seqs, uint32_t prompt)
{
    return (b->fixed_ns + seqs * b->seq_ns + prompt * b->prompt_ns) / MS;
}

static double step_ms(struct budget *b, const struct machine *m, struct rng *rng, uint32_t seqs,
                      uint32_t prompt)
{
    double ms = true_ms(m, seqs, prompt) * (1 + m->noise * (2 * rng_uniform(rng) - 1));
    budget_measure(b, seqs, prompt, (uint64_t)(ms * MS));
    return ms;
}

/* Begins like a server: a prompt in chunks, then its answer. */
static void begin(struct budget *b, const struct machine *m, struct rng *rng)
{
    *b = (struct budget){0};
    step_ms(b, m, rng, 0, 64);
    step_ms(b, m, rng, 0, 416);
    step_ms(b, m, rng, 0, 32);
    for (int i = 0; i < 50; i++)
        step_ms(b, m, rng, 1, 0);
}

TEST(two_pages_until_something_is_measured)
{
    struct budget b = {0};
    assert_int_equal(budget_tokens(&b, 1000000000, 0), 2 * PAGE_TOKENS);
    assert_int_equal(budget_tokens(&b, 1, 5), 5 + 2 * PAGE_TOKENS);
    assert_int_equal(budget_shared_ns(&b, 100, &(struct budget_load){1, 1}), 100);
}

TEST(prompts_get_whole_pages_the_nearest_count_and_at_least_one)
{
    struct budget b = {.fixed_ns = 8 * MS, .seq_ns = 2 * MS, .prompt_ns = 1 * MS};
    assert_int_equal(budget_tokens(&b, (uint64_t)(100 * MS), 0), 96);
    assert_int_equal(budget_tokens(&b, (uint64_t)(100 * MS), 6), 6 + 96);
    assert_int_equal(budget_tokens(&b, (uint64_t)(100 * MS), 7), 7 + 64);
    assert_int_equal(budget_tokens(&b, (uint64_t)(100 * MS), 16), 16 + 64);
    assert_int_equal(budget_tokens(&b, (uint64_t)(100 * MS), 64), 64 + 32);
    assert_int_equal(budget_tokens(&b, 1, 0), 32);
    assert_true(budget_tokens(&b, UINT64_MAX, 16) >= 1u << 29);
}

TEST(prompts_that_wait_behind_the_first_lengthen_a_step_by_half_at_most)
{
    struct budget b = {.fixed_ns = 8 * MS, .seq_ns = 2 * MS, .prompt_ns = 1 * MS};
    uint64_t step = (uint64_t)(100 * MS);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 1, .prompts = 0}), step);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 1, .prompts = 1}), step);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 0, .prompts = 1}), step);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 1, .prompts = 2}),
                     step * 5 / 4);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 0, .prompts = 4}),
                     step * 11 / 8);
    for (uint32_t prompts = 0; prompts < 5000; prompts += 7)
        for (uint32_t seqs = 0; seqs <= 16; seqs++)
            assert_true(budget_shared_ns(&b, step, &(struct budget_load){seqs, prompts}) <= step * 3 / 2);
}

TEST(seqs_that_take_a_step_by_themselves_leave_prompts_more_than_a_page)
{
    struct budget b = {.fixed_ns = 10 * MS, .seq_ns = 2 * MS, .prompt_ns = 1 * MS};
    uint64_t step = (uint64_t)(100 * MS);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 15, .prompts = 1}), step);
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 64, .prompts = 1}),
                     (uint64_t)(2.5 * 138 * MS));
    b = (struct budget){.fixed_ns = 60 * MS};
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 1, .prompts = 1}),
                     (uint64_t)(2.5 * 60 * MS));
    assert_int_equal(budget_shared_ns(&b, step, &(struct budget_load){.seq_tokens = 0, .prompts = 1}), step);
}

TEST(the_line_follows_any_machine)
{
    for (size_t i = 0; i < COUNT_OF(machines); i++) {
        const struct machine *m = &machines[i];
        struct rng rng = (struct rng){i + 1, 1};
        struct budget b;
        begin(&b, m, &rng);
        for (uint32_t seqs = 0; seqs <= 16; seqs++)
            for (uint32_t k = 0; k < 6; k++)
                step_ms(&b, m, &rng, seqs, 32 * (1 + (uint32_t)rng_below(&rng, 6)));
        for (uint32_t k = 0; k < 30; k++)
            step_ms(&b, m, &rng, 1 + (uint32_t)rng_below(&rng, 16), 0);
        for (uint32_t seqs = 0; seqs <= 16; seqs += 4) {
            assert_true(fabs(expected_ms(&b, seqs, 128) / true_ms(m, seqs, 128) - 1) < 0.15);
            if (seqs > 0)
                assert_true(fabs(expected_ms(&b, seqs, 0) / true_ms(m, seqs, 0) - 1) < 0.15);
        }
    }
}

TEST(what_one_seq_cost_is_not_expected_of_each_of_sixteen)
{
    const struct machine *m = &machines[0];
    struct rng rng = (struct rng){3, 1};
    struct budget b;
    begin(&b, m, &rng);
    uint32_t tokens = budget_tokens(&b, (uint64_t)(150 * MS), 16) - 16;
    double exact = (150 - true_ms(m, 16, 0)) / m->prompt_ms;
    assert_true(fabs(tokens - exact) <= PAGE_TOKENS);
}

TEST(a_strangers_work_moves_the_line_a_quarter_at_most)
{
    struct budget b = {.fixed_ns = 8 * MS, .seq_ns = 2 * MS, .prompt_ns = 1 * MS};
    budget_measure(&b, 4, 96, (uint64_t)(60000 * MS));
    assert_true(expected_ms(&b, 4, 96) < 1.25 * (8 + 8 + 96));
    for (int i = 0; i < 1000; i++)
        budget_measure(&b, 4, 96, 0);
    assert_true(b.fixed_ns > 0 && b.seq_ns > 0 && b.prompt_ns > 0);
}

/* ---- many clients at once ---- */

enum { CLIENTS = 16, PROMPT = 512, ANSWER = 48 };

struct crowd {
    uint32_t left[CLIENTS], answered[CLIENTS];
    double prompts_ms, longest_ms; /* until the last prompt is read; a step with decoding sequences */
};

static struct budget_load load_of(const struct crowd *c)
{
    struct budget_load load = {0};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        load.prompts += c->left[i] > 0;
        load.seq_tokens += c->left[i] == 0 && c->answered[i] < ANSWER;
    }
    return load;
}

/* One after another, in chunks of whole pages. */
static uint32_t read_prompts(struct crowd *c, uint32_t tokens)
{
    uint32_t given = 0;
    for (uint32_t i = 0; i < CLIENTS && given < tokens; i++) {
        uint32_t chunk = MIN_OF(c->left[i], tokens - given);
        c->left[i] -= chunk;
        given += chunk;
    }
    return given;
}

static void answer(struct crowd *c)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        c->answered[i] += c->left[i] == 0 && c->answered[i] < ANSWER;
}

TEST(sixteen_prompts_are_read_at_three_quarters_of_a_lone_ones_rate_and_no_gap_is_two_steps)
{
    const struct machine *m = &machines[0];
    struct rng rng = (struct rng){5, 1};
    struct crowd c = {0};
    struct budget b;
    begin(&b, m, &rng);
    for (uint32_t i = 0; i < CLIENTS; i++)
        c.left[i] = PROMPT;
    for (struct budget_load load; load = load_of(&c), load.prompts > 0;) {
        uint64_t target = budget_shared_ns(&b, (uint64_t)(100 * MS), &load);
        answer(&c);
        uint32_t tokens = read_prompts(&c, budget_tokens(&b, target, load.seq_tokens) - load.seq_tokens);
        double ms = step_ms(&b, m, &rng, load.seq_tokens, tokens);
        c.prompts_ms += ms;
        if (load.seq_tokens > 0)
            c.longest_ms = MAX_OF(c.longest_ms, ms);
    }
    double alone = PROMPT / true_ms(m, 0, PROMPT), together = CLIENTS * PROMPT / c.prompts_ms;
    assert_true(together > 0.75 * alone);
    assert_true(c.longest_ms < 200);
}

TEST_MAIN()
