/* Dtypes, conversions, and what a quantised weight means. */
#include "test_rng.h"
#include "test_floats.h"
#include "test.h"

#include "tensor/tensor.h"

#include "base/check.h"

#include <math.h>

static float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

TEST(every_dtype_parses_back_from_its_name)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype back = DTYPE_COUNT;
        assert_true(dtype_parse(slice_of(dtype_name((enum dtype)d)), &back));
        assert_int_equal(back, d);
    }
    enum dtype untouched = DTYPE_F64;
    assert_false(dtype_parse(SLICE("bf16"), &untouched));
    assert_false(dtype_parse(SLICE("F32 "), &untouched));
    assert_false(dtype_parse(SLICE(""), &untouched));
    assert_int_equal(untouched, DTYPE_F64);
    assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
    assert_int_equal(dtype_bytes(DTYPE_F8_E4M3), 1);
    assert_int_equal(dtype_bytes(DTYPE_I64), 8);
}

TEST(count_is_the_product_or_says_that_it_overflows)
{
    struct tensor t = {.rank = 0};
    assert_int_equal(tensor_count(&t), 1);
    t = (struct tensor){.rank = 3, .shape = {2, 3, 4}};
    assert_int_equal(tensor_count(&t), 24);
    t = (struct tensor){.rank = 3, .shape = {1ull << 40, 1ull << 40, 0}};
    assert_int_equal(tensor_count(&t), 0);
    t = (struct tensor){.rank = 2, .shape = {1ull << 32, 1ull << 32}};
    assert_true(tensor_count(&t) == UINT64_MAX);
}

TEST(a_shape_reads_as_in_the_file)
{
    char text[160];
    const uint64_t shape[] = {8, 384, 48};
    assert_string_equal(tensor_shape_text(3, shape, text, sizeof(text)), "[8, 384, 48]");
    assert_string_equal(tensor_shape_text(0, shape, text, sizeof(text)), "[]");
    const uint64_t widest[6] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    char small[128];
    assert_true(strlen(tensor_shape_text(6, widest, small, sizeof(small))) < sizeof(small));
}

TEST(every_bf16_survives_the_way_to_f32_and_back)
{
    for (uint32_t b = 0; b < 65536; b++) {
        float f = bf16_to_f32((uint16_t)b);
        uint16_t back = f32_to_bf16(f);
        if (isnan(f))
            assert_true(isnan(bf16_to_f32(back)) && (back & 0x40));
        else
            assert_int_equal(back, b);
    }
}

/* Returns the value of a half, from the format's definition. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    double v = exponent == 0    ? ldexp(fraction, -24)
               : exponent == 31 ? (fraction ? NAN : INFINITY)
                                : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

TEST(every_f16_means_what_the_format_says)
{
    for (uint32_t h = 0; h < 65536; h++) {
        double expected = half_value((uint16_t)h);
        float f = f16_to_f32((uint16_t)h);
        if (isnan(expected)) {
            assert_true(isnan(f) && isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        assert_true(f == expected && !signbit(f) == !signbit(expected));
        assert_int_equal(f32_to_f16(f), h);
    }
}

/* `got` is the value nearest to f, or one of two equally near with an even code. `value` gives a code's
 * meaning. */
static void check_nearest_even(float f, uint16_t got, double (*value)(uint16_t))
{
    double error = fabs(value(got) - f);
    for (int step = -1; step <= 1; step += 2) {
        uint16_t next = (uint16_t)(got + step);
        double other = value(next);
        if (!isfinite(other) || (next & 0x8000) != (got & 0x8000))
            continue;
        double other_error = fabs(other - f);
        assert_true(error < other_error || (error == other_error && got % 2 == 0));
    }
}

static double bf16_value(uint16_t b)
{
    return bf16_to_f32(b);
}

PROPERTY(narrowing_rounds_to_nearest_even, seed)
{
    struct rng rng = {seed, 0};
    for (int i = 0; i < 2000; i++) {
        uint32_t bits = (uint32_t)rng_next(&rng);
        /* Half of them exactly between two codes: that is where rounding goes wrong. */
        float between_bf16 = f32_of((bits & 0xffff0000) | 0x8000), any = f32_of(bits);
        if (isfinite(any)) {
            uint16_t b = f32_to_bf16(any);
            if (isfinite(bf16_to_f32(b)))
                check_nearest_even(any, b, bf16_value);
        }
        if (isfinite(between_bf16) && isfinite(bf16_to_f32(f32_to_bf16(between_bf16))))
            check_nearest_even(between_bf16, f32_to_bf16(between_bf16), bf16_value);
        uint16_t h = (uint16_t)(bits & 0x7bff) & 0x7fff;
        double low = half_value(h), high = half_value((uint16_t)(h + 1));
        if (isfinite(high)) {
            float middle = (float)((low + high) / 2);
            check_nearest_even(middle, f32_to_f16(middle), half_value);
            float part = (float)(low + (high - low) * rng_uniform(&rng));
            check_nearest_even(part, f32_to_f16(part), half_value);
        }
    }
}

TEST(halves_overflow_to_infinity_from_the_middle_on)
{
    assert_int_equal(f32_to_f16(65504), 0x7bff);
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(f32_to_f16(0x1p-26f), 0);
    assert_int_equal(f32_to_f16(-0.0f), 0x8000);
}

TEST(values_are_read_at_any_alignment)
{
    char bytes[1 + 4 * sizeof(float)];
    for (int shift = 0; shift < 2; shift++) {
        const float values[3] = {1.5f, -2, 3};
        memcpy(bytes + shift, values, sizeof(values));
        struct tensor t = {.dtype = DTYPE_F32, .rank = 1, .shape = {3}, .data = bytes + shift};
        assert_true(tensor_f32_at(&t, 2) == 3);
        const uint16_t halves[3] = {0x3c00, 0xc000, 0x3555};
        memcpy(bytes + shift, halves, sizeof(halves));
        t.dtype = DTYPE_F16;
        assert_true(tensor_f32_at(&t, 0) == 1 && tensor_f32_at(&t, 1) == -2);
        t.dtype = DTYPE_BF16;
        const uint16_t brains[3] = {0x3f80, 0x4000, 0xbf00};
        memcpy(bytes + shift, brains, sizeof(brains));
        assert_true(tensor_f32_at(&t, 0) == 1 && tensor_f32_at(&t, 1) == 2 && tensor_f32_at(&t, 2) == -0.5f);
    }
}

/* One row, `bits` wide, as MLX packs it: u32 words for 2, 4 and 8 bits; packs of 3, 5 and 3 bytes for 3, 5
 * and 6. */
static void pack_mlx(const uint8_t *q, uint32_t n, uint32_t bits, uint8_t *ret)
{
    uint32_t values = bits == 3 || bits == 5 ? 8 : bits == 6 ? 4 : 32 / bits;
    uint32_t bytes = bits == 3 || bits == 6 ? 3 : bits == 5 ? 5 : 4;
    for (uint32_t i = 0; i < n; i += values, ret += bytes) {
        uint64_t word = 0;
        for (uint32_t j = 0; j < values; j++)
            word |= (uint64_t)q[i + j] << j * bits;
        memcpy(ret, &word, bytes);
    }
}

PROPERTY(an_affine_weight_is_scale_times_q_plus_bias, seed)
{
    enum { OUT = 3, IN = 128, EXPERTS = 2, ROWS = OUT * EXPERTS };
    static const uint32_t widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    struct rng rng = {seed, 0};
    uint32_t bits = widths[rng_below(&rng, COUNT_OF(widths))],
             group = groups[rng_below(&rng, COUNT_OF(groups))];
    uint8_t q[ROWS][IN], packed[1 + ROWS * IN];
    float scales[ROWS * IN / 32], biases[ROWS * IN / 32];
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < IN; i++)
            q[r][i] = (uint8_t)rng_below(&rng, 1u << bits);
        pack_mlx(q[r], IN, bits, packed + 1 + r * IN * bits / 8);
    }
    for (uint32_t i = 0; i < ROWS * IN / group; i++) {
        scales[i] = (float)rng_uniform(&rng) - 0.5f;
        biases[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    struct linear_source s = {
        .affine = true,
        .bits = bits,
        .group = group,
        .experts = EXPERTS,
        .out = OUT,
        .in = IN,
        .weight = {.dtype = DTYPE_U32,
                   .rank = 3,
                   .shape = {EXPERTS, OUT, IN * bits / 32},
                   .data = packed + 1},
        .scales = {.dtype = DTYPE_F32, .rank = 3, .shape = {EXPERTS, OUT, IN / group}, .data = scales},
        .biases = {.dtype = DTYPE_F32, .rank = 3, .shape = {EXPERTS, OUT, IN / group}, .data = biases},
    };
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < IN; i++) {
            uint32_t g = (r * IN + i) / group;
            float expected = (float)((double)scales[g] * q[r][i] + biases[g]);
            assert_true(fabsf(linear_source_at(&s, r / OUT, r % OUT, i) - expected) <=
                        0x1p-23f * fabsf(expected));
        }
    }
}

TEST(a_dense_weight_is_its_element)
{
    const float w[2][2][3] = {{{0, 1, 2}, {3, 4, 5}}, {{6, 7, 8}, {9, 10, 11}}};
    struct linear_source s = {.experts = 2,
                              .out = 2,
                              .in = 3,
                              .weight = {.dtype = DTYPE_F32, .rank = 3, .shape = {2, 2, 3}, .data = w}};
    assert_true(linear_source_at(&s, 1, 0, 2) == 8);
    assert_true(linear_source_at(&s, 0, 1, 1) == 4);
    assert_stops(linear_source_at(&s, 2, 0, 0));
}

TEST_MAIN()
