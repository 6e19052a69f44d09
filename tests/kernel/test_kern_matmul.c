/* test_kern_matmul.c - every tier's matrix products against double, and against themselves, bit for bit. */
#include "test_rng.h"
#include "kern_test.h"

#define COLUMNS_MAX 33

/* Columns with their sums, and places for the results of all of them. */
struct board {
    uint32_t n, k;
    float *x[COLUMNS_MAX], *xsum[COLUMNS_MAX], *y[COLUMNS_MAX];
};

static void board_init(struct board *b, struct rng *r, const struct matrix *m)
{
    struct kern_ops ref;
    kern_ops_init(&ref, 0);
    b->n = m->n;
    b->k = m->k;
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        b->x[c] = random_values(r, m->k, -1, 1);
        b->y[c] = random_values(r, m->n, 7, 8);
        b->xsum[c] = random_values(r, matrix_needs_sums(m) ? m->k / m->group : 0, 0, 0);
        if (matrix_needs_sums(m))
            ref.group_sums(b->xsum[c], b->x[c], m->k, m->group);
    }
}

static void board_done(struct board *b)
{
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        free(b->x[c]);
        free(b->y[c]);
        free(b->xsum[c]);
    }
}

static void product(const struct kern_ops *ops, const struct matrix *m, struct board *b, uint32_t first,
                    uint32_t count)
{
    struct kern_columns c = {.count = count,
                             .x = (const float *const *)b->x + first,
                             .xsum = (const float *const *)b->xsum + first,
                             .y = b->y + first};
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < m->n; j++)
            b->y[first + i][j] = NAN;
    }
    ops->matmul(m, &c, 0, matrix_panels(m));
}

/* Bound: a chain of `block` products, then blocks of them; each step rounds at most the sum of the
 * magnitudes. */
static void assert_product(const struct linear_source *s, const struct matrix *m, const struct board *b,
                           const char *tier)
{
    uint32_t block = s->affine ? s->group : MATRIX_DENSE_BLOCK;
    double steps = block + 3.0 * DIV_UP(m->k, block) + 4;
    for (uint32_t i = 0; i < m->n; i++) {
        double want = 0, size = 0;
        for (uint32_t k = 0; k < m->k; k++) {
            want += (double)linear_source_at(s, 0, i, k) * (double)b->x[0][k];
            size += source_size(s, 0, i, k) * fabs((double)b->x[0][k]);
        }
        assert_within((double)b->y[0][i], want, steps * EPS * size, tier);
    }
}

/* Column 0 alone is right; columns in any company, and panels in any split, are what they are alone, in every
 * tier. */
static void check_products(struct rng *r, struct linear_source *s)
{
    static const uint32_t counts[] = {2, 3, 8, 9, 16, 33};
    struct board b;
    void *memory;
    struct matrix m = pack(s, 1, &memory);
    float *alone[COLUMNS_MAX];
    board_init(&b, r, &m);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        alone[c] = malloc(m.n * sizeof(float));
    EACH_TIER(ops)
    {
        product(ops, &m, &b, 0, 1);
        assert_product(s, &m, &b, ops->tier);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            product(ops, &m, &b, c, 1);
            if (ops != tiers_)
                assert_same_bits(b.y[c], alone[c], m.n, ops->tier);
            memcpy(alone[c], b.y[c], m.n * sizeof(float));
        }
        for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
            product(ops, &m, &b, 0, counts[i]);
            for (uint32_t c = 0; c < counts[i]; c++)
                assert_same_bits(b.y[c], alone[c], m.n, ops->tier);
        }
    }
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        free(alone[c]);
    board_done(&b);
    free(memory);
    source_drop(s);
}

TEST(dense_products_hold_in_every_tier_and_company)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    static const uint32_t sizes[][2] = {{1, 1}, {15, 63}, {16, 64}, {17, 65}, {83, 257}, {160, 31}};
    struct rng r = {1, 0};
    for (uint32_t d = 0; d < COUNT_OF(dtypes); d++) {
        for (uint32_t i = 0; i < COUNT_OF(sizes); i++) {
            struct linear_source s = random_dense(&r, dtypes[d], 1, sizes[i][0], sizes[i][1]);
            check_products(&r, &s);
        }
    }
}

TEST(affine_products_hold_in_every_tier_and_company)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128}, outs[] = {17, 1, 147};
    struct rng r = {2, 0};
    for (uint32_t b = 0; b < COUNT_OF(bits); b++) {
        for (uint32_t g = 0; g < COUNT_OF(groups); g++) {
            struct linear_source s =
                random_affine(&r, bits[b], groups[g], DTYPE_BF16, 1, outs[g], groups[g] * 3);
            check_products(&r, &s);
        }
    }
}

TEST(products_of_every_form_hold_in_every_tier_and_company)
{
    struct rng r = {5, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        const struct kern_form *f = &kern_forms[i];
        struct linear_source s = random_form(&r, f, 1, i % 2 ? 17 : 83, f->super == 256 ? 512 : 384);
        check_products(&r, &s);
    }
}

TEST(a_range_of_panels_writes_its_rows_and_no_others)
{
    struct rng r = {3, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 16 * 12 + 3, 70);
    void *memory;
    struct matrix m = pack(&s, 1, &memory);
    struct board whole, part;
    board_init(&whole, &r, &m);
    board_init(&part, &(struct rng){3, 99}, &m);
    EACH_TIER(ops)
    {
        for (uint32_t count = 1; count <= COLUMNS_MAX; count += 4) {
            product(ops, &m, &whole, 0, count);
            struct kern_columns c = {.count = count, .x = (const float *const *)whole.x, .y = part.y};
            for (uint32_t j = 0; j < count; j++) {
                for (uint32_t i = 0; i < m.n; i++)
                    part.y[j][i] = 77;
            }
            ops->matmul(&m, &c, 5, 12);
            for (uint32_t j = 0; j < count; j++) {
                for (uint32_t i = 0; i < m.n; i++) {
                    bool inside = i >= 5 * 16 && i < 12 * 16;
                    assert_true(part.y[j][i] == (inside ? whole.y[j][i] : 77));
                }
            }
        }
    }
    board_done(&whole);
    board_done(&part);
    free(memory);
    source_drop(&s);
}

TEST(group_sums_are_serial_in_every_tier)
{
    struct rng r = {4, 0};
    for (uint32_t groups = 1; groups < 20; groups++) {
        float *x = random_values(&r, (size_t)groups * 32, -1, 1), want[20], got[20];
        for (uint32_t g = 0; g < groups; g++) {
            want[g] = 0;
            for (uint32_t i = 0; i < 32; i++)
                want[g] += x[g * 32 + i];
        }
        EACH_TIER(ops)
        {
            ops->group_sums(got, x, groups * 32, 32);
            assert_same_bits(got, want, groups, ops->tier);
        }
        free(x);
    }
}

TEST_MAIN()
