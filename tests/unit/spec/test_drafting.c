/* Drafts of sequences without a model: the head is a function that knows what to draft. */
#include "test.h"
#include "test_rng.h"

#include "base/check.h"
#include "spec/drafting.h"
#include "spec/ngram.h"

#include <errno.h>
#include <string.h>

#define SEQS   3
#define TOKENS 64

struct fixture {
    struct arena *arena;
    struct drafting g;
    struct drafting_seq seqs[SEQS];
    uint32_t tokens[SEQS][TOKENS], drafts[SEQS];
    uint32_t known;
    /* The head. */
    uint32_t first; /* its first draft token; the next ones count up */
    uint32_t passes[SEQS], calls;
    int error;
};

static int head(void *arg, const struct drafting_row *rows, uint32_t count)
{
    struct fixture *f = arg;
    f->calls++;
    for (uint32_t i = 0; i < count; i++) {
        f->passes[i] = rows[i].passes;
        for (uint32_t k = 0; k < rows[i].passes; k++)
            rows[i].seq->tokens[rows[i].from + 1 + k] = f->first + k;
    }
    return f->error;
}

/* Every sequence repeats 1 2 3 4 5 6 7 8: the n-gram drafter continues it. */
static void setup(struct fixture *f, struct drafting_opts o, uint32_t drafts_max)
{
    *f = (struct fixture){.known = 20, .first = 5};
    size_t bytes = drafting_arena_bytes(SEQS) + SEQS * ngram_bytes(TOKENS) + 4096;
    struct drafting_port port = {.head = head, .arg = f};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes}, &f->arena), 0);
    assert_int_equal(drafting_init(&f->g, f->arena, &o, &port, SEQS, drafts_max), 0);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct drafting_seq *s = &f->seqs[i];
        *s = (struct drafting_seq){.speculative = true, .tokens = f->tokens[i]};
        for (uint32_t t = 0; t < f->known; t++)
            s->tokens[t] = 1 + t % 8;
        if (o.by == DRAFTING_MTP && !o.past)
            continue;
        assert_int_equal(ngram_create(f->arena, TOKENS, &s->ngram), 0);
        ngram_see(s->ngram, s->tokens, f->known);
    }
}

/* Before the plan, with that much room for each of the first `count` sequences. */
static uint32_t choose(struct fixture *f, uint32_t count, uint32_t room)
{
    drafting_begin(&f->g);
    for (uint32_t i = 0; i < count; i++)
        drafting_add(&f->g, &f->seqs[i], f->known, room, &f->drafts[i]);
    return drafting_choose(&f->g);
}

/* The plan keeps all drafts. */
static int draft(struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        f->g.rows[i] = (struct drafting_row){&f->seqs[i], f->known - 1, .drafts = f->drafts[i]};
    return drafting_draft(&f->g, count);
}

TEST(ngram_drafts_stand_after_the_known_tokens)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = 4, .always = true}, 32);
    f.seqs[1].speculative = false;
    assert_int_equal(choose(&f, SEQS, 3), 6);
    assert_true(f.drafts[0] == 3 && f.drafts[1] == 0 && f.drafts[2] == 3);
    assert_int_equal(draft(&f, SEQS), 0);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(f.tokens[0][f.known + k], 1 + (f.known + k) % 8);
    assert_true(f.g.planned == 6 && f.g.computed == 6 && f.calls == 0);
    assert_int_equal(choose(&f, SEQS, 0), 0);
    arena_free(f.arena);
}

TEST(room_options_and_the_step_limit_drafts)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = 4, .always = true}, 5);
    assert_int_equal(choose(&f, 1, 100), 4);
    assert_int_equal(choose(&f, 1, 2), 2);
    assert_int_equal(choose(&f, SEQS, 2), 5);
    arena_free(f.arena);
}

static uint32_t head_samples(const struct fixture *f)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < DRAFT_LENGTH_SEQ_CLASSES; i++)
        sum += f->g.draft_length.passes[i].samples;
    return sum;
}

TEST(the_head_drafts_after_the_plan)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MTP, .drafts_max = 3, .always = true}, 32);
    assert_int_equal(choose(&f, 2, 8), 6);
    assert_int_equal(f.calls, 0);
    f.drafts[1] = 1; /* the plan has less room */
    assert_int_equal(draft(&f, 2), 0);
    assert_true(f.calls == 1 && f.passes[0] == 3 && f.passes[1] == 1);
    assert_true(f.tokens[0][f.known] == 5 && f.tokens[0][f.known + 2] == 7);
    assert_true(f.g.planned == 4 && f.g.computed == 4);
    assert_int_equal(head_samples(&f), 1);
    f.error = -EIO;
    assert_int_equal(draft(&f, 2), -EIO);
    assert_int_equal(head_samples(&f), 1);
    f.drafts[0] = f.drafts[1] = 0;
    assert_int_equal(draft(&f, 2), 0);
    assert_int_equal(f.calls, 2);
    arena_free(f.arena);
}

TEST(ngram_tokens_after_the_heads_stay_where_both_agree)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MTP, .drafts_max = 4, .always = true, .past = true}, 32);
    assert_int_equal(choose(&f, 2, 4), 8);
    assert_true(f.seqs[0].source == DRAFT_PAST && f.seqs[0].past_first == 5);
    f.seqs[1].past_first = 9; /* n-gram drafted another first token */
    assert_int_equal(draft(&f, 2), 0);
    assert_true(f.passes[0] == 1 && f.passes[1] == 1);
    assert_int_equal(f.g.rows[0].computed, 4);
    assert_int_equal(f.g.rows[1].computed, 1);
    assert_true(f.g.planned == 8 && f.g.computed == 5);
    assert_int_equal(f.tokens[0][f.known + 3], 8);
    arena_free(f.arena);
}

static bool is_tried(const struct draft_length_hits *h, uint32_t tried, uint32_t accepted)
{
    uint32_t t = 0, r = 0;
    for (uint32_t k = 0; k < DRAFT_LENGTH_DEPTH_MAX; k++) {
        t += h->tried[k] > 0.5f;
        r += h->accepted[k] > 0.5f;
    }
    return t == tried && r == accepted;
}

TEST(tokens_after_a_rejected_one_and_after_an_end_are_not_tried)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MTP, .drafts_max = 4, .always = true}, 32);
    choose(&f, SEQS, 4);
    assert_int_equal(draft(&f, SEQS), 0);
    drafting_count(&f.g, 0, 4, 1, false, true);
    drafting_count(&f.g, 1, 4, 2, true, true);
    drafting_count(&f.g, 2, 4, 4, false, false);
    assert_true(is_tried(&f.seqs[0].hits[DRAFT_DRAFTER], 2, 1));
    assert_true(is_tried(&f.seqs[1].hits[DRAFT_DRAFTER], 2, 2));
    assert_true(is_tried(&f.seqs[2].hits[DRAFT_DRAFTER], 0, 0));
    assert_true(f.g.now.drafts == 3 && f.g.now.draft_tokens == 12 && f.g.now.accepted_tokens == 7);
    assert_true(f.g.now.accepted_at[0] == 3 && f.g.now.accepted_at[1] == 2 && f.g.now.accepted_at[3] == 1);
    assert_true(f.seqs[0].drafted_tokens == 4 && f.seqs[0].accepted_tokens == 1);
    arena_free(f.arena);
}

TEST(only_steps_without_prompts_are_measured)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MTP, .drafts_max = 4}, 32);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(choose(&f, 1, 4), 0); /* the cost of a plain step is unknown */
        f.drafts[0] = 0;
        assert_int_equal(draft(&f, 1), 0);
        drafting_measure(&f.g, 1 + 32, 1, 1000);
        assert_int_equal(f.g.draft_length.steps, i);
        drafting_measure(&f.g, 1, 1, 1000);
        assert_int_equal(f.g.draft_length.steps, i + 1);
    }
    assert_true(choose(&f, 1, 4) > 0);
    arena_free(f.arena);
}

/* ---- a draft model that reads later ---- */

TEST(a_sequence_that_lags_has_no_drafts_and_is_wanted)
{
    struct fixture f;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MODEL, .drafts_max = 4, .always = true}, 32);
    f.seqs[1].lags = true;
    assert_int_equal(choose(&f, SEQS, 3), 6);
    assert_true(f.drafts[0] == 3 && f.drafts[1] == 0 && f.drafts[2] == 3);
    assert_true(!f.seqs[0].wanted && f.seqs[1].wanted && !f.seqs[1].trial);
    assert_int_equal(draft(&f, SEQS), 0);
    assert_true(f.calls == 1 && f.passes[0] == 3 && f.passes[1] == 0 && f.passes[2] == 3);
    /* Tokens that a grammar forces need no draft model. */
    f.seqs[1].forced = 2;
    assert_int_equal(choose(&f, SEQS, 3), 8);
    assert_false(f.seqs[1].wanted);
    f.seqs[1].forced = 0;
    f.seqs[1].lags = false;
    assert_int_equal(choose(&f, SEQS, 3), 9);
    assert_false(f.seqs[1].wanted);
    arena_free(f.arena);
}

#define STEP_NS     1000000.0
#define PROMPT      2000
#define READ_TOKENS 64 /* beside a step, at most */
#define READ_NS     20000.0
#define STEPS       20000

/* Sequences with prompts come and go. A draft token costs `token_ns`, and is accepted with that chance.
 * Returns the speed relative to plain decoding. */
static double run_reading(double chance, double token_ns, uint32_t answer_steps)
{
    struct fixture f;
    struct rng rng = {7, 0};
    uint32_t unread[SEQS];
    double ns = 0, tokens = 0;
    setup(&f, (struct drafting_opts){.by = DRAFTING_MODEL, .drafts_max = 4}, 32);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < SEQS; i++) {
            if ((step + i * answer_steps / SEQS) % answer_steps == 0 || step == 0) {
                memset(f.seqs[i].hits, 0, sizeof(f.seqs[i].hits));
                f.seqs[i].trial = false;
                unread[i] = PROMPT;
            }
            f.seqs[i].lags = unread[i] > 32;
            unread[i]++;
        }
        choose(&f, SEQS, 4);
        for (uint32_t i = 0; i < SEQS; i++) {
            if (!f.seqs[i].wanted)
                continue;
            uint32_t read = MIN_OF(unread[i], (uint32_t)READ_TOKENS);
            unread[i] -= read;
            drafting_caught_up(&f.g, f.seqs[i].trial, (uint64_t)(read * READ_NS));
            ns += read * READ_NS;
        }
        assert_int_equal(draft(&f, SEQS), 0);
        double step_ns = STEP_NS + f.g.computed * token_ns;
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t accepted = 0;
            while (accepted < f.drafts[i] && rng_uniform(&rng) < chance)
                accepted++;
            if (f.drafts[i] > 0)
                unread[i] = 1;
            tokens += 1 + accepted;
            drafting_count(&f.g, i, f.drafts[i], accepted, false, true);
        }
        drafting_measure(&f.g, SEQS + f.g.planned, SEQS, (uint64_t)step_ns);
        ns += step_ns;
    }
    arena_free(f.arena);
    return tokens / SEQS / (ns / STEP_NS);
}

TEST(reading_prompts_for_drafts_that_lose_costs_next_to_nothing)
{
    assert_true(run_reading(0.05, STEP_NS / 3, 300) > 0.98);
    assert_true(run_reading(0.4, STEP_NS / 2, 300) > 0.98);
    /* Drafts would be right, but answers are too short for the prompts. */
    assert_true(run_reading(0.95, STEP_NS / 30, 20) > 0.98);
    assert_true(run_reading(0.95, STEP_NS / 30, 40) > 0.98);
}

TEST(prompts_are_read_for_drafts_that_gain)
{
    assert_true(run_reading(0.95, STEP_NS / 30, 300) > 1.5);
}

TEST_MAIN()
