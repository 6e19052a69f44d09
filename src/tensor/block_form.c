/* block_form.c - one function for each form, written from its layout.
 *
 * A value of a scale and an offset is rounded once, from the exact product: fmaf. Bytes are read one by one or
 * through memcpy, for files give no alignment. */
#include "tensor/block_form.h"

#include "tensor/tensor.h"

#include "base/check.h"

#include <math.h>

static float half_at(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof(bits));
    return f16_to_f32(bits);
}

/* 2^(e - 127), an exponent of eight bits; e == 0 is not zero. */
static float power_of_two(uint8_t e)
{
    return ldexpf(1, (int)e - 127);
}

/* ---- single values ---- */

static void unpack_f32(const uint8_t *b, float *ret)
{
    memcpy(ret, b, sizeof(float));
}

static void unpack_f16(const uint8_t *b, float *ret)
{
    *ret = half_at(b);
}

static void unpack_bf16(const uint8_t *b, float *ret)
{
    uint16_t bits;
    memcpy(&bits, b, sizeof(bits));
    *ret = bf16_to_f32(bits);
}

/* ---- blocks of 32 ---- */

/* Value i of 32 in 16 bytes: the low halves are the first 16, the high halves the others. */
static uint32_t nibble(const uint8_t *q, uint32_t i)
{
    return i < 16 ? q[i] & 15u : q[i - 16] >> 4;
}

/* Bit i of 32. */
static uint32_t fifth_bit(const uint8_t *high, uint32_t i)
{
    return (uint32_t)(high[i / 8] >> i % 8 & 1) << 4;
}

static void unpack_q4_0(const uint8_t *b, float *ret)
{
    float d = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = d * ((float)nibble(b + 2, i) - 8);
}

static void unpack_q4_1(const uint8_t *b, float *ret)
{
    float d = half_at(b), m = half_at(b + 2);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = fmaf(d, (float)nibble(b + 4, i), m);
}

static void unpack_q5_0(const uint8_t *b, float *ret)
{
    float d = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = d * ((float)(nibble(b + 6, i) | fifth_bit(b + 2, i)) - 16);
}

static void unpack_q5_1(const uint8_t *b, float *ret)
{
    float d = half_at(b), m = half_at(b + 2);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = fmaf(d, (float)(nibble(b + 8, i) | fifth_bit(b + 4, i)), m);
}

static void unpack_q8_0(const uint8_t *b, float *ret)
{
    float d = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = d * (float)(int8_t)b[2 + i];
}

/* Of IQ4_NL and IQ4_XS. */
static const int8_t table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static void unpack_iq4_nl(const uint8_t *b, float *ret)
{
    float d = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = d * (float)table_iq4[nibble(b + 2, i)];
}

static const float table_e2m1[16] = {0,   0.5f,  1,   1.5f,  2,   3,   4,   6,
                                     -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static void unpack_mxfp4(const uint8_t *b, float *ret)
{
    float d = power_of_two(b[0]);
    for (uint32_t i = 0; i < 32; i++)
        ret[i] = d * table_e2m1[nibble(b + 1, i)];
}

/* ---- blocks of 256 ---- */

/* Scale and offset of sub-block j of 8, six bits each, from the 12 bytes that Q4_K and Q5_K have. */
static void scales_k(const uint8_t *s, uint32_t j, uint32_t *scale, uint32_t *offset)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *offset = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15u) | (uint32_t)(s[j - 4] >> 6) << 4;
        *offset = (uint32_t)(s[j + 4] >> 4) | (uint32_t)(s[j] >> 6) << 4;
    }
}

/* Sub-block j of 32: the low halves of 32 bytes, then their high halves. */
static uint32_t half_of_32(const uint8_t *q, uint32_t j, uint32_t l)
{
    uint8_t byte = q[j / 2 * 32 + l];
    return j % 2 ? byte >> 4 : byte & 15u;
}

static void unpack_q4_k(const uint8_t *b, float *ret)
{
    float d = half_at(b), dmin = half_at(b + 2);
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t scale, offset;
        scales_k(b + 4, j, &scale, &offset);
        for (uint32_t l = 0; l < 32; l++)
            *ret++ = fmaf(d * (float)scale, (float)half_of_32(b + 16, j, l), -dmin * (float)offset);
    }
}

static void unpack_q5_k(const uint8_t *b, float *ret)
{
    float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *high = b + 16, *low = b + 48;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t scale, offset;
        scales_k(b + 4, j, &scale, &offset);
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t q = half_of_32(low, j, l) | (uint32_t)(high[l] >> j & 1) << 4;
            *ret++ = fmaf(d * (float)scale, (float)q, -dmin * (float)offset);
        }
    }
}

/* Value i of 256 in six bits: 128 values have 64 bytes of low halves and 32 bytes of pairs of high bits. */
static uint32_t six_bits(const uint8_t *b, uint32_t i)
{
    const uint8_t *low = b + i / 128 * 64, *high = b + 128 + i / 128 * 32;
    uint32_t part = i % 128 / 32, l = i % 32;
    uint8_t byte = low[part % 2 * 32 + l];
    return (part < 2 ? byte & 15u : (uint32_t)byte >> 4) | (uint32_t)(high[l] >> 2 * part & 3) << 4;
}

static void unpack_q6_k(const uint8_t *b, float *ret)
{
    float d = half_at(b + 208);
    for (uint32_t i = 0; i < 256; i++)
        ret[i] = d * (float)(int8_t)b[192 + i / 16] * ((float)six_bits(b, i) - 32);
}

/* Value i of 256 in two bits. */
static uint32_t two_bits(const uint8_t *q, uint32_t i)
{
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u;
}

static void unpack_q2_k(const uint8_t *b, float *ret)
{
    float d = half_at(b + 80), dmin = half_at(b + 82);
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t s = b[i / 16];
        ret[i] = fmaf(d * (float)(s & 15), (float)two_bits(b + 16, i), -dmin * (float)(s >> 4));
    }
}

/* Scale i of 16, six bits with a sign, from 12 bytes. */
static int32_t scale_q3_k(const uint8_t *t, uint32_t i)
{
    uint32_t low = i < 8 ? t[i] & 15u : (uint32_t)t[i - 8] >> 4;
    return (int32_t)(low | (uint32_t)(t[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

static void unpack_q3_k(const uint8_t *b, float *ret)
{
    float d = half_at(b + 108);
    for (uint32_t i = 0; i < 256; i++) {
        int32_t q = (int32_t)two_bits(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4);
        ret[i] = d * (float)scale_q3_k(b + 96, i / 16) * (float)q;
    }
}

static void unpack_iq4_xs(const uint8_t *b, float *ret)
{
    float d = half_at(b);
    uint32_t high = b[2] | (uint32_t)b[3] << 8;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t low = j % 2 ? (uint32_t)b[4 + j / 2] >> 4 : b[4 + j / 2] & 15u;
        float scale = d * ((float)(low | (high >> 2 * j & 3) << 4) - 32);
        for (uint32_t i = 0; i < 32; i++)
            *ret++ = scale * (float)table_iq4[nibble(b + 8 + 16 * j, i)];
    }
}

static const struct block_form forms[] = {
    {0, "F32", 1, 4, unpack_f32},
    {1, "F16", 1, 2, unpack_f16},
    {2, "Q4_0", 32, 18, unpack_q4_0},
    {3, "Q4_1", 32, 20, unpack_q4_1},
    {6, "Q5_0", 32, 22, unpack_q5_0},
    {7, "Q5_1", 32, 24, unpack_q5_1},
    {8, "Q8_0", 32, 34, unpack_q8_0},
    {10, "Q2_K", 256, 84, unpack_q2_k},
    {11, "Q3_K", 256, 110, unpack_q3_k},
    {12, "Q4_K", 256, 144, unpack_q4_k},
    {13, "Q5_K", 256, 176, unpack_q5_k},
    {14, "Q6_K", 256, 210, unpack_q6_k},
    {20, "IQ4_NL", 32, 18, unpack_iq4_nl},
    {23, "IQ4_XS", 256, 136, unpack_iq4_xs},
    {30, "BF16", 1, 2, unpack_bf16},
    {39, "MXFP4", 32, 17, unpack_mxfp4},
};

static const struct {
    uint32_t type;
    const char *name;
} refused[] = {{9, "Q8_1"},   {15, "Q8_K"},    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
               {19, "IQ1_S"}, {21, "IQ3_S"},   {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},
               {26, "I32"},   {27, "I64"},     {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},
               {35, "TQ2_0"}, {40, "NVFP4"}};

const struct block_form *block_form_find(uint32_t type)
{
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        if (forms[i].type == type)
            return &forms[i];
    }
    return NULL;
}

const char *block_form_refused(uint32_t type)
{
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        if (refused[i].type == type)
            return refused[i].name;
    }
    return NULL;
}

uint64_t block_form_bytes(const struct block_form *f, uint64_t count)
{
    ASSERT(count % f->values == 0);
    return count / f->values * f->bytes;
}

void block_form_unpack(const struct block_form *f, const void *row, uint64_t count, float *ret)
{
    const uint8_t *block = row;
    ASSERT(count % f->values == 0);
    for (uint64_t i = 0; i < count; i += f->values, block += f->bytes)
        f->unpack(block, ret + i);
}
