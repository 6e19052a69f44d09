/* How far sequences draft, with made-up machines: what a step costs there and how often total_drafts are
 * right is known. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "spec/draft_length.h"

#include <string.h>

#define SEQS_MAX 16
#define DEPTH    4

/* A step's time: fixed, and per token; beyond `knee` tokens each costs `steep` more. Noise: a share; hiccup:
 * the chance of a step three times as long. */
struct machine {
    double base_ns, token_ns, knee, steep_ns, draft_ns, noise, hiccup;
};

struct world {
    struct machine m;
    struct draft_length b;
    struct rng rng;
    struct draft_length_hits hits[SEQS_MAX];
    double chance[SEQS_MAX]; /* chance of each draft of a sequence */
    bool total_drafts[SEQS_MAX], past[SEQS_MAX];
    uint32_t seqs;
    double tokens, ns;
    uint64_t drafted;
};

static double step_ns(const struct machine *m, uint32_t tokens)
{
    double steep = (double)tokens > m->knee ? ((double)tokens - m->knee) * m->steep_ns : 0;
    return m->base_ns + tokens * m->token_ns + steep;
}

static uint32_t draw_accepted(struct world *w, uint32_t seq, uint32_t drafts)
{
    uint32_t accepted = 0;
    while (accepted < drafts && rng_uniform(&w->rng) < w->chance[seq])
        accepted++;
    return accepted;
}

/* One step with these drafts; returns its time, drafting included. */
static double run_step(struct world *w, const uint32_t *drafts, bool measured)
{
    uint32_t total_drafts = 0, deepest = 0, drafting = 0;
    for (uint32_t i = 0; i < w->seqs; i++) {
        uint32_t accepted = draw_accepted(w, i, drafts[i]);
        total_drafts += drafts[i];
        drafting += drafts[i] > 0;
        deepest = MAX_OF(deepest, w->past[i] ? MIN_OF(drafts[i], 1u) : drafts[i]);
        w->tokens += 1 + accepted;
        if (measured)
            draft_length_count(&w->b, &w->hits[i], w->past[i], MIN_OF(accepted + 1, drafts[i]), accepted);
    }
    double ns = step_ns(&w->m, w->seqs + total_drafts) * (1 + w->m.noise * (rng_uniform(&w->rng) - 0.5));
    if (rng_uniform(&w->rng) < w->m.hiccup)
        ns *= 3;
    if (measured) {
        draft_length_measure_step(&w->b, w->seqs, total_drafts, (uint64_t)ns);
        if (deepest)
            draft_length_measure_draft(&w->b, drafting, deepest, (uint64_t)(deepest * w->m.draft_ns));
    }
    w->ns += ns + deepest * w->m.draft_ns;
    w->drafted += total_drafts;
    return ns;
}

static void choose(struct world *w, uint32_t *drafts)
{
    struct draft_length_seq seqs[SEQS_MAX];
    for (uint32_t i = 0; i < w->seqs; i++)
        seqs[i] = (struct draft_length_seq){
            .hits = &w->hits[i], .drafts_max = w->total_drafts[i] ? DEPTH : 0, .source = w->past[i]};
    draft_length_choose(&w->b, seqs, w->seqs, 32);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < w->seqs; i++) {
        assert_true(seqs[i].drafts <= seqs[i].drafts_max);
        sum += drafts[i] = seqs[i].drafts;
    }
    assert_true(sum <= 32);
}

/* Tokens per second of the policy over `steps` steps. */
static double run(struct world *w, uint32_t steps)
{
    uint32_t drafts[SEQS_MAX];
    w->tokens = w->ns = 0;
    w->drafted = 0;
    for (uint32_t i = 0; i < steps; i++) {
        choose(w, drafts);
        run_step(w, drafts, true);
    }
    return w->tokens / w->ns * 1e9;
}

/* Runs with one fixed depth for all drafting sequences, at any cost. */
static double run_fixed(const struct world *like, uint32_t depth, uint32_t steps)
{
    struct world w = *like;
    uint32_t drafts[SEQS_MAX];
    w.tokens = w.ns = 0;
    for (uint32_t i = 0; i < w.seqs; i++)
        drafts[i] = w.total_drafts[i] ? depth : 0;
    for (uint32_t i = 0; i < steps; i++)
        run_step(&w, drafts, false);
    return w.tokens / w.ns * 1e9;
}

static void open_world(struct world *w, const struct machine *m, uint32_t seqs, double chance, uint64_t seed)
{
    *w = (struct world){.m = *m, .seqs = seqs, .rng = {seed, 0}};
    for (uint32_t i = 0; i < seqs; i++) {
        w->chance[i] = chance;
        w->total_drafts[i] = true;
    }
}

/* Reads its weights once for up to 16 tokens. */
static const struct machine memory_bound = {1e6, 1e4, 16, 5e4, 5e4, 0.05, 0.005};
/* Each token costs as much as the next. */
static const struct machine compute_bound = {1e5, 1e6, 1000, 0, 1e5, 0.05, 0.005};

TEST(good_drafts_on_a_machine_that_has_room_are_made)
{
    struct world w;
    open_world(&w, &memory_bound, 1, 0.9, 1);
    double off = run_fixed(&w, 0, 2000), on = run_fixed(&w, DEPTH, 2000), got = run(&w, 2000);
    assert_true(on > 2.5 * off);
    assert_true(got > 0.97 * on);
}

TEST(where_each_token_costs_as_much_nobody_drafts)
{
    struct world w;
    for (uint32_t seqs = 1; seqs <= 16; seqs++) {
        open_world(&w, &compute_bound, seqs, 0.8, seqs);
        double off = run_fixed(&w, 0, 4000), got = run(&w, 4000);
        assert_true(got > 0.985 * off);
        assert_true((double)w.drafted < 0.1 * 4000 * seqs);
    }
}

TEST(rejected_draftes_are_given_up)
{
    struct world w;
    for (uint32_t seqs = 1; seqs <= 16; seqs += 5) {
        open_world(&w, &memory_bound, seqs, 0.02, seqs);
        run(&w, 200);
        double off = run_fixed(&w, 0, 4000), got = run(&w, 4000);
        assert_true(got > 0.985 * off);
    }
}

/* The first draft token costs a pass of the head, later ones none. */
TEST(drafts_from_the_past_go_as_far_as_they_pay)
{
    static const struct machine dear_head = {1e6, 1e4, 16, 5e4, 4e5, 0.05, 0.005};
    uint64_t drafted[2];
    for (int past = 0; past < 2; past++) {
        struct world w;
        open_world(&w, &dear_head, 1, 0.6, 5);
        w.past[0] = past;
        run(&w, 2000);
        run(&w, 2000);
        drafted[past] = w.drafted;
    }
    assert_true(drafted[0] > 1000 && drafted[0] < 3000); /* one each */
    assert_true(drafted[1] > 6000);
}

TEST(each_seq_by_its_own_luck)
{
    struct world w;
    uint32_t drafts[SEQS_MAX], lucky = 0, unlucky = 0;
    open_world(&w, &memory_bound, 4, 0.95, 3);
    w.chance[2] = w.chance[3] = 0.0;
    w.m.token_ns = 2e5;
    run(&w, 300);
    for (uint32_t i = 0; i < 100; i++) {
        choose(&w, drafts);
        run_step(&w, drafts, true);
        lucky += drafts[0] + drafts[1];
        unlucky += drafts[2] + drafts[3];
    }
    assert_true(lucky > 100 * 2 && unlucky < 20);
}

TEST(who_may_not_draft_does_not)
{
    struct world w;
    uint32_t drafts[SEQS_MAX];
    open_world(&w, &memory_bound, 3, 0.9, 4);
    w.total_drafts[1] = false;
    for (uint32_t i = 0; i < 500; i++) {
        choose(&w, drafts);
        assert_int_equal(drafts[1], 0);
        run_step(&w, drafts, true);
    }
    assert_true(w.drafted > 500);
}

TEST(what_changes_is_noticed)
{
    struct world w;
    open_world(&w, &memory_bound, 2, 0.02, 5);
    run(&w, 1000);
    /* The text becomes predictable. */
    w.chance[0] = w.chance[1] = 0.95;
    run(&w, 3000);
    double on = run_fixed(&w, DEPTH, 2000);
    assert_true(run(&w, 2000) > 0.95 * on);
    /* The machine is shared from now on. */
    w.m = compute_bound;
    run(&w, 1000);
    double off = run_fixed(&w, 0, 2000);
    assert_true(run(&w, 2000) > 0.985 * off);
    /* And alone again. */
    w.m = memory_bound;
    run(&w, 5000);
    assert_true(run(&w, 2000) > 0.95 * on);
}

TEST(batches_that_come_and_go_keep_what_was_learnt)
{
    struct world w;
    open_world(&w, &memory_bound, 16, 0.9, 6);
    for (uint32_t i = 0; i < 200; i++) {
        w.seqs = 1 + i % 16;
        run(&w, 20);
    }
    w.seqs = 1;
    assert_true(run(&w, 200) > 0.95 * run_fixed(&w, DEPTH, 2000));
}

/* Any machine, any luck: not slower than off by more than what probing may cost, and not far from the best
 * depth. */
PROPERTY(never_much_slower_than_off, seed)
{
    struct rng rng = {seed, 1};
    struct machine m = {.base_ns = 1e5 + rng_uniform(&rng) * 2e6,
                        .token_ns = rng_uniform(&rng) * 3e5,
                        .knee = 1 + 31 * rng_uniform(&rng),
                        .steep_ns = rng_uniform(&rng) * 3e5,
                        .draft_ns = rng_uniform(&rng) * 2e5,
                        .noise = 0.1 * rng_uniform(&rng),
                        .hiccup = 0.01 * rng_uniform(&rng)};
    struct world w;
    open_world(&w, &m, 1 + (uint32_t)rng_below(&rng, SEQS_MAX), rng_uniform(&rng), seed);
    run(&w, 500);
    double got = run(&w, 4000), off = run_fixed(&w, 0, 4000), best = off;
    for (uint32_t depth = 1; depth <= 2; depth++)
        best = MAX_OF(best, run_fixed(&w, depth, 4000));
    assert_true(got > 0.98 * off);
    assert_true(got > 0.93 * best);
}

TEST_MAIN()
