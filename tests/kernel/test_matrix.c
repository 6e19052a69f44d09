/* test_matrix.c - a packed matrix holds what its sources say. */
#include "test_rng.h"
#include "kern_test.h"

static const uint32_t bits_list[] = {2, 3, 4, 5, 6, 8}, group_list[] = {32, 64, 128};
static const enum dtype dtype_list[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};

/* Rows [first, first + s->out) of m are expert `expert` of s. */
static void assert_rows(const struct matrix *m, uint32_t first, const struct linear_source *s,
                        uint64_t expert)
{
    float *row = malloc(m->k * sizeof(float));
    for (uint32_t i = 0; i < s->out; i++) {
        matrix_row(m, first + i, row);
        for (uint32_t k = 0; k < m->k; k++) {
            /* Two roundings here, of the centred bias and of the sum; one in the definition. */
            double bound = s->affine ? 2 * EPS * source_size(s, expert, i, k) : 0;
            assert_within((double)row[k], (double)linear_source_at(s, expert, i, k), bound, "weight");
        }
    }
    free(row);
}

TEST(dense_rows_are_the_source)
{
    struct rng r = {1, 0};
    static const uint32_t outs[] = {1, 15, 16, 17, 35};
    for (uint32_t d = 0; d < COUNT_OF(dtype_list); d++) {
        for (uint32_t o = 0; o < COUNT_OF(outs); o++) {
            struct linear_source s = random_dense(&r, dtype_list[d], 1, outs[o], 5 + 31 * o);
            void *memory;
            struct matrix m = pack(&s, 1, &memory);
            assert_int_equal(m.n, outs[o]);
            assert_rows(&m, 0, &s, 0);
            free(memory);
            source_drop(&s);
        }
    }
}

TEST(affine_rows_are_the_source_for_all_bits_and_groups)
{
    struct rng r = {2, 0};
    for (uint32_t b = 0; b < COUNT_OF(bits_list); b++) {
        for (uint32_t g = 0; g < COUNT_OF(group_list); g++) {
            struct linear_source s = random_affine(&r, bits_list[b], group_list[g], dtype_list[g], 1, 21,
                                                   group_list[g] * (1 + b % 3));
            void *memory;
            struct matrix m = pack(&s, 1, &memory);
            assert_rows(&m, 0, &s, 0);
            free(memory);
            source_drop(&s);
        }
    }
}

/* Bits a value of a matrix takes beside its codes. */
static double sides_bits(const struct kern_form *f, uint64_t in)
{
    double each = f->bias_kind == BIASES_STORED ? 2 : 1, scale = 8.0 * (double)dtype_bytes(f->scales);
    double super = f->super == SUPER_ROW ? 32.0 / (double)in : f->super ? 16 * each / f->super : 0;
    if (code_is_word(f->codes))
        scale = 4; /* its odd number */
    return (scale * each + (f->bias_kind == BIASES_ZEROS ? 8 : 0)) / f->group + super;
}

TEST(rows_of_every_form_are_the_source_in_few_bytes)
{
    struct rng r = {9, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        const struct kern_form *f = &kern_forms[i];
        struct linear_source s = random_form(&r, f, 1, 32, 512);
        void *memory;
        struct matrix m = pack(&s, 1, &memory);
        assert_rows(&m, 0, &s, 0);
        const double bits = code_is_word(f->codes) ? code_word_bits(f->codes) / 8.0 : f->bits;
        assert_true((double)matrix_stack_bytes(&s, 1) == 32 * 512 / 8 * (bits + sides_bits(f, 512)));
        free(memory);
        source_drop(&s);
    }
}

/* The rows of a source in both layouts, bit for bit. */
static void assert_same_rows(const struct linear_source *s)
{
    void *memory[2];
    struct matrix m[2] = {pack(s, 1, &memory[0]), pack_quads(s, 1, &memory[1])};
    float *rows = malloc(2 * m[0].k * sizeof(float));
    assert_int_equal(m[1].form, MATRIX_QUADS);
    assert_int_equal(m[0].expert_bytes, m[1].expert_bytes);
    for (uint32_t e = 0; e < m[0].experts; e++) {
        const struct matrix one[2] = {matrix_expert(&m[0], e), matrix_expert(&m[1], e)};
        for (uint32_t i = 0; i < m[0].n; i++) {
            matrix_row(&one[0], i, rows);
            matrix_row(&one[1], i, rows + m[0].k);
            assert_memory_equal(rows, rows + m[0].k, m[0].k * sizeof(float));
        }
    }
    free(rows);
    free(memory[0]);
    free(memory[1]);
}

TEST(quads_of_every_form_but_floats_and_words_are_the_source)
{
    struct rng r = {10, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        const struct kern_form *f = &kern_forms[i];
        struct linear_source s = random_form(&r, f, 1, 21, 512);
        void *memory;
        assert_true(matrix_fits_quads(&s, 1) == (f->codes < CODES_E4M3));
        if (matrix_fits_quads(&s, 1)) {
            struct matrix m = pack_quads(&s, 1, &memory);
            assert_rows(&m, 0, &s, 0);
            assert_same_rows(&s);
            free(memory);
        }
        source_drop(&s);
    }
}

/* A row, or an upper scale, that ends within a pair. */
TEST(groups_of_16_are_quads_in_pairs_alone)
{
    struct rng r = {12, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        const struct kern_form *f = &kern_forms[i];
        if (f->group != 16 || code_is_word(f->codes))
            continue;
        struct linear_source s = random_form(&r, f, 1, 3, 512);
        assert_true(matrix_fits_quads(&s, 1));
        s.super = 16;
        assert_false(matrix_fits_quads(&s, 1));
        s.super = 0;
        s.in = 496;
        assert_false(matrix_fits_quads(&s, 1));
        source_drop(&s);
    }
}

/* The layouts hold the same weights in as many bytes: a row's values do not depend on it. */
TEST(rows_of_quads_are_the_same_for_all_bits_and_groups)
{
    struct rng r = {7, 0};
    for (uint32_t b = 0; b < COUNT_OF(bits_list); b++) {
        for (uint32_t g = 0; g < COUNT_OF(group_list); g++) {
            struct linear_source s = random_affine(&r, bits_list[b], group_list[g], dtype_list[g], 3, 21,
                                                   group_list[g] * (1 + b % 3));
            assert_same_rows(&s);
            source_drop(&s);
        }
    }
}

/* A line is 16 rows x 2 steps. Packed files depend on it. */
TEST(lines_of_pairs_lie_as_documented)
{
    struct rng r = {11, 0};
    struct linear_source s = random_dense(&r, DTYPE_BF16, 1, 21, 96);
    void *memory;
    struct matrix m = pack_pairs(&s, &memory);
    assert_int_equal(m.form, MATRIX_PAIRS);
    assert_rows(&m, 0, &s, 0);
    for (uint32_t row = 0; row < 32; row++) {
        const char *panel = (const char *)m.data + row / 16 * matrix_panel_bytes(&m);
        for (uint32_t k = 0; k < 96; k++) {
            uint16_t half, want = 0;
            memcpy(&half, panel + (size_t)k / 2 * 64 + row % 16 * 4 + k % 2 * 2, 2);
            if (row < 21)
                memcpy(&want, (const char *)s.weight.data + ((size_t)row * 96 + k) * 2, 2);
            assert_int_equal(half, want);
        }
    }
    free(memory);
    source_drop(&s);
}

TEST(pairs_of_f16_are_rounded_and_others_do_not_fit)
{
    struct rng r = {12, 0};
    struct linear_source s = random_dense(&r, DTYPE_F16, 3, 18, 64);
    void *memory;
    struct matrix m = pack_pairs(&s, &memory);
    float values[64];
    for (uint32_t e = 0; e < 3; e++) {
        struct matrix one = matrix_expert(&m, e);
        for (uint32_t i = 0; i < 18; i++) {
            matrix_row(&one, i, values);
            for (uint32_t k = 0; k < 64; k++) {
                float want = bf16_to_f32(f32_to_bf16(linear_source_at(&s, e, i, k)));
                assert_same_bits(&values[k], &want, 1, "f16");
            }
        }
    }
    free(memory);
    source_drop(&s);
    struct linear_source others[] = {random_dense(&r, DTYPE_F32, 1, 16, 32),
                                     random_dense(&r, DTYPE_BF16, 1, 16, 48),
                                     random_affine(&r, 8, 32, DTYPE_BF16, 1, 16, 32)};
    for (uint32_t i = 0; i < COUNT_OF(others); i++) {
        assert_false(matrix_fits_pairs(&others[i], 1));
        source_drop(&others[i]);
    }
}

/* With 8 bits a line is 16 rows x 4 steps; with 4 bits its high nibbles are the steps 16 later. Packed files
 * depend on it. */
TEST(lines_of_quads_lie_as_documented)
{
    struct rng r = {8, 0};
    for (uint32_t bits = 4; bits <= 8; bits += 4) {
        struct linear_source s = random_affine(&r, bits, 64, DTYPE_BF16, 1, 16, 64);
        void *memory;
        struct matrix m = pack_quads(&s, 1, &memory);
        const uint8_t *codes = (const uint8_t *)m.data + 2 * matrix_qparam_bytes(&m);
        for (uint32_t row = 0; row < 16; row++) {
            for (uint32_t k = 0; k < 64; k++) {
                const uint8_t *stream = (const uint8_t *)s.weight.data + (size_t)row * 8 * bits;
                uint32_t unit = k / 32, quad = k % 32 / 4, lines = bits;
                uint32_t want = stream[k * bits / 8] >> k * bits % 8 & ((1u << bits) - 1);
                uint32_t at = unit * bits * 64 + quad % lines * 64 + row * 4 + k % 4;
                assert_int_equal(codes[at] >> quad / lines * 4 & ((1u << bits) - 1), want);
            }
        }
        free(memory);
        source_drop(&s);
    }
}

/* Two groups of 16: the scales of both, then a unit, whose second half is the second group's. */
TEST(pairs_of_groups_lie_as_documented)
{
    struct rng r = {11, 0};
    struct linear_source s = random_affine(&r, 2, 16, DTYPE_BF16, 1, 16, 64);
    void *memory;
    struct matrix m = pack_quads(&s, 1, &memory);
    const size_t sides = 2 * matrix_qparam_bytes(&m);
    for (uint32_t row = 0; row < 16; row++) {
        const uint8_t *stream = (const uint8_t *)s.weight.data + (size_t)row * 16;
        for (uint32_t g = 0; g < 4; g++) {
            const uint8_t *pair = (const uint8_t *)m.data + g / 2 * (2 * sides + 128);
            const uint8_t *scale = pair + g % 2 * sides + (size_t)row * 2;
            assert_memory_equal(scale, (const uint8_t *)s.scales.data + (row * 4 + g) * 2, 2);
            assert_memory_equal(scale + 32, (const uint8_t *)s.biases.data + (row * 4 + g) * 2, 2);
            for (uint32_t k = 0; k < 16; k++) {
                uint32_t at = g * 16 + k, quad = g % 2 * 4 + k / 4;
                uint32_t want = stream[at / 4] >> at % 4 * 2 & 3;
                const uint8_t *line = pair + 2 * sides + quad % 2 * 64;
                assert_int_equal(line[row * 4 + k % 4] >> quad / 2 * 2 & 3, want);
            }
        }
    }
    free(memory);
    source_drop(&s);
}

TEST(stacked_sources_keep_their_order)
{
    struct rng r = {3, 0};
    struct linear_source dense[3], affine[3];
    static const uint32_t outs[] = {7, 32, 10};
    void *memory;
    for (uint32_t i = 0; i < 3; i++) {
        dense[i] = random_dense(&r, DTYPE_BF16, 1, outs[i], 40);
        affine[i] = random_affine(&r, 5, 32, DTYPE_BF16, 1, outs[i], 64);
    }
    struct matrix m = pack(dense, 3, &memory);
    for (uint32_t i = 0, first = 0; i < 3; first += outs[i++])
        assert_rows(&m, first, &dense[i], 0);
    free(memory);
    m = pack(affine, 3, &memory);
    for (uint32_t i = 0, first = 0; i < 3; first += outs[i++])
        assert_rows(&m, first, &affine[i], 0);
    free(memory);
    for (uint32_t i = 0; i < 3; i++) {
        source_drop(&dense[i]);
        source_drop(&affine[i]);
    }
}

TEST(each_expert_is_a_matrix_of_its_own)
{
    struct rng r = {4, 0};
    struct linear_source s[2] = {random_dense(&r, DTYPE_F16, 5, 19, 24),
                                 random_affine(&r, 3, 32, DTYPE_F16, 5, 19, 64)};
    for (uint32_t i = 0; i < 2; i++) {
        void *memory;
        struct matrix m = pack(&s[i], 1, &memory);
        for (uint32_t e = 0; e < 5; e++) {
            struct matrix one = matrix_expert(&m, e);
            assert_int_equal(one.experts, 1);
            assert_rows(&one, 0, &s[i], e);
        }
        assert_stops(matrix_expert(&m, 5));
        free(memory);
        source_drop(&s[i]);
    }
}

TEST(sources_of_whole_panels_need_no_more_together_than_apart)
{
    struct rng r = {5, 0};
    struct linear_source s[2] = {random_affine(&r, 6, 64, DTYPE_BF16, 1, 48, 128),
                                 random_affine(&r, 6, 64, DTYPE_BF16, 1, 16, 128)};
    assert_true(matrix_stack_bytes(s, 2) <= matrix_stack_bytes(&s[0], 1) + matrix_stack_bytes(&s[1], 1));
    /* 6 bits cost 6 bits, scales and biases what they cost in the checkpoint. */
    assert_int_equal(matrix_stack_bytes(&s[0], 1), 48 * 128 * 6 / 8 + 48 * 2 * 2 * 2);
    s[1].biases.dtype = DTYPE_F32;
    assert_int_equal(matrix_stack_bytes(&s[1], 1), 16 * 128 * 6 / 8 + 16 * 2 * 2 * 4);
    source_drop(&s[0]);
    source_drop(&s[1]);
}

TEST(another_bit_width_stops_the_program)
{
    struct linear_source s = {.affine = true, .bits = 7, .group = 32, .experts = 1, .out = 16, .in = 32};
    assert_stops(matrix_stack_bytes(&s, 1));
}

static struct matrix pack_one_pairs(const struct linear_source *s, uint32_t count, void **memory_ret)
{
    assert_int_equal(count, 1);
    return pack_pairs(s, memory_ret);
}

typedef struct matrix pack_fn(const struct linear_source *s, uint32_t count, void **memory_ret);

/* Copies row 3 of `from` over row 17 of `to`: row 17 is then the other's, and the rest is unchanged. */
static void copy_one_row(const struct linear_source *from, const struct linear_source *to, pack_fn *pack_as)
{
    void *memory[2];
    struct matrix m[2] = {pack_as(from, 1, &memory[0]), pack_as(to, 1, &memory[1])};
    float *before = malloc(2 * m[0].k * sizeof(float)), *row = before + m[0].k;
    assert_rows(&m[1], 0, to, 0);
    matrix_copy_row(&m[1], 17, &m[0], 3);
    matrix_row(&m[0], 3, before);
    matrix_row(&m[1], 17, row);
    assert_memory_equal(before, row, m[0].k * sizeof(float));
    free(memory[0]);
    struct matrix untouched = pack_as(to, 1, &memory[0]);
    for (uint32_t i = 0; i < m[1].n; i++) {
        if (i == 17)
            continue;
        matrix_row(&untouched, i, before);
        matrix_row(&m[1], i, row);
        assert_memory_equal(before, row, m[0].k * sizeof(float));
    }
    free(memory[0]);
    free(memory[1]);
    free(before);
}

TEST(a_row_of_pairs_is_copied)
{
    struct rng r = {13, 0};
    struct linear_source from = random_dense(&r, DTYPE_BF16, 1, 9, 64),
                         to = random_dense(&r, DTYPE_BF16, 1, 33, 64);
    copy_one_row(&from, &to, pack_one_pairs);
    source_drop(&from);
    source_drop(&to);
}

TEST(a_row_is_copied_in_every_form)
{
    struct rng r = {6, 0};
    for (uint32_t d = 0; d < COUNT_OF(dtype_list); d++) {
        struct linear_source from = random_dense(&r, dtype_list[d], 1, 9, 37),
                             to = random_dense(&r, dtype_list[d], 1, 33, 37);
        copy_one_row(&from, &to, pack);
        source_drop(&from);
        source_drop(&to);
        for (uint32_t b = 0; b < COUNT_OF(bits_list); b++) {
            from = random_affine(&r, bits_list[b], group_list[d], dtype_list[d], 1, 9, 2 * group_list[d]);
            to = random_affine(&r, bits_list[b], group_list[d], dtype_list[d], 1, 33, 2 * group_list[d]);
            copy_one_row(&from, &to, pack);
            copy_one_row(&from, &to, pack_quads);
            source_drop(&from);
            source_drop(&to);
        }
    }
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        struct linear_source from = random_form(&r, &kern_forms[i], 1, 9, 512),
                             to = random_form(&r, &kern_forms[i], 1, 33, 512);
        copy_one_row(&from, &to, pack);
        if (matrix_fits_quads(&from, 1))
            copy_one_row(&from, &to, pack_quads);
        source_drop(&from);
        source_drop(&to);
    }
}

TEST_MAIN()
