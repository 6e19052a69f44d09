/* test_kern_int.c - integer products: every tier against double and against the other tiers, bit for bit, in
 * any company; the quantised rows against their definition. */
#include "test_rng.h"
#include "kern_test.h"

#include <float.h>

#define COLUMNS_MAX 33

static const uint32_t bits_list[] = {2, 3, 4, 5, 6, 8}, group_list[] = {32, 64, 128};
/* Groups of quantised rows. */
static const uint32_t row_group_list[] = {16, 32, 64, 128};
static const enum dtype dtype_list[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};

/* Columns, their quantised rows of exactly the bytes that they need, and places for the results. */
struct board {
    uint32_t n, k, bytes;
    float *x[COLUMNS_MAX], *y[COLUMNS_MAX];
    void *rows[COLUMNS_MAX]; /* blocks of their own, or with groups of 64 parts of one, equally far apart */
    void *memory;
};

static struct quants quants_of(const struct matrix *m, uint32_t bytes)
{
    return (struct quants){m->k, m->group, bytes};
}

static void board_init(struct board *b, struct rng *r, const struct matrix *m, uint32_t bytes)
{
    const struct quants q = quants_of(m, bytes);
    *b = (struct board){.n = m->n, .k = m->k, .bytes = bytes};
    if (m->group == 64) {
        b->memory = malloc(COLUMNS_MAX * quants_bytes(&q));
        assert_non_null(b->memory);
    }
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        float size = (float)(1u << c % 20) * 1e-3f;
        b->x[c] = random_values(r, m->k, c % 3 ? -size : 0, size);
        b->y[c] = random_values(r, m->n, 7, 8);
        b->rows[c] = b->memory ? (char *)b->memory + c * quants_bytes(&q) : malloc(quants_bytes(&q));
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

static void quantise(const struct kern_ops *ops, const struct matrix *m, struct board *b)
{
    const struct quants q = quants_of(m, b->bytes);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        memset(b->rows[c], 0xa5, quants_bytes(&q));
        ops->quantise(b->rows[c], &q, b->x[c], 0, m->k);
    }
}

static void product(const struct kern_ops *ops, const struct matrix *m, struct board *b, uint32_t first,
                    uint32_t count)
{
    struct kern_int_columns c = {
        .count = count, .bytes = b->bytes, .x = (const void *const *)b->rows + first, .y = b->y + first};
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < m->n; j++)
            b->y[first + i][j] = NAN;
    }
    ops->int_matmul(m, &c, 0, matrix_panels(m));
}

/* The scale and the sum of a group, in the operations of quants.h. */
static struct quants_group group_of(const float *x, uint32_t group, uint32_t bytes)
{
    float m = 0, top = bytes == 1 ? 127 : 32512;
    long sum = 0;
    for (uint32_t i = 0; i < group; i++)
        m = fmaxf(m, fabsf(x[i]));
    if (m < QUANTS_TINY)
        return (struct quants_group){0, 0};
    for (uint32_t i = 0; i < group; i++)
        sum += lrintf(x[i] * (top / m));
    return (struct quants_group){m / top, (float)sum * (m / top)};
}

static void assert_rows(const struct kern_ops *ops, const struct matrix *m, const struct board *b)
{
    for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
        const struct quants_group *got = b->rows[c];
        for (uint32_t g = 0; g < m->k / m->group; g++) {
            struct quants_group want = group_of(b->x[c] + (size_t)g * m->group, m->group, b->bytes);
            assert_same_bits(&got[g].scale, &want.scale, 1, ops->int_tier);
            assert_same_bits(&got[g].sum, &want.sum, 1, ops->int_tier);
        }
    }
}

/* Bound, of column c: a value is wrong by half a step of its group, and two roundings of its own. The sums of
 * integers are exact; a group then has a rounding of S, of the scales' product and of v.sum, and two of acc,
 * each relative to the codes without their centre. */
static void assert_product(const struct linear_source *s, const struct matrix *m, const struct board *b,
                           uint32_t c, const char *tier)
{
    double steps = 4 + 2.0 * (double)(m->k / m->group);
    for (uint32_t i = 0; i < m->n; i++) {
        double want = 0, bound = 0;
        for (uint32_t k = 0; k < m->k; k++) {
            const struct quants_group *g = (const struct quants_group *)b->rows[c] + k / m->group;
            double x = (double)b->x[c][k], weight = (double)linear_source_at(s, 0, i, k);
            double step = (double)g->scale;
            want += weight * x;
            bound += fabs(weight) * (0.5 * step + 2 * EPS * fabs(x));
            bound += steps * EPS * source_size(s, 0, i, k) * (fabs(x) + 0.5 * step);
        }
        assert_within((double)b->y[c][i], want, bound, tier);
    }
}

/* Columns in any company are what they are alone, in every tier. */
static void check_products(struct rng *r, struct linear_source *s, uint32_t bytes)
{
    static const uint32_t counts[] = {2, 3, 4, 7, 8, 9, 16, 17, 33};
    struct board b;
    void *memory;
    struct matrix m = pack_quads(s, 1, &memory);
    float *alone[COLUMNS_MAX];
    board_init(&b, r, &m, bytes);
    for (uint32_t c = 0; c < COLUMNS_MAX; c++)
        alone[c] = malloc(m.n * sizeof(float));
    EACH_TIER(ops)
    {
        quantise(ops, &m, &b);
        assert_rows(ops, &m, &b);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            product(ops, &m, &b, c, 1);
            if (ops == tiers_ && c < 3)
                assert_product(s, &m, &b, c, ops->int_tier);
            if (ops != tiers_)
                assert_same_bits(b.y[c], alone[c], m.n, ops->int_tier);
            memcpy(alone[c], b.y[c], m.n * sizeof(float));
        }
        for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
            product(ops, &m, &b, 0, counts[i]);
            for (uint32_t c = 0; c < counts[i]; c++)
                assert_same_bits(b.y[c], alone[c], m.n, ops->int_tier);
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
    static const uint32_t outs[] = {17, 1, 99};
    struct rng r = {1, 0};
    for (uint32_t b = 0; b < COUNT_OF(bits_list); b++) {
        for (uint32_t g = 0; g < COUNT_OF(group_list); g++) {
            for (uint32_t bytes = 1; bytes <= 2; bytes++) {
                uint32_t groups = 1 + (b + g + bytes) % 4;
                struct linear_source s =
                    random_affine(&r, bits_list[b], group_list[g], dtype_list[(b + g) % 3], 1,
                                  outs[(b + g) % 3], group_list[g] * groups);
                check_products(&r, &s, bytes);
            }
        }
    }
}

TEST(products_of_every_form_but_floats_and_words_agree)
{
    struct rng r = {9, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        for (uint32_t bytes = 1; bytes <= 2; bytes++) {
            struct linear_source s = random_form(&r, &kern_forms[i], 1, (i + bytes) % 2 ? 17 : 99, 512);
            assert_true(matrix_fits_quads(&s, 1) == (kern_forms[i].codes < CODES_E4M3));
            if (matrix_fits_quads(&s, 1))
                check_products(&r, &s, bytes); /* drops it */
            else
                source_drop(&s);
        }
    }
}

/* More k steps and more columns than any tier takes at once; of all bits, of groups of 16 and of codes that
 * look numbers up. */
TEST(long_rows_and_many_columns)
{
    enum { MANY = 300 };
    static const char *const others[] = {"Q3_K", "Q6_K", "IQ4_XS", "nvfp4 of MLX"};
    struct rng r = {8, 0};
    for (uint32_t i = 0; i < 6 + COUNT_OF(others); i++) {
        uint32_t group = group_list[i % 3], bytes = 1 + i / 3 % 2;
        struct linear_source s =
            i < 6 ? random_affine(&r, bits_list[i], group, DTYPE_BF16, 1, 35, 1024 + group * (1 + i % 2))
                  : random_form(&r, kern_form_named(others[i - 6]), 1, 35, 1024 + 256 * (i % 2));
        struct board b;
        void *memory, *rows[MANY];
        float *y[MANY], *alone[COLUMNS_MAX] = {0};
        struct matrix m = pack_quads(&s, 1, &memory);
        board_init(&b, &r, &m, bytes);
        for (uint32_t c = 0; c < MANY; c++)
            y[c] = malloc(m.n * sizeof(float));
        EACH_TIER(ops)
        {
            quantise(ops, &m, &b);
            for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
                product(ops, &m, &b, c, 1);
                if (alone[c])
                    assert_same_bits(b.y[c], alone[c], m.n, ops->int_tier);
                alone[c] = alone[c] ? alone[c] : malloc(m.n * sizeof(float));
                memcpy(alone[c], b.y[c], m.n * sizeof(float));
            }
            for (uint32_t c = 0; c < MANY; c++)
                rows[c] = b.rows[c % COLUMNS_MAX];
            for (uint32_t count = 6; count <= MANY; count += 98) {
                struct kern_int_columns c = {count, bytes, (const void *const *)rows, y};
                ops->int_matmul(&m, &c, 0, matrix_panels(&m));
                for (uint32_t j = 0; j < count; j++)
                    assert_same_bits(y[j], alone[j % COLUMNS_MAX], m.n, ops->int_tier);
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
}

/* Every code is the largest, and every value too: the sums have no room to spare, and are exact. */
TEST(the_largest_sums_are_exact)
{
    for (uint32_t bytes = 1; bytes <= 2; bytes++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            struct rng r = {2, 0};
            struct linear_source s = random_affine(&r, 8, 128, DTYPE_F32, 1, 16, 256);
            struct board b;
            void *memory;
            memset((void *)(uintptr_t)s.weight.data, 0xff, s.weight.bytes);
            for (uint32_t i = 0; i < 32; i++) {
                float one = 1, none = 0;
                memcpy((char *)(uintptr_t)s.scales.data + (size_t)i * 4, &one, 4);
                memcpy((char *)(uintptr_t)s.biases.data + (size_t)i * 4, &none, 4);
            }
            struct matrix m = pack_quads(&s, 1, &memory);
            board_init(&b, &r, &m, bytes);
            float top = bytes == 1 ? 127 : 32512, want = (float)sign * 2 * 128 * 255 * top;
            for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
                for (uint32_t k = 0; k < m.k; k++)
                    b.x[c][k] = (float)sign * top;
            }
            EACH_TIER(ops)
            {
                quantise(ops, &m, &b);
                for (uint32_t count = 1; count <= COLUMNS_MAX; count += 8) {
                    product(ops, &m, &b, 0, count);
                    for (uint32_t c = 0; c < count; c++) {
                        for (uint32_t i = 0; i < m.n; i++)
                            assert_same_bits(&b.y[c][i], &want, 1, ops->int_tier);
                    }
                }
            }
            board_done(&b);
            free(memory);
            source_drop(&s);
        }
    }
}

/* A group of zeros or of denormals counts nothing; one with a NaN or an infinity makes every output NaN, and
 * no other column's. */
TEST(odd_values_stay_in_their_column)
{
    struct rng r = {3, 0};
    struct linear_source s = random_affine(&r, 4, 32, DTYPE_BF16, 1, 18, 96);
    void *memory;
    struct matrix m = pack_quads(&s, 1, &memory);
    static const float odd[] = {NAN, -INFINITY, INFINITY};
    for (uint32_t bytes = 1; bytes <= 2; bytes++) {
        struct board b;
        board_init(&b, &r, &m, bytes);
        for (uint32_t k = 0; k < m.k; k++) {
            b.x[0][k] = 0;
            b.x[1][k] = k % 2 ? 0x1p-140f : -0x1p-101f;
            b.x[5][k] = k % 2 ? FLT_MAX : -FLT_MAX;
        }
        for (uint32_t i = 0; i < 3; i++)
            b.x[2 + i][17 + 32 * i] = odd[i];
        EACH_TIER(ops)
        {
            quantise(ops, &m, &b);
            product(ops, &m, &b, 0, 6);
            for (uint32_t i = 0; i < m.n; i++) {
                assert_true(b.y[0][i] == 0 && b.y[1][i] == 0);
                assert_true(isnan(b.y[2][i]) && isnan(b.y[3][i]) && isnan(b.y[4][i]));
                assert_true(!isnan(b.y[5][i]));
            }
        }
        board_done(&b);
    }
    free(memory);
    source_drop(&s);
}

/* Largest magnitudes are the largest values, whatever the factor's rounding. */
TEST(no_value_exceeds_the_top)
{
    struct rng r = {4, 0};
    struct linear_source s = random_affine(&r, 8, 32, DTYPE_F32, 1, 16, 32);
    float one = 1, none = 0;
    memset((void *)(uintptr_t)s.weight.data, 0, s.weight.bytes);
    for (uint32_t i = 0; i < 16; i++) {
        ((uint8_t *)(uintptr_t)s.weight.data)[(size_t)i * 32 + 7] = 1;
        memcpy((char *)(uintptr_t)s.scales.data + (size_t)i * 4, &one, 4);
        memcpy((char *)(uintptr_t)s.biases.data + (size_t)i * 4, &none, 4);
    }
    void *memory;
    struct matrix m = pack_quads(&s, 1, &memory);
    for (uint32_t round = 0; round < 200; round++) {
        struct board b;
        board_init(&b, &r, &m, 1 + round % 2);
        for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
            b.x[c][7] = ldexpf(random_between(&r, 1, 2), (int)(c * 6) - 90);
            for (uint32_t k = 0; k < m.k; k++)
                b.x[c][k] = k == 7 ? b.x[c][7] : b.x[c][7] * random_between(&r, -1, 1);
        }
        EACH_TIER(ops)
        {
            quantise(ops, &m, &b);
            product(ops, &m, &b, 0, COLUMNS_MAX);
            for (uint32_t c = 0; c < COLUMNS_MAX; c++) {
                float top = b.bytes == 1 ? 127 : 32512, want = top * (b.x[c][7] / top);
                assert_same_bits(&b.y[c][3], &want, 1, ops->int_tier);
            }
        }
        board_done(&b);
    }
    free(memory);
    source_drop(&s);
}

TEST(rows_quantised_in_parts_are_the_same)
{
    struct rng r = {5, 0};
    for (uint32_t g = 0; g < COUNT_OF(row_group_list); g++) {
        for (uint32_t bytes = 1; bytes <= 2; bytes++) {
            const struct quants q = {
                .k = 128 * 3 + row_group_list[g], .group = row_group_list[g], .bytes = bytes};
            float *x = random_values(&r, q.k, -1, 1);
            char *whole = calloc(1, quants_bytes(&q)), *parts = calloc(1, quants_bytes(&q));
            EACH_TIER(ops)
            {
                ops->quantise(whole, &q, x, 0, q.k);
                ops->quantise(parts, &q, x, 256, q.k);
                ops->quantise(parts, &q, x, 0, 128);
                ops->quantise(parts, &q, x, 128, 256);
                assert_memory_equal(whole, parts, quants_bytes(&q));
            }
            free(x);
            free(whole);
            free(parts);
        }
    }
}

TEST(a_range_of_panels_writes_its_rows_and_no_others)
{
    struct rng r = {6, 0};
    struct linear_source s = random_affine(&r, 3, 64, DTYPE_BF16, 1, 16 * 12 + 3, 64);
    void *memory;
    struct matrix m = pack_quads(&s, 1, &memory);
    for (uint32_t bytes = 1; bytes <= 2; bytes++) {
        struct board b;
        float *want = malloc(COLUMNS_MAX * m.n * sizeof(float));
        board_init(&b, &r, &m, bytes);
        EACH_TIER(ops)
        {
            quantise(ops, &m, &b);
            for (uint32_t count = 1; count <= COLUMNS_MAX; count += 4) {
                product(ops, &m, &b, 0, count);
                for (uint32_t j = 0; j < count; j++) {
                    memcpy(want + (size_t)j * m.n, b.y[j], m.n * sizeof(float));
                    for (uint32_t i = 0; i < m.n; i++)
                        b.y[j][i] = 77;
                }
                struct kern_int_columns c = {count, bytes, (const void *const *)b.rows, b.y};
                ops->int_matmul(&m, &c, 5, 12);
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
    }
    free(memory);
    source_drop(&s);
}

TEST(a_matrix_of_another_layout_stops_the_program)
{
    struct rng r = {7, 0};
    struct linear_source s = random_affine(&r, 4, 64, DTYPE_BF16, 1, 16, 64);
    void *memory;
    struct matrix m = pack(&s, 1, &memory);
    EACH_TIER(ops)
    {
        struct kern_int_columns c = {.count = 0, .bytes = 2};
        assert_stops(ops->int_matmul(&m, &c, 0, 1));
    }
    free(memory);
    source_drop(&s);
}

TEST_MAIN()
