/* The forms of GGUF's tensors against the values that the PyPI package gguf 0.19 gives for the same bytes. */
#include "test.h"

#include "tensor/block_form.h"

#include "base/check.h"

#include <math.h>

#define BLOCKS 3

/* Blocks of pseudo-random bytes; scales are kept near 0.1. `sum`: of all values, each times a pseudo-random
 * weight in [-1, 1). `samples`: the values at sample_at(). */
static const struct {
    const char *name;
    uint32_t values, bytes;
    int halves[2]; /* where a block has scales of 16 bits; of single values their high bytes; -1: none */
    int exponent;  /* where it has a scale of one byte; -1: none */
    double sum, samples[4];
} vectors[] = {
    {"F32", 1, 4, {2, -1}, -1, 0.2291165292263031, {1.01168132, -1.77329385, -1.77329385, -1.48407984}},
    {"F16", 1, 2, {0, -1}, -1, 0.053963184356689453, {0.0866699219, 0.109313965, 0.109313965, -0.123840332}},
    {"BF16", 1, 2, {0, -1}, -1, 0.904296875, {-0.51171875, 0.7421875, 0.7421875, -0.6953125}},
    {"Q4_0", 32, 18, {0, -1}, -1, -1.4618897438049316, {-0.57220459, 0.443481445, -0.51739502, 0.261291504}},
    {"Q4_1", 32, 20, {0, 2}, -1, -7.1864290237426758, {1.55383301, -0.500183105, -0.403930664, 1.27404785}},
    {"Q5_0", 32, 22, {0, -1}, -1, 4.0706343650817871, {-1.40478516, -1.49621582, 1.17559814, 0.108276367}},
    {"Q5_1", 32, 24, {0, 2}, -1, -11.581347942352295, {-0.813964844, 1.73571777, 1.91003418, -2.12963867}},
    {"Q8_0", 32, 34, {0, -1}, -1, 10.547706127166748, {-13.8208008, -10.168396, -10.7385864, 4.6864624}},
    {"Q2_K", 256, 84, {80, 82}, -1, 13.296356678009033, {1.65429688, -0.371826172, -1.48394775, 1.54101562}},
    {"Q3_K", 256, 110, {108, -1}, -1, 10.970229625701904, {3.91357422, 3.92285156, 3.01757812, -3.30688477}},
    {"Q4_K", 256, 144, {0, 2}, -1, 422.02034950256348, {3.2355957, -8.11450195, -34.0809326, 22.6446533}},
    {"Q5_K", 256, 176, {0, 2}, -1, -490.46215152740479, {-53.9572754, -77.4555664, -27.1916504, 4.09130859}},
    {"Q6_K", 256, 210, {208, -1}, -1, 2076.1544899940491, {233.635254, 0, -39.2841797, 58.5778809}},
    {"IQ1_S",
     256,
     50,
     {0, -1},
     -1,
     7.8122382164001465,
     {-0.868606567, 0.951690674, 0.082244873, 0.0235290527}},
    {"IQ1_M",
     256,
     56,
     {54, -1},
     -1,
     -2.9896231293678284,
     {1.53266144, 0.0756225586, 1.45843506, 0.365089417}},
    {"IQ2_XXS",
     256,
     66,
     {0, -1},
     -1,
     -57.617556393146515,
     {4.68082428, 4.37412262, 0.663024902, -10.4980469}},
    {"IQ2_XS",
     256,
     74,
     {0, -1},
     -1,
     -66.301820397377014,
     {-2.49456787, -6.90593719, -1.55511475, 2.13519287}},
    {"IQ2_S",
     256,
     82,
     {0, -1},
     -1,
     -77.733338415622711,
     {2.32049561, 0.787353516, -1.09179688, -0.987052917}},
    {"IQ3_XXS", 256, 98, {0, -1}, -1, -142.7031946182251, {2.77001953, 10.3084717, 4.68566895, 11.8161011}},
    {"IQ3_S", 256, 110, {0, -1}, -1, 312.47816562652588, {-14.7235107, 13.4274902, 8.4543457, -6.34790039}},
    {"IQ4_NL", 32, 18, {0, -1}, -1, 11.457230567932129, {-4.79711914, 6.35559082, 0.928344727, -2.91809082}},
    {"IQ4_XS", 256, 136, {0, -1}, -1, 2126.1970567703247, {-38.2005005, 160.108337, 217.978821, 2.23571777}},
    {"MXFP4", 32, 17, {-1, -1}, 0, -1151.375, {64, -512, 128, 96}},
    {"NVFP4", 64, 36, {-1, -1}, -1, -296.05352783203125, {-15, 576, 0, -3.375}},
};

static const struct block_form *named(const char *name, uint32_t *type)
{
    for (*type = 0; *type < 64; (*type)++) {
        const struct block_form *f = block_form_find(*type);
        if (f && strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

static uint32_t next_byte(uint32_t *x)
{
    *x = *x * 1103515245u + 12345u;
    return *x >> 16 & 0xff;
}

static void limit_scales(size_t v, uint8_t *block)
{
    for (int i = 0; i < 2; i++) {
        int at = vectors[v].halves[i];
        bool wide = vectors[v].values == 1 && strcmp(vectors[v].name, "F16") != 0;
        if (at >= 0)
            block[at + 1] = wide ? (block[at + 1] & 0x80) | 0x3f : (block[at + 1] & 0x83) | 0x2c;
    }
    if (vectors[v].exponent >= 0)
        block[vectors[v].exponent] = 120 + (block[vectors[v].exponent] & 15);
}

static uint32_t sample_at(uint32_t i, uint32_t n)
{
    const uint32_t at[4] = {0, n / 3 + n / 7, n > 3 ? n * 2 / 3 - 1 : 1, n - 1};
    return at[i];
}

/* The data begins at an odd address, as files may have it. */
static void check_vector(size_t v)
{
    static uint8_t memory[1 + BLOCKS * 256];
    static float ret[BLOCKS * BLOCK_FORM_VALUES_MAX];
    uint32_t type, n = vectors[v].values * BLOCKS;
    const struct block_form *f = named(vectors[v].name, &type);
    double sum = 0, size = 0;
    assert_non_null(f);
    assert_int_equal(f->values, vectors[v].values);
    assert_int_equal(f->bytes, vectors[v].bytes);
    assert_int_equal(block_form_bytes(f, n), BLOCKS * f->bytes);
    uint32_t x = type + 1;
    for (uint32_t i = 0; i < BLOCKS * f->bytes; i++)
        memory[1 + i] = (uint8_t)next_byte(&x);
    for (uint32_t b = 0; b < BLOCKS; b++)
        limit_scales(v, &memory[1 + b * f->bytes]);
    block_form_unpack(f, memory + 1, n, ret);
    for (uint32_t i = 0; i < n; i++) {
        double term = (double)ret[i] * (next_byte(&x) / 128.0 - 1);
        sum += term;
        size += fabs(term);
    }
    if (!(fabs(sum - vectors[v].sum) <= 1e-7 * size))
        print_message("%s: sum %.17g\n", f->name, sum);
    assert_true(fabs(sum - vectors[v].sum) <= 1e-7 * size);
    for (uint32_t i = 0; i < 4; i++) {
        double wanted = vectors[v].samples[i];
        assert_true(fabs((double)ret[sample_at(i, n)] - wanted) <= 1e-5 * fabs(wanted));
    }
}

TEST(values_are_those_of_the_package_gguf)
{
    for (size_t v = 0; v < COUNT_OF(vectors); v++)
        check_vector(v);
}

TEST(every_form_has_a_vector)
{
    uint32_t count = 0;
    for (uint32_t type = 0; type < 64; type++) {
        const struct block_form *f = block_form_find(type);
        count += f != NULL;
        assert_true(!f ||
                    (f->type == type && f->values <= BLOCK_FORM_VALUES_MAX && !block_form_refused(type)));
    }
    assert_int_equal(count, COUNT_OF(vectors));
}

/* Codes take the bits that the table says. */
TEST(codes_fit_their_bits)
{
    uint8_t block[256];
    struct block_parts p;
    for (int byte = 0; byte < 256; byte++) {
        memset(block, byte, sizeof(block));
        for (uint32_t type = 0; type < 64; type++) {
            const struct block_form *f = block_form_find(type);
            if (!f || f->dtype != DTYPE_BLOCKS)
                continue;
            block_form_split(f, block, &p);
            for (uint32_t i = 0; i < f->values; i++)
                assert_true(p.codes[i] < 1u << f->bits);
        }
    }
}

/* An exponent of 0 is the least power of two, not zero. */
TEST(the_least_scale_of_mxfp4_is_a_power_of_two)
{
    uint8_t block[17] = {0, 0x52};
    float ret[32];
    block_form_unpack(block_form_find(39), block, 32, ret);
    assert_true(ret[0] == 0x1p-127f);
    assert_true(ret[16] == 3 * 0x1p-127f);
}

/* A scale that is not a number is 0, as the writer's own reader has it. */
TEST(the_scale_of_nvfp4_that_is_no_number_is_zero)
{
    uint8_t block[36] = {0x7f, 0x38, 0, 1};
    float ret[64];
    memset(block + 4, 0x22, 32);
    block_form_unpack(block_form_find(40), block, 64, ret);
    assert_true(ret[0] == 0 && ret[16] == 1 && ret[32] == 0 && ret[48] == 0x1p-9f);
}

TEST(forms_that_are_not_read_have_a_name)
{
    static const struct {
        uint32_t type;
        const char *name;
    } some[] = {{9, "Q8_1"}, {28, "F64"}, {34, "TQ1_0"}};
    for (size_t i = 0; i < COUNT_OF(some); i++) {
        assert_null(block_form_find(some[i].type));
        assert_string_equal(block_form_refused(some[i].type), some[i].name);
    }
    assert_null(block_form_refused(0));
    assert_null(block_form_refused(4));
    assert_null(block_form_find(4));
    assert_null(block_form_find(UINT32_MAX));
}

TEST_MAIN()
