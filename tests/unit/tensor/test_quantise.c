/* Groups of floats under --quant: their error beside that of plain rounding, and edges. */
#include "test.h"
#include "test_floats.h"
#include "test_rng.h"

#include "tensor/quantise.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <math.h>

struct made {
    uint8_t codes[QUANTISE_GROUP_MAX];
    uint16_t scale, offset;
    double error; /* sum of squares */
};

static double value_of(const struct made *m, uint32_t i)
{
    return (double)f16_to_f32(m->scale) * m->codes[i] + (double)f16_to_f32(m->offset);
}

static struct made make(const float *x, uint32_t count, uint32_t bits)
{
    struct made m = {.error = 0};
    quantise_values(x, count, bits, m.codes, &m.scale, &m.offset);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(m.codes[i] < 1u << bits);
        m.error += (value_of(&m, i) - (double)x[i]) * (value_of(&m, i) - (double)x[i]);
    }
    return m;
}

/* To the nearest of 2^bits steps between the smallest and the largest value, in F16. */
static double plain_error(const float *x, uint32_t count, uint32_t bits)
{
    float low = x[0], high = x[0], levels = (float)((1u << bits) - 1);
    double error = 0;
    for (uint32_t i = 1; i < count; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    double scale = (double)f16_to_f32(f32_to_f16((high - low) / levels)),
           offset = (double)f16_to_f32(f32_to_f16(low));
    for (uint32_t i = 0; i < count; i++) {
        double code = fmin(fmax(rint(((double)x[i] - offset) / scale), 0), (double)levels);
        error += pow(scale * code + offset - (double)x[i], 2);
    }
    return error;
}

static void fill(struct rng *rng, float *x, uint32_t count, float size)
{
    for (uint32_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++)
            sum += rng_uniform(rng) - 0.5;
        x[i] = size * (float)sum;
    }
}

TEST(a_group_is_never_worse_than_plain_rounding)
{
    static const uint32_t bits[] = {4, 5, 6, 8};
    static const double gains[] = {0.9, 0.95, 0.97, 1}; /* gains of all groups together */
    struct rng rng = {3, 0};
    for (size_t b = 0; b < COUNT_OF(bits); b++) {
        double plain = 0, best = 0;
        for (int round = 0; round < 500; round++) {
            float x[QUANTISE_GROUP_MAX];
            const uint32_t count = round % 3 ? 64 : 32;
            fill(&rng, x, count, round % 2 ? 0.05f : 3);
            double one = plain_error(x, count, bits[b]), error = make(x, count, bits[b]).error;
            assert_true(error <= one * 1.0001 + 1e-12);
            plain += one / (x[0] * x[0] + 1);
            best += error / (x[0] * x[0] + 1);
        }
        if (best > plain * gains[b])
            fail_msg("%u bits: %g of the error of plain rounding", bits[b], best / plain);
    }
}

TEST(values_of_a_grid_remain_as_they_are)
{
    float x[QUANTISE_GROUP_MAX];
    for (uint32_t bits = 4; bits <= 8; bits++) {
        for (uint32_t i = 0; i < 64; i++)
            x[i] = 0.125f * (float)(i * 37 % (1u << bits)) - 2;
        x[5] = -2;
        x[6] = 0.125f * (float)((1u << bits) - 1) - 2;
        assert_true(make(x, 64, bits).error == 0);
    }
    for (uint32_t i = 0; i < 64; i++)
        x[i] = -0.75f;
    struct made same = make(x, 64, 4);
    assert_true(same.error == 0 && value_of(&same, 9) == -0.75);
}

/* A group of one value has that value, rounded to F16, as its offset. */
TEST(halves_are_the_nearest)
{
    float x[QUANTISE_GROUP_MAX];
    struct rng rng = {9, 0};
    for (int round = 0; round < 20000; round++) {
        float value = ldexpf((float)rng_uniform(&rng) * 2 - 1, (int)rng_below(&rng, 42) - 25);
        for (uint32_t i = 0; i < 32; i++)
            x[i] = value;
        struct made m = make(x, 32, 4);
        if (value_of(&m, 0) != (double)f16_to_f32(f32_to_f16(value)))
            fail_msg("%a becomes %a", (double)value, value_of(&m, 0));
    }
}

TEST(what_does_not_fit_is_seen_in_the_scale)
{
    float x[QUANTISE_GROUP_MAX] = {0};
    uint8_t codes[QUANTISE_GROUP_MAX];
    uint16_t scale, offset;
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        x[17] = odd[i];
        quantise_values(x, 64, 4, codes, &scale, &offset);
        assert_true(isnan(f16_to_f32(scale)));
    }
    const float large[] = {3e38f, -3e38f, 1e7f, -70000};
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        x[17] = large[i];
        x[18] = large[i] > 1e30f ? -large[i] : 0;
        quantise_values(x, 64, 4, codes, &scale, &offset);
        assert_true(!isfinite(f16_to_f32(scale)));
    }
    x[17] = 1e-30f; /* below F16: the group is zero */
    x[18] = 0;
    assert_true(value_of(&(struct made){.scale = make(x, 64, 4).scale}, 0) == 0);
}

TEST(forms_have_names)
{
    uint32_t bits = 1;
    assert_true(quantise_parse("none", &bits) && bits == 0);
    for (uint32_t wanted = 4; wanted <= 8; wanted += wanted == 6 ? 2 : 1) {
        assert_true(quantise_parse(quantise_name(wanted), &bits) && bits == wanted);
        assert_int_equal(quantise_table_bits(wanted), wanted < 6 ? 6 : wanted);
    }
    assert_false(quantise_parse("q7", &bits) || quantise_parse("", &bits) || quantise_parse("4", &bits));
    assert_int_equal(quantise_table_bits(0), 0);
    assert_true(quantise_group_of(256) == 64 && quantise_group_of(96) == 32 && quantise_group_of(80) == 0);
}

TEST_MAIN()
