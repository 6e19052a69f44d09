/* Samples from rows of logits on a GPU, through the compute contract: against the reference, of the same
 * rows. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "compute/batch.h"
#include "compute/row_sample.h"
#include "compute/row_top.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define ROWS         5u
#define WIDTH        32u
#define VOCAB_MAX    20011u
#define MEMORY_BYTES ((uint64_t)64 << 20)

enum { ARRAY_X, ARRAYS };

static const struct rope_tables no_ropes;

struct rows {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape shape;
    struct weight inputs, head;
    uint64_t *valid; /* bit per id */
    float *logits;   /* [ROWS][vocab] */
    struct row_top *tops;
    struct row_sampled *sampled;
    struct row_sample *orders; /* orders of a step, like the next three */
    struct row_edit *edits;
    uint64_t *masks;
    struct row_samples samples;
    uint32_t vocab;
};

#define EDITS (ROWS * ROW_EDITS_EACH)

static struct weight put(struct rows *s, const float *x, uint32_t rows)
{
    const struct backend *b = s->gpu.device->backend;
    const struct linear_source source = gpu_table(x, rows, WIDTH);
    struct weight w =
        b->weight_begin(&source, 1, COMPUTE_F32, gpu_take(&s->gpu, b->weight_bytes(&source, 1, COMPUTE_F32)));
    b->weight_put(s->gpu.device, &w, 0, &source);
    return w;
}

/* Tokens of any weight, some of them equal, some without a number. */
static float *head_of(struct rng *r, uint32_t vocab)
{
    float *x = random_values(r, (size_t)vocab * WIDTH, -1, 1);
    for (uint32_t i = 1; i < vocab; i++) {
        uint32_t n = (uint32_t)rng_below(r, 64), like = (uint32_t)rng_below(r, i);
        if (n < 8)
            memcpy(x + (size_t)i * WIDTH, x + (size_t)like * WIDTH, WIDTH * sizeof(*x));
        else if (n < 10)
            x[(size_t)i * WIDTH] = n == 8 ? NAN : -INFINITY;
    }
    return x;
}

static void rows_init(struct rows *s, uint32_t vocab, float spread, struct rng *r)
{
    const struct array_spec arrays[ARRAYS] = {{ROWS_TOKENS, WIDTH, WIDTH}};
    *s = (struct rows){.vocab = vocab};
    s->shape = (struct compute_shape){
        .hidden = WIDTH, .vocab = vocab, .eps = 1e-6f, .layers = 1, .context_max = GPU_TOKENS_MAX};
    gpu_open(&s->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)16 << 20}, &s->host), 0);
    s->compute = gpu_compute(&s->gpu, (struct compute_opts){.shape = &s->shape,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = COMPUTE_F32,
                                                            .tokens_max = ROWS + 1,
                                                            .seqs_max = ROWS,
                                                            .logits_max = ROWS + 1,
                                                            .host_memory = s->host});
    float *inputs = random_values(r, (size_t)(ROWS + 1) * WIDTH, 0, spread), *head = head_of(r, vocab);
    s->inputs = put(s, inputs, ROWS + 1);
    s->head = put(s, head, vocab);
    free(inputs);
    free(head);
    s->valid = calloc(DIV_UP(vocab, 64u), sizeof(*s->valid));
    s->logits = calloc((size_t)(ROWS + 1) * vocab, sizeof(*s->logits));
    s->tops = calloc(ROWS + 1, sizeof(*s->tops));
    s->sampled = calloc(ROWS + 1, sizeof(*s->sampled));
    s->orders = calloc(ROWS + 1, sizeof(*s->orders));
    s->edits = calloc(EDITS, sizeof(*s->edits));
    s->masks = calloc(ROWS * DIV_UP(vocab, 64u), sizeof(*s->masks));
    assert_true(s->valid && s->logits && s->tops && s->sampled && s->orders && s->edits && s->masks);
    for (uint32_t i = 0; i < vocab; i++)
        s->valid[i / 64] |= (uint64_t)(rng_below(r, 20) > 0) << i % 64;
}

static void rows_done(struct rows *s)
{
    free(s->valid);
    free(s->logits);
    free(s->tops);
    free(s->sampled);
    free(s->orders);
    free(s->edits);
    free(s->masks);
    arena_free(s->host);
    gpu_close(&s->gpu);
}

static void compute(struct rows *s, uint32_t count, const struct row_samples *samples)
{
    const struct projection head = {.in = WIDTH, .out = s->vocab, .part_count = 1, .parts = {s->head}};
    const struct act x = {ARRAY_X, 0, WIDTH};
    struct batch b = *gpu_batch(0, count, ROWS + 1, 0, NULL);
    memset(s->logits, 0xff, (size_t)count * s->vocab * sizeof(*s->logits));
    b.logit_count = count;
    b.logits = s->logits;
    b.samples = samples;
    b.tops = s->tops;
    b.valid_ids = s->valid;
    compute_step_begin(s->compute, &b);
    compute_embed(s->compute,
                  &(struct op_embed){.table = &s->inputs, .ropes = &no_ropes, .h = x, .angles = x});
    compute_project(
        s->compute,
        &(struct op_product){.w = &head, .x = x, .y = {OP_LOGITS, 0, 0}, .columns = COLUMNS_LOGITS}, 1);
    assert_int_equal(compute_step_end(s->compute), 0);
}

/* ---- orders ---- */

static float choose(struct rng *r, const float *values, uint32_t count)
{
    return values[rng_below(r, count)];
}
#define CHOOSE(...) choose(r, (const float[]){__VA_ARGS__}, COUNT_OF(((const float[]){__VA_ARGS__})))

/* Different ids: each kind of edit names one once. */
static uint32_t add_edits(struct rows *s, struct rng *r, uint32_t most)
{
    uint32_t count = (uint32_t)rng_below(r, MIN_OF(most, s->vocab) + 1),
             step = MAX_OF(s->vocab / MAX_OF(count, 1u), 1u);
    uint32_t first = (uint32_t)rng_below(r, s->vocab);
    for (uint32_t i = 0; i < count; i++)
        s->edits[s->samples.edit_count++] =
            (struct row_edit){(first + i * step) % s->vocab, CHOOSE(0, 1, 2, 3, 7)};
    return count;
}

static void make_order(struct rows *s, struct rng *r, struct row_sample *d)
{
    *d = (struct row_sample){.part = rng_below(r, 10) == 0 ? 0 : rng_uniform(r),
                             .wanted = rng_below(r, 8) > 0,
                             .temperature = CHOOSE(0, 1, 1, 0.7f, 1.5f, 0.02f),
                             .window = CHOOSE(27.631021f, 27.631021f, 3, 9),
                             .top_k = (uint32_t)CHOOSE(0, 0, 0, 1, 20, 900, 1e6f),
                             .top_p = CHOOSE(1, 1, 0.95f, 0.5f, 0.01f),
                             .repetition_penalty = CHOOSE(1, 1.3f, 0.9f),
                             .presence_penalty = CHOOSE(0, 0.5f, -1),
                             .frequency_penalty = CHOOSE(0, 0.25f),
                             .mask = ROW_SAMPLE_ALL,
                             .sums = rng_below(r, 2) == 0,
                             .tops = (uint32_t)CHOOSE(0, 0, 1, 5, ROW_TOP_MAX)};
    d->edits = s->samples.edit_count;
    if (rng_below(r, 2) == 0) {
        d->bias_count = add_edits(s, r, 40);
        d->banned_count = add_edits(s, r, 3);
        d->seen_count = add_edits(s, r, 1200);
    }
    if (rng_below(r, 2) == 0) {
        const uint32_t words = DIV_UP(s->vocab, 64u), often = rng_below(r, 2) ? 2 : 500;
        d->mask = s->samples.mask_count++;
        for (uint32_t w = 0; w < words; w++)
            s->masks[d->mask * words + w] = rng_below(r, often) ? rng_next(r) : 0;
    }
}

static void make_orders(struct rows *s, struct rng *r)
{
    s->samples =
        (struct row_samples){.rows = s->orders, .edits = s->edits, .masks = s->masks, .sampled = s->sampled};
    for (uint32_t i = 0; i < ROWS; i++)
        make_order(s, r, &s->orders[i]);
}

/* ---- results ---- */

static void check_top(const struct rows *s, const float *row, uint32_t want, const struct row_top *got)
{
    struct row_top ref;
    row_top_of(row, s->vocab, s->valid, want, &ref);
    assert_true(got->count <= ref.count);
    for (uint32_t i = 0; i < got->count; i++) {
        assert_int_equal(got->list[i].id, ref.list[i].id);
        assert_true(got->list[i].logit == ref.list[i].logit);
    }
}

/* Returns whether the device drew. */
static bool check_sample(const struct rows *s, const float *row, uint32_t i)
{
    static struct candidate list[VOCAB_MAX];
    static float logits[VOCAB_MAX];
    const struct row_sampled *got = &s->sampled[i];
    struct row_sampled want;
    memcpy(logits, row, s->vocab * sizeof(*row));
    row_sample_of(&s->samples, i, logits, s->vocab, s->valid, list, &want);
    if (s->orders[i].sums) {
        assert_true(got->largest == want.largest);
        assert_true(!isfinite(want.largest) || got->sum == want.sum);
    }
    if (got->state == ROW_LEFT)
        return false;
    assert_int_equal(got->state, want.state);
    assert_int_equal(got->id, want.id);
    assert_true(got->state != ROW_SAMPLED || got->logit == row[got->id]);
    return true;
}

/* Rows of this vocabulary and spread, with random orders: nearly all are sampled, with the reference's tokens
 * and bits. Rows come to the host as they were, with or without a sample. */
static void samples_of(uint32_t vocab, float spread, uint32_t rounds, struct rng *r)
{
    struct rows s;
    uint32_t wanted = 0, sampled = 0;
    const size_t bytes = vocab * sizeof(float);
    rows_init(&s, vocab, spread, r);
    compute(&s, ROWS, NULL);
    float *whole = malloc(ROWS * bytes);
    assert_non_null(whole);
    memcpy(whole, s.logits, ROWS * bytes);
    for (uint32_t round = 0; round < rounds; round++) {
        make_orders(&s, r);
        compute(&s, ROWS, &s.samples);
        for (uint32_t i = 0; i < ROWS; i++) {
            const float *row = whole + (size_t)i * vocab;
            if (s.orders[i].wanted) {
                wanted++;
                sampled += check_sample(&s, row, i);
                if (s.orders[i].tops > 0)
                    check_top(&s, row, s.orders[i].tops, &s.tops[i]);
                assert_int_equal(compute_row(s.compute, i), 0);
            }
            assert_memory_equal(s.logits + (size_t)i * vocab, row, bytes);
        }
    }
    print_message("%u logits, spread %g: %u of %u rows sampled\n", vocab, (double)spread, sampled, wanted);
    assert_true(sampled >= wanted - wanted / 8 - 1 || spread < 1e-3f);
    free(whole);
    rows_done(&s);
}

#ifdef TEST_SIMT
#define ROUNDS 2u
#else
#define ROUNDS 60u
#endif

TEST(samples_have_the_references_tokens_and_bits)
{
    static const uint32_t vocabs[] = {1, 33, 1000, 1500, 5003, VOCAB_MAX};
    NEEDS_GPU
    struct rng r = {7, 0};
    for (uint32_t i = 0; i < COUNT_OF(vocabs); i++)
        samples_of(vocabs[i], 1.5f, ROUNDS, &r);
    samples_of(3000, 300, ROUNDS, &r);
}

/* All logits are nearly alike: more are in one place of the order than a device puts in order. */
TEST(samples_of_rows_of_equals_may_be_left)
{
    NEEDS_GPU
    struct rng r = {8, 0};
    samples_of(5003, 1e-6f, ROUNDS, &r);
}

/* The mask leaves none. */
TEST(rows_without_a_token_say_so)
{
    NEEDS_GPU
    struct rng r = {9, 0};
    struct rows s;
    rows_init(&s, 700, 1, &r);
    s.samples =
        (struct row_samples){.rows = s.orders, .masks = s.masks, .mask_count = 1, .sampled = s.sampled};
    s.orders[0] = (struct row_sample){.wanted = 1, .temperature = 1, .window = 27, .top_p = 1};
    compute(&s, 1, &s.samples);
    assert_int_equal(s.sampled[0].state, ROW_EMPTY);
    rows_done(&s);
}

/* There are more rows than the workspace keeps. */
TEST(more_rows_than_sequences_are_left)
{
    NEEDS_GPU
    struct rng r = {10, 0};
    struct rows s;
    rows_init(&s, 1500, 1, &r);
    for (uint32_t i = 0; i <= ROWS; i++)
        s.orders[i] = (struct row_sample){.wanted = 1, .mask = ROW_SAMPLE_ALL};
    compute(&s, ROWS + 1, NULL);
    float *whole = malloc((ROWS + 1) * 1500 * sizeof(*whole));
    assert_non_null(whole);
    memcpy(whole, s.logits, (ROWS + 1) * 1500 * sizeof(*whole));
    s.samples = (struct row_samples){.rows = s.orders, .sampled = s.sampled};
    compute(&s, ROWS + 1, &s.samples);
    for (uint32_t i = 0; i <= ROWS; i++) {
        assert_int_equal(s.sampled[i].state, ROW_LEFT);
        assert_int_equal(compute_row(s.compute, i), 0);
    }
    assert_memory_equal(s.logits, whole, (ROWS + 1) * 1500 * sizeof(*whole));
    free(whole);
    rows_done(&s);
}

TEST_MAIN()
