/* The best tokens of rows of logits on a GPU, through the compute contract: against the reference, of the
 * same rows. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/row_top.h"

#include <math.h>
#include <string.h>

#define ROWS         5u
#define WIDTH        32u
#define VOCAB_MAX    20011u
#define MEMORY_BYTES ((uint64_t)64 << 20)

enum { PLACE_X, PLACES };

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
    uint32_t vocab;
};

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
    const struct place_spec places[PLACES] = {{ROWS_TOKENS, WIDTH, WIDTH}};
    *s = (struct rows){.vocab = vocab};
    s->shape = (struct compute_shape){
        .hidden = WIDTH, .vocab = vocab, .eps = 1e-6f, .layers = 1, .context_max = GPU_TOKENS_MAX};
    gpu_open(&s->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)16 << 20}, &s->host), 0);
    s->compute = gpu_compute(&s->gpu, (struct compute_opts){.shape = &s->shape,
                                                            .places = places,
                                                            .place_count = PLACES,
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
    assert_true(s->valid && s->logits && s->tops);
    for (uint32_t i = 0; i < vocab; i++)
        s->valid[i / 64] |= (uint64_t)(rng_below(r, 20) > 0) << i % 64;
}

static void rows_done(struct rows *s)
{
    free(s->valid);
    free(s->logits);
    free(s->tops);
    arena_free(s->host);
    gpu_close(&s->gpu);
}

static void compute(struct rows *s, uint32_t count, const struct row_want *wants)
{
    const struct projection head = {.in = WIDTH, .out = s->vocab, .part_count = 1, .parts = {s->head}};
    const struct act x = {PLACE_X, 0, WIDTH};
    struct batch b = *gpu_batch(0, count, ROWS + 1, 0, NULL);
    memset(s->logits, 0xff, (size_t)count * s->vocab * sizeof(*s->logits));
    b.logit_count = count;
    b.logits = s->logits;
    b.wants = wants;
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

/* A list may be shorter than was wanted, but is the begin of the order. */
static void check_top(const struct rows *s, const float *row, const struct row_want *want,
                      const struct row_top *got)
{
    struct row_top ref;
    row_top_of(row, s->vocab, s->valid, want, &ref);
    assert_true(got->count > 0 && got->count <= ref.count);
    for (uint32_t i = 0; i < got->count; i++) {
        assert_int_equal(got->list[i].id, ref.list[i].id);
        assert_true(got->list[i].logit == ref.list[i].logit);
    }
    assert_true(fabs(got->mass - ref.mass) <= ROW_TOP_ERROR * ref.mass);
}

static void lists_of(uint32_t vocab, float spread, bool all, struct rng *r)
{
    static const struct row_want wants[ROWS] = {
        {1, 0}, {36, 0}, {0, 0}, {ROW_TOP_MAX, 0.7f}, {ROW_TOP_MAX, 1.5f}};
    struct rows s;
    rows_init(&s, vocab, spread, r);
    compute(&s, ROWS, NULL);
    float *whole = malloc((size_t)ROWS * vocab * sizeof(*whole));
    assert_non_null(whole);
    memcpy(whole, s.logits, (size_t)ROWS * vocab * sizeof(*whole));
    compute(&s, ROWS, wants);
    for (uint32_t i = 0; i < ROWS; i++) {
        const size_t at = (size_t)i * vocab, bytes = vocab * sizeof(*whole);
        if (wants[i].count > 0) {
            check_top(&s, whole + at, &wants[i], &s.tops[i]);
            assert_true(!all || s.tops[i].count >= MIN_OF(wants[i].count, vocab / 2) - wants[i].count / 8);
            assert_int_equal(compute_row(s.compute, i), 0);
        }
        assert_memory_equal(s.logits + at, whole + at, bytes);
    }
    free(whole);
    rows_done(&s);
}

TEST(lists_are_the_best_tokens_of_their_rows)
{
    static const uint32_t vocabs[] = {1, 33, 1000, 1500, 5003, VOCAB_MAX};
    NEEDS_GPU
    struct rng r = {7, 0};
    for (uint32_t i = 0; i < COUNT_OF(vocabs); i++)
        lists_of(vocabs[i], 1.5f, vocabs[i] > 100, &r);
}

/* All logits are nearly alike, or far from each other. */
TEST(lists_of_odd_rows_are_short_or_not_made)
{
    NEEDS_GPU
    struct rng r = {8, 0};
    lists_of(900, 1e-6f, false, &r);
    lists_of(3000, 300, false, &r);
}

/* Too many are alike, or none has a number: the host reads the row. */
TEST(rows_without_a_list_come_whole)
{
    static const struct row_want want = {ROW_TOP_MAX, 1};
    NEEDS_GPU
    struct rng r = {9, 0};
    struct rows s;
    rows_init(&s, 5003, 1e-6f, &r);
    compute(&s, 1, &want);
    assert_int_equal(s.tops[0].count, 0);
    assert_int_equal(compute_row(s.compute, 0), 0);
    assert_true(isfinite(s.logits[0]));
    memset(s.valid, 0, DIV_UP(5003u, 64u) * sizeof(*s.valid));
    rows_done(&s);
    rows_init(&s, 700, 1, &r);
    memset(s.valid, 0, DIV_UP(700u, 64u) * sizeof(*s.valid));
    compute(&s, 1, &(struct row_want){1, 0});
    assert_int_equal(s.tops[0].count, 0);
    rows_done(&s);
}

/* There are more rows than the workspace keeps. */
TEST(more_rows_than_sequences_are_all_whole)
{
    struct row_want wants[ROWS + 1];
    NEEDS_GPU
    struct rng r = {10, 0};
    struct rows s;
    for (uint32_t i = 0; i <= ROWS; i++)
        wants[i] = (struct row_want){40, 0};
    rows_init(&s, 1500, 1, &r);
    compute(&s, ROWS + 1, NULL);
    float *whole = malloc((ROWS + 1) * 1500 * sizeof(*whole));
    assert_non_null(whole);
    memcpy(whole, s.logits, (ROWS + 1) * 1500 * sizeof(*whole));
    compute(&s, ROWS + 1, wants);
    for (uint32_t i = 0; i <= ROWS; i++) {
        assert_int_equal(s.tops[i].count, 0);
        assert_int_equal(compute_row(s.compute, i), 0);
    }
    assert_memory_equal(s.logits, whole, (ROWS + 1) * 1500 * sizeof(*whole));
    free(whole);
    rows_done(&s);
}

TEST_MAIN()
