/* Rows that are made ready block by block, against sampler_sample(); and the masks against id by id. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "compute/row_sample.h"
#include "sample/mask.h"
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB_MAX (24 * ROW_SAMPLE_BLOCK + 100)
#define BLOCKS    DIV_UP(VOCAB_MAX, ROW_SAMPLE_BLOCK)
#define WORDS     (VOCAB_MAX / 64 + 1)

struct row {
    struct rng rng;
    float logits[VOCAB_MAX], other[VOCAB_MAX];
    uint64_t valid[WORDS], allowed[WORDS];
};

static struct row *row_of(uint64_t seed)
{
    struct row *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->rng = (struct rng){seed, 0};
    return r;
}

/* Words of all bits, of none, and of some. */
static void fill_bits(struct row *r, uint64_t *bits)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t kind = rng_below(&r->rng, 4);
        uint64_t some = rng_next(&r->rng);
        bits[i] = kind == 0 ? 0 : kind == 1 ? ~(uint64_t)0 : some;
    }
}

static void fill(struct row *r)
{
    for (uint32_t i = 0; i < VOCAB_MAX; i++)
        r->logits[i] = (float)(rng_uniform(&r->rng) * 30 - 15);
    for (uint32_t i = 0; i < 20; i++)
        r->logits[rng_below(&r->rng, VOCAB_MAX)] = i % 4 == 0 ? NAN : i % 4 == 1 ? -INFINITY : 14.5f;
    for (uint32_t i = 0; i < 6; i++) /* a block's largest, also elsewhere */
        r->logits[rng_below(&r->rng, VOCAB_MAX)] = r->logits[rng_below(&r->rng, VOCAB_MAX)];
    fill_bits(r, r->valid);
    fill_bits(r, r->allowed);
    memcpy(r->other, r->logits, sizeof(r->other));
}

TEST(masks_64_ids_at_a_time_are_masks_id_by_id)
{
    struct row *r = row_of(1);
    for (int i = 0; i < 300 && __builtin_cpu_supports("avx2"); i++) {
        uint32_t count = i < 140 ? (uint32_t)i : (uint32_t)rng_below(&r->rng, VOCAB_MAX) + 1;
        const uint64_t *valid = i % 3 ? r->valid : NULL, *allowed = i % 5 ? r->allowed : NULL;
        fill(r);
        if (i % 7 == 0)
            memset(r->valid, 0, sizeof(r->valid));
        assert_true(mask_most_plain(r->logits, count, valid, allowed) ==
                    mask_most_avx2(r->logits, count, valid, allowed));
        assert_memory_equal(r->logits, r->other, sizeof(r->other));
        float seen = mask_most_avx2(r->logits, count, valid, allowed);
        float most = mask_ids_plain(r->logits, count, valid, allowed);
        float fast = mask_ids_avx2(r->other, count, valid, allowed);
        assert_true(most == fast && most == seen);
        assert_memory_equal(r->logits, r->other, count * sizeof(float));
        for (uint32_t k = 0; k < VOCAB_MAX; k++)
            assert_true(k >= count || !isnan(r->other[k]));
    }
    free(r);
}

/* A row's blocks, ready and perhaps weighed. */
struct known {
    float most[BLOCKS];
    double weights[BLOCKS];
    uint32_t bins[SAMPLER_BINS];
    struct sampler_blocks blocks;
};

static void know(struct known *k, const struct sampler *s, const struct sampler_row *row, struct rng *rng)
{
    uint32_t count = DIV_UP(row->vocab, ROW_SAMPLE_BLOCK);
    *k = (struct known){.blocks = {.most = k->most, .weights = k->weights, .bins = k->bins}};
    for (uint32_t i = 0; i < count; i++)
        k->most[i] = sampler_ready(s, row, i);
    k->blocks.weighed = sampler_weighs(s, row->allowed) && rng_below(rng, 8) > 0;
    for (uint32_t from = 0, until; k->blocks.weighed && from < count; from = until) {
        uint32_t some = 1 + (uint32_t)rng_below(rng, 9); /* MIN_OF takes its arguments twice */
        until = MIN_OF(count, from + some);
        sampler_weigh(s, row, &k->blocks, from, until);
    }
}

static void random_params(struct rng *rng, struct sampler_params *p)
{
    sampler_params_default(p);
    /* A high one makes equals of logits that differ, a low one leaves few candidates. */
    static const float temperatures[] = {0, 0.8f, 1e-3f, 0.05f, 3e7f};
    static const uint32_t top_ks[] = {0, 0, 0, 1, 5, 20, 24, 25, 26, 200};
    p->temperature = temperatures[rng_below(rng, COUNT_OF(temperatures))];
    p->top_k = top_ks[rng_below(rng, COUNT_OF(top_ks))];
    p->top_p = rng_below(rng, 2) ? 1.0f : 0.9f;
    p->min_p = rng_below(rng, 4) ? 0 : 1e-3f;
    p->seed = rng_below(rng, 1000);
    p->logprobs = rng_below(rng, 3) == 0;
    p->top_logprobs = p->logprobs ? 4 : 0;
    p->repetition_penalty = rng_below(rng, 4) ? 1.0f : 1.3f;
    p->stop_count = 1;
    p->stop_ids[0] = (uint32_t)rng_below(rng, VOCAB_MAX);
    p->min_tokens = rng_below(rng, 4) ? 0 : 4;
}

static void assert_same(const struct sampled *a, const struct sampled *b)
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->none, b->none);
    assert_int_equal(a->stop, b->stop);
    assert_int_equal(a->top_count, b->top_count);
    assert_memory_equal(a->top, b->top, a->top_count * sizeof(a->top[0]));
}

TEST(rows_that_are_ready_give_the_same_tokens)
{
    struct row *r = row_of(2);
    uint32_t weighed = 0;
    struct arena *a;
    struct sampler_scratch *scratch;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    size_t mark = arena_mark(a);
    for (int i = 0; i < 400; i++) {
        struct sampler_params p;
        struct sampler *s;
        struct sampled whole = {0}, ready = {0};
        struct known known;
        uint32_t vocab = i % 4 == 0 ? 2 * ROW_SAMPLE_BLOCK : VOCAB_MAX;
        random_params(&r->rng, &p);
        p.stop_ids[0] %= vocab;
        assert_int_equal(sampler_create(a, &p, 64, &s), 0);
        fill(r);
        for (uint32_t k = 0; k < WORDS; k++) /* the caller allows a valid one */
            r->valid[k] |= r->allowed[k];
        const uint64_t *allowed = i % 2 ? r->allowed : NULL;
        for (uint32_t k = 0; k < 10; k++)
            sampler_see_output(s, (uint32_t)rng_below(&r->rng, vocab));
        sampler_allow(s, allowed);
        const struct sampler_row row = {r->other, vocab, r->valid, allowed};
        know(&known, s, &row, &r->rng);
        weighed += known.blocks.weighed;
        sampler_sample(s, scratch, r->logits, vocab, r->valid, 9, 2, &whole);
        sampler_sample_ready(s, scratch, &row, &known.blocks, 9, 2, &ready);
        assert_same(&whole, &ready);
        arena_rewind(a, mark);
    }
    assert_true(weighed > 10);
    arena_free(a);
    free(r);
}

/* Samples at many positions, from a row that is not edited. */
static void assert_weighed(struct row *r, struct sampler_scratch *scratch, struct arena *a,
                           const struct sampler_params *p, uint32_t vocab, const uint64_t *allowed)
{
    struct known known;
    struct sampler *s;
    const struct sampler_row row = {r->other, vocab, r->valid, allowed};
    memcpy(r->other, r->logits, sizeof(r->other));
    assert_int_equal(sampler_create(a, p, 64, &s), 0);
    sampler_allow(s, allowed);
    assert_true(sampler_weighs(s, allowed));
    do
        know(&known, s, &row, &r->rng);
    while (!known.blocks.weighed);
    for (uint32_t position = 0; position < 60; position++) {
        struct sampled whole = {0}, ready = {0};
        sampler_sample(s, scratch, r->logits, vocab, r->valid, position, 2, &whole);
        sampler_sample_ready(s, scratch, &row, &known.blocks, position, 2, &ready);
        assert_same(&whole, &ready);
    }
}

TEST(rows_that_are_weighed_give_the_same_tokens_at_every_position)
{
    struct row *r = row_of(5);
    struct arena *a;
    struct sampler_scratch *scratch;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    size_t mark = arena_mark(a);
    for (int i = 0; i < 60; i++) {
        struct sampler_params p;
        sampler_params_default(&p);
        p.temperature = i % 3 ? 1 : 0.3f;
        p.top_p = i % 2 ? 1 : 0.2f + 0.79f * (float)rng_uniform(&r->rng);
        p.min_p = i % 5 ? 0 : 0.05f;
        p.seed = (uint64_t)i;
        fill(r);
        for (uint32_t k = 0; k < VOCAB_MAX; k++) /* from nearly flat to steep */
            r->logits[k] *= (float)(i % 7 + 1) * 0.15f;
        for (uint32_t k = 0; k < WORDS; k++)
            r->valid[k] |= r->allowed[k];
        assert_weighed(r, scratch, a, &p, i % 4 ? VOCAB_MAX : 2 * ROW_SAMPLE_BLOCK,
                       i % 8 < 3 ? r->allowed : NULL);
        arena_rewind(a, mark);
    }
    arena_free(a);
    free(r);
}

/* Bins count their candidates, whose weights differ: those up to the bin that seems to do have less. */
TEST(a_bin_that_promises_too_much_loses_no_token)
{
    struct row *r = row_of(6);
    struct arena *a;
    struct sampler_scratch *scratch;
    struct sampler_params p;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    memset(r->valid, 0xff, sizeof(r->valid));
    for (uint32_t k = 0; k < VOCAB_MAX; k++)
        r->logits[k] = k % 50 ? -40.0f : k % 100 ? -0.0624f : -0.124f;
    r->logits[0] = 0;
    for (int i = 0; i < 40; i++) {
        size_t mark = arena_mark(a);
        sampler_params_default(&p);
        p.top_p = 0.50f + 0.001f * (float)i;
        p.seed = (uint64_t)i;
        assert_weighed(r, scratch, a, &p, VOCAB_MAX, NULL);
        arena_rewind(a, mark);
    }
    arena_free(a);
    free(r);
}

/* With the mask written into the row, and beside it. */
TEST(a_row_whose_allowed_logits_have_no_weight_says_so)
{
    static const float logits[] = {NAN, -INFINITY};
    struct row *r = row_of(4);
    struct arena *a;
    struct sampler_scratch *scratch;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    r->allowed[3] = 0xf0;
    for (int i = 0; i < 4; i++) {
        struct sampler_params p;
        struct sampler *s;
        struct sampled whole, ready;
        struct known known;
        const struct sampler_row row = {r->other, VOCAB_MAX, NULL, r->allowed};
        sampler_params_default(&p);
        p.temperature = i < 2 ? 0.0f : 1.0f;
        assert_int_equal(sampler_create(a, &p, 64, &s), 0);
        for (uint32_t k = 0; k < VOCAB_MAX; k++)
            r->logits[k] = r->other[k] = k / 4 == 49 ? logits[i % 2] : 2;
        sampler_allow(s, r->allowed);
        know(&known, s, &row, &r->rng);
        sampler_sample(s, scratch, r->logits, VOCAB_MAX, NULL, 9, 2, &whole);
        sampler_sample_ready(s, scratch, &row, &known.blocks, 9, 2, &ready);
        assert_same(&whole, &ready);
        assert_true(whole.none);
    }
    arena_free(a);
    free(r);
}

static struct sampled sample_ready(struct row *r, struct sampler_scratch *scratch, struct arena *a,
                                   const struct sampler_params *p, const uint64_t *allowed, uint32_t position)
{
    struct known known;
    struct sampler *s;
    struct sampled whole = {0}, ready = {0};
    const struct sampler_row row = {r->other, VOCAB_MAX, NULL, allowed};
    memcpy(r->other, r->logits, sizeof(r->other));
    assert_int_equal(sampler_create(a, p, 64, &s), 0);
    sampler_allow(s, allowed);
    know(&known, s, &row, &r->rng);
    sampler_sample_ready(s, scratch, &row, &known.blocks, position, 2, &ready);
    memcpy(r->other, r->logits, sizeof(r->other));
    sampler_sample(s, scratch, r->other, VOCAB_MAX, NULL, position, 2, &whole);
    assert_same(&whole, &ready);
    return ready;
}

/* One candidate in each block, so that the blocks of the best top_k have no others. */
TEST(blocks_without_any_of_the_best_are_known_to_have_candidates)
{
    struct row *r = row_of(8);
    struct arena *a;
    struct sampler_scratch *scratch;
    struct sampler_params p;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    for (uint32_t k = 0; k < VOCAB_MAX; k++)
        r->logits[k] =
            k % ROW_SAMPLE_BLOCK == 5 ? 10 + 0.02f * (float)(k / ROW_SAMPLE_BLOCK * 7 % 25) : -1000;
    sampler_params_default(&p);
    for (uint32_t position = 0; position < 60; position++) {
        size_t mark = arena_mark(a);
        p.top_k = 2 + position % 5;
        assert_true(sample_ready(r, scratch, a, &p, NULL, position).id % ROW_SAMPLE_BLOCK == 5);
        arena_rewind(a, mark);
    }
    arena_free(a);
    free(r);
}

/* A mask that is not written into the row: the largest logit is also one of an id that it leaves out. */
TEST(the_best_of_equals_is_one_that_may_be_sampled)
{
    struct row *r = row_of(9);
    struct arena *a;
    struct sampler_scratch *scratch;
    struct sampler_params p;
    assert_int_equal(arena_create(&(struct arena_opts){8 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_scratch_create(a, VOCAB_MAX, &scratch), 0);
    sampler_params_default(&p);
    p.temperature = 0;
    r->allowed[3] = 0xf0;
    assert_int_equal(sample_ready(r, scratch, a, &p, r->allowed, 1).id, 3 * 64 + 4);
    arena_free(a);
    free(r);
}

TEST(a_block_says_its_largest_logit)
{
    struct row *r = row_of(3);
    struct sampler_params p;
    struct sampler *s;
    struct arena *a;
    sampler_params_default(&p);
    assert_int_equal(arena_create(&(struct arena_opts){1 << 20, 0, NULL}, &a), 0);
    assert_int_equal(sampler_create(a, &p, 64, &s), 0);
    r->logits[ROW_SAMPLE_BLOCK + 5] = 3;
    r->logits[ROW_SAMPLE_BLOCK + 6] = 7;
    memset(r->allowed, 0xff, sizeof(r->allowed));
    const struct sampler_row row = {r->logits, VOCAB_MAX, NULL, r->allowed};
    assert_true(sampler_ready(s, &row, 1) == 7);
    r->allowed[(ROW_SAMPLE_BLOCK + 6) / 64] &= ~((uint64_t)1 << (ROW_SAMPLE_BLOCK + 6) % 64);
    assert_true(sampler_ready(s, &row, 1) == 3);
    assert_true(r->logits[ROW_SAMPLE_BLOCK + 6] == 7); /* its mask is beside it */
    assert_true(sampler_ready(s, &row, 0) == 0);
    arena_free(a);
    free(r);
}

TEST_MAIN()
