/* test_kern_bf16.c - products in BF16: every tier against double and against the other tiers, bit for bit, in
 * any company; the rounded rows against their definition. */
#include "test_rng.h"
#include "kern_test.h"

#include <float.h>

#define COLUMNS_MAX 33

/* Columns, their rounded rows of exactly the bytes that they need, and places for the results. */
struct board {
    uint32_t n, k;
    float *x[COLUMNS_MAX], *y[COLUMNS_MAX];
    uint16_t *rows[COLUMNS_MAX]; /* blocks of their own, or parts of one, equally far apart */
    uint16_t *memory;
};

static void board_init(struct board *b, struct rng *r, const struct matrix *m, bool apart)
{
    *b = (struct board){.n = m->n, .k = m->k};
    if (!apart) {
        b->memory = malloc((size_t)COLUMNS_MAX * m->k * 2);
        assert_non_null(b->memory);
    }
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        float size = (float)(1u << c % 20) * 1e-3f;
        b->x[c] = random_values(r, m->k, c % 3 ? -size : 0, size);
        b->y[c] = random_values(r, m->n, 7, 8);
        b->rows[c] = b->memory ? b->memory + (size_t)c * m->k : malloc((size_t)m->k * 2);
        assert_non_null(b->rows[c]);
    }
}

static void board_done(struct board *b)
{
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        free(b->x[c]);
        free(b->y[c]);
        if (!b->memory)
            free(b->rows[c]);
    }
    free(b->memory);
}

static void round_rows(const struct kern_ops *ops, struct board *b)
{
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        memset(b->rows[c], 0xa5, (size_t)b->k * 2);
        ops->round_bf16(b->rows[c], b->x[c], 0, b->k);
        for (uint32_t k = 0; k < b->k; k++)
            assert_int_equal(b->rows[c][k], f32_to_bf16(b->x[c][k]));
    }
}

static void product(const struct kern_ops *ops, const struct matrix *m, struct board *b, uint32_t count)
{
    struct kern_bf16_columns c = {count, (const uint16_t *const *)b->rows, b->y};
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < m->n; j++)
            b->y[i][j] = NAN;
    }
    ops->bf16_matmul(m, &c, 0, matrix_panels(m));
}

/* Multiplies one column of the board alone. */
static void product_alone(const struct kern_ops *ops, const struct matrix *m, struct board *b,
                          uint32_t column)
{
    struct kern_bf16_columns c = {1, (const uint16_t *const *)b->rows + column, b->y + column};
    ops->bf16_matmul(m, &c, 0, matrix_panels(m));
}

/* Bound, of column c: an input and a weight of F16 are wrong by 2^-9 of themselves; each step of a chain, and
 * the sums of 16 of them, round once. */
static void assert_product(const struct linear_source *s, const struct matrix *m, const struct board *b,
                           uint32_t c, const char *tier)
{
    const double half = 0x1p-9, steps = 16 + 2.0 + m->k / 32.0;
    const double wrong = half * (s->weight.dtype == DTYPE_F16 ? 2.01 : 1);
    for (uint32_t i = 0; i < m->n; i++) {
        double want = 0, bound = FLT_MIN * m->k;
        for (uint32_t k = 0; k < m->k; k++) {
            double x = (double)b->x[c][k], weight = (double)linear_source_at(s, 0, i, k);
            want += weight * x;
            bound += fabs(weight * x) * (wrong + steps * EPS);
        }
        assert_within((double)b->y[c][i], want, bound, tier);
    }
}

/* Columns in any company are what they are alone, in every tier. */
static void check_products(struct rng *r, struct linear_source *s, bool apart)
{
    static const uint32_t counts[] = {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33};
    struct board b;
    void *memory;
    struct matrix m = pack_pairs(s, &memory);
    float *alone[COLUMNS_MAX];
    board_init(&b, r, &m, apart);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        alone[c] = malloc(m.n * sizeof(float));
    EACH_TIER(ops)
    {
        round_rows(ops, &b);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            product_alone(ops, &m, &b, c);
            if (ops == tiers_)
                assert_product(s, &m, &b, c, ops->bf16_tier);
            else
                assert_same_bits(b.y[c], alone[c], m.n, ops->bf16_tier);
            memcpy(alone[c], b.y[c], m.n * sizeof(float));
        }
        for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
            product(ops, &m, &b, counts[i]);
            for (uint32_t c = 0; c < counts[i]; c++)
                assert_same_bits(b.y[c], alone[c], m.n, ops->bf16_tier);
        }
    }
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        free(alone[c]);
    board_done(&b);
    free(memory);
    source_drop(s);
}

TEST(alone_equals_batched_and_tiers_agree)
{
    static const uint32_t outs[] = {1, 17, 16, 99, 150}, ins[] = {32, 64, 544, 1056};
    struct rng r = {1, 0};
    for (uint32_t i = 0; i < COUNT_OF(outs) * COUNT_OF(ins); i++) {
        struct linear_source s = random_dense(&r, i % 3 ? DTYPE_BF16 : DTYPE_F16, 1, outs[i % 5], ins[i % 4]);
        check_products(&r, &s, i % 2);
    }
}

/* More columns than any tier takes at once. */
TEST(many_columns)
{
    enum { MANY = 300 };
    struct rng r = {8, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 147, 608);
    struct board b;
    void *memory;
    const uint16_t *rows[MANY];
    float *y[MANY], *alone[COLUMNS_MAX] = {0};
    struct matrix m = pack_pairs(&s, &memory);
    board_init(&b, &r, &m, true);
    for (uint32_t c = 0; c < MANY; c++) {
        y[c] = malloc(m.n * sizeof(float));
        rows[c] = b.rows[c % COLUMNS_MAX];
    }
    EACH_TIER(ops)
    {
        round_rows(ops, &b);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            product_alone(ops, &m, &b, c);
            if (alone[c])
                assert_same_bits(b.y[c], alone[c], m.n, ops->bf16_tier);
            alone[c] = alone[c] ? alone[c] : malloc(m.n * sizeof(float));
            memcpy(alone[c], b.y[c], m.n * sizeof(float));
        }
        for (uint32_t count = 40; count <= MANY; count += 65) {
            struct kern_bf16_columns c = {count, rows, y};
            ops->bf16_matmul(&m, &c, 0, matrix_panels(&m));
            for (uint32_t j = 0; j < count; j++)
                assert_same_bits(y[j], alone[j % COLUMNS_MAX], m.n, ops->bf16_tier);
        }
    }
    for (uint32_t c = 0; c < MANY; c++)
        free(y[c]);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        free(alone[c]);
    board_done(&b);
    free(memory);
    source_drop(&s);
}

/* Values near the least normal number: some products and sums are denormals, and count as zeros in every
 * tier. Powers of two, so that no sum is rounded to the least normal number. */
TEST(denormals_are_zeros)
{
    struct rng r = {2, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 32, 128);
    struct board b;
    void *memory;
    uint16_t *weights = (uint16_t *)(uintptr_t)s.weight.data;
    for (size_t i = 0; i < s.weight.bytes / 2; i++) {
        uint16_t half = f32_to_bf16(ldexpf(rng_below(&r, 2) ? 1 : -1, -(int)rng_below(&r, 130)));
        memcpy(weights + i, &half, 2);
    }
    struct matrix m = pack_pairs(&s, &memory);
    board_init(&b, &r, &m, false);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        for (uint32_t k = 0; k < m.k; k++)
            b.x[c][k] = ldexpf(rng_below(&r, 2) ? 1 : -1, -(int)rng_below(&r, 130) - (c % 2 ? 0 : 100));
    }
    float *want[COLUMNS_MAX];
    uint32_t zeros = 0;
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        want[c] = malloc(m.n * sizeof(float));
    EACH_TIER(ops)
    {
        round_rows(ops, &b);
        product(ops, &m, &b, COLUMNS_MAX);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            if (ops == tiers_)
                memcpy(want[c], b.y[c], m.n * sizeof(float));
            assert_same_bits(b.y[c], want[c], m.n, ops->bf16_tier);
            for (uint32_t i = 0; i < m.n; i++) {
                assert_true(b.y[c][i] == 0 || fabsf(b.y[c][i]) >= FLT_MIN);
                zeros += b.y[c][i] == 0;
            }
        }
    }
    assert_true(zeros > 0);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        free(want[c]);
    board_done(&b);
    free(memory);
    source_drop(&s);
}

/* A column with a NaN or an infinity has no number, and no other column knows. */
TEST(odd_values_stay_in_their_column)
{
    static const float odd[] = {NAN, -INFINITY, INFINITY};
    struct rng r = {3, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 18, 96);
    struct board b;
    void *memory;
    struct matrix m = pack_pairs(&s, &memory);
    board_init(&b, &r, &m, false);
    for (uint32_t i = 0; i < 3; i++)
        b.x[2 + i][17 + 32 * i] = odd[i];
    EACH_TIER(ops)
    {
        round_rows(ops, &b);
        product(ops, &m, &b, COLUMNS_MAX);
        for (uint32_t i = 0; i < m.n; i++) {
            assert_true(isnan(b.y[2][i]) && !isfinite(b.y[3][i]) && !isfinite(b.y[4][i]));
            assert_true(isfinite(b.y[1][i]) && isfinite(b.y[5][i]) && isfinite(b.y[32][i]));
        }
    }
    board_done(&b);
    free(memory);
    source_drop(&s);
}

TEST(rows_rounded_in_parts_are_the_same)
{
    struct rng r = {5, 0};
    float *x = random_values(&r, 77, -1e-37f, 1e38f);
    uint16_t whole[77], parts[77];
    EACH_TIER(ops)
    {
        ops->round_bf16(whole, x, 0, 77);
        ops->round_bf16(parts, x, 35, 77);
        ops->round_bf16(parts, x, 0, 3);
        ops->round_bf16(parts, x, 3, 35);
        assert_memory_equal(whole, parts, sizeof whole);
    }
    free(x);
}

TEST(a_range_of_panels_writes_its_rows_and_no_others)
{
    struct rng r = {6, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 16 * 12 + 3, 64);
    struct board b;
    void *memory;
    struct matrix m = pack_pairs(&s, &memory);
    board_init(&b, &r, &m, false);
    float *want = malloc(COLUMNS_MAX * m.n * sizeof(float));
    EACH_TIER(ops)
    {
        round_rows(ops, &b);
        for (uint32_t count = 1; count <= COLUMNS_MAX; count += 4) {
            product(ops, &m, &b, count);
            for (uint32_t j = 0; j < count; j++) {
                memcpy(want + (size_t)j * m.n, b.y[j], m.n * sizeof(float));
                for (uint32_t i = 0; i < m.n; i++)
                    b.y[j][i] = 77;
            }
            struct kern_bf16_columns c = {count, (const uint16_t *const *)b.rows, b.y};
            ops->bf16_matmul(&m, &c, 5, 12);
            for (uint32_t j = 0; j < count; j++) {
                for (uint32_t i = 0; i < m.n; i++) {
                    bool inside = i >= 5 * 16 && i < 12 * 16;
                    assert_true(b.y[j][i] == (inside ? want[(size_t)j * m.n + i] : 77));
                }
            }
        }
    }
    free(want);
    board_done(&b);
    free(memory);
    source_drop(&s);
}

TEST_MAIN()
