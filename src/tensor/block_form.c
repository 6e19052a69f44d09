/* block_form.c - one function for each layout of a block.
 *
 * A scale is a product of two numbers of few bits, which f32 holds exactly, and so is a bias. A value is
 * rounded once, from the exact sum. Bytes are read one by one or through memcpy: files give no alignment. */
#include "tensor/block_form.h"

#include "base/check.h"

#include <math.h>

static float half_at(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof(bits));
    return f16_to_f32(bits);
}

/* Value i of 32 in 16 bytes: the low halves are the first 16, the high halves the others. */
static uint32_t nibble(const uint8_t *q, uint32_t i)
{
    ASSERT(i < 32);
    return i < 16 ? q[i] & 15u : (uint32_t)q[i - 16] >> 4;
}

/* ---- blocks of 32 ---- */

/* Q4_0, Q4_1, Q5_0, Q5_1: a scale, with an offset or around a centre; four low bits, perhaps a fifth. */
static void split_q4_q5(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32 && (f->bits == 5) == (f->high_at > 0));
    ret->scales[0] = half_at(b);
    ret->biases[0] = f->offset_at ? half_at(b + f->offset_at) : -ret->scales[0] * (float)f->centre;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t high = f->high_at ? b[f->high_at + i / 8] >> i % 8 & 1u : 0;
        ret->codes[i] = (uint8_t)(nibble(b + f->low_at, i) | high << 4);
    }
}

static void split_q8_0(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32 && f->centre == 128);
    ret->scales[0] = half_at(b);
    ret->biases[0] = -128 * ret->scales[0];
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = b[f->low_at + i] ^ 0x80; /* two's complement, plus the centre */
}

/* IQ4_NL, IQ4_XS: the numbers of the table plus 128. */
static const uint8_t table_iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

static void split_iq4_nl(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32 && f->centre == 128);
    ret->scales[0] = half_at(b);
    ret->biases[0] = -128 * ret->scales[0];
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = table_iq4[nibble(b + f->low_at, i)];
}

/* E2M1 twice, plus 12: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
static const uint8_t table_e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* An exponent of eight bits, 2^(e - 127); 0 is no zero. */
static void split_mxfp4(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32 && f->centre == 12);
    ret->scales[0] = b[0] == 255 ? NAN : ldexpf(1, (int)b[0] - 128);
    ret->biases[0] = -12 * ret->scales[0];
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = table_e2m1[nibble(b + f->low_at, i)];
}

/* ---- blocks of 256 ---- */

/* Scale and offset of sub-block j of 8, six bits each, from the 12 bytes that Q4_K and Q5_K have. */
static void scales_k(const uint8_t *s, uint32_t j, uint32_t *scale, uint32_t *offset)
{
    ASSERT(j < 8);
    if (j < 4) {
        *scale = s[j] & 63;
        *offset = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15u) | (uint32_t)(s[j - 4] >> 6) << 4;
        *offset = (uint32_t)(s[j + 4] >> 4) | (uint32_t)(s[j] >> 6) << 4;
    }
}

/* Value i of 256: sub-blocks of 32 are the low halves of 32 bytes and their high halves in turn. */
static uint32_t half_of_32(const uint8_t *q, uint32_t i)
{
    ASSERT(i < 256);
    uint8_t byte = q[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15u : (uint32_t)byte >> 4;
}

static void split_q4_q5_k(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && (f->bits == 5) == (f->high_at > 0));
    float d = half_at(b), dmin = half_at(b + 2);
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t scale, offset;
        scales_k(b + 4, j, &scale, &offset);
        ret->scales[j] = d * (float)scale;
        ret->biases[j] = -dmin * (float)offset;
    }
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t high = f->high_at ? b[f->high_at + i % 32] >> i / 32 & 1u : 0;
        ret->codes[i] = (uint8_t)(half_of_32(b + f->low_at, i) | high << 4);
    }
}

/* Value i of 256 in two bits: of 128 values, 32 bytes have four parts of 32. */
static uint32_t two_bits(const uint8_t *q, uint32_t i)
{
    ASSERT(i < 256);
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3u;
}

/* 128 values have 64 bytes of low halves. */
static void split_q6_k(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->centre == 32);
    float d = half_at(b + 208);
    for (uint32_t j = 0; j < 16; j++) {
        ret->scales[j] = d * (float)(int8_t)b[192 + j];
        ret->biases[j] = -32 * ret->scales[j];
    }
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t low = b[i / 128 * 64 + i % 64];
        ret->codes[i] = (uint8_t)((i % 128 < 64 ? low & 15u : low >> 4u) | two_bits(b + f->high_at, i) << 4);
    }
}

static void split_q2_k(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->bits == 2);
    float d = half_at(b + 80), dmin = half_at(b + 82);
    for (uint32_t j = 0; j < 16; j++) {
        ret->scales[j] = d * (float)(b[j] & 15);
        ret->biases[j] = -dmin * (float)(b[j] >> 4);
    }
    for (uint32_t i = 0; i < 256; i++)
        ret->codes[i] = (uint8_t)two_bits(b + f->low_at, i);
}

/* Scale j of 16, six bits around 32, from 12 bytes. */
static int32_t scale_q3_k(const uint8_t *t, uint32_t j)
{
    ASSERT(j < 16);
    uint32_t low = j < 8 ? t[j] & 15u : (uint32_t)t[j - 8] >> 4;
    return (int32_t)(low | (uint32_t)(t[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32;
}

static void split_q3_k(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->centre == 4);
    float d = half_at(b + 108);
    for (uint32_t j = 0; j < 16; j++) {
        ret->scales[j] = d * (float)scale_q3_k(b + 96, j);
        ret->biases[j] = -4 * ret->scales[j];
    }
    for (uint32_t i = 0; i < 256; i++)
        ret->codes[i] = (uint8_t)(two_bits(b + f->low_at, i) | (b[i % 32] >> i / 32 & 1u) << 2);
}

static void split_iq4_xs(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->centre == 128);
    float d = half_at(b);
    uint32_t high = b[2] | (uint32_t)b[3] << 8;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t low = j % 2 ? (uint32_t)b[4 + j / 2] >> 4 : b[4 + j / 2] & 15u;
        ret->scales[j] = d * ((float)(low | (high >> 2 * j & 3) << 4) - 32);
        ret->biases[j] = -128 * ret->scales[j];
        for (uint32_t i = 0; i < 32; i++)
            ret->codes[32 * j + i] = table_iq4[nibble(b + f->low_at + 16 * j, i)];
    }
}

/* ---- the table ---- */

/* Type, name, dtype, values and bytes of a block, bits, group, function, places, centre. */
static const struct block_form forms[] = {
    {0, "F32", DTYPE_F32, 1, 4, .split = NULL},
    {1, "F16", DTYPE_F16, 1, 2, .split = NULL},
    {30, "BF16", DTYPE_BF16, 1, 2, .split = NULL},
    {2, "Q4_0", DTYPE_BLOCKS, 32, 18, 4, 32, split_q4_q5, .low_at = 2, .centre = 8},
    {3, "Q4_1", DTYPE_BLOCKS, 32, 20, 4, 32, split_q4_q5, .offset_at = 2, .low_at = 4},
    {6, "Q5_0", DTYPE_BLOCKS, 32, 22, 5, 32, split_q4_q5, .high_at = 2, .low_at = 6, .centre = 16},
    {7, "Q5_1", DTYPE_BLOCKS, 32, 24, 5, 32, split_q4_q5, .offset_at = 2, .high_at = 4, .low_at = 8},
    {8, "Q8_0", DTYPE_BLOCKS, 32, 34, 8, 32, split_q8_0, .low_at = 2, .centre = 128},
    {10, "Q2_K", DTYPE_BLOCKS, 256, 84, 2, 16, split_q2_k, .low_at = 16},
    {11, "Q3_K", DTYPE_BLOCKS, 256, 110, 3, 16, split_q3_k, .low_at = 32, .centre = 4},
    {12, "Q4_K", DTYPE_BLOCKS, 256, 144, 4, 32, split_q4_q5_k, .low_at = 16},
    {13, "Q5_K", DTYPE_BLOCKS, 256, 176, 5, 32, split_q4_q5_k, .high_at = 16, .low_at = 48},
    {14, "Q6_K", DTYPE_BLOCKS, 256, 210, 6, 16, split_q6_k, .high_at = 128, .centre = 32},
    {20, "IQ4_NL", DTYPE_BLOCKS, 32, 18, 8, 32, split_iq4_nl, .low_at = 2, .centre = 128},
    {23, "IQ4_XS", DTYPE_BLOCKS, 256, 136, 8, 32, split_iq4_xs, .low_at = 8, .centre = 128},
    {39, "MXFP4", DTYPE_BLOCKS, 32, 17, 5, 32, split_mxfp4, .low_at = 1, .centre = 12},
};

static const struct {
    uint32_t type;
    const char *name;
} refused[] = {{9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
               {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
               {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"}};

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

void block_form_split(const struct block_form *f, const void *block, struct block_parts *ret)
{
    ASSERT(f->split && f->values <= BLOCK_FORM_VALUES_MAX && f->values / f->group <= BLOCK_FORM_GROUPS_MAX);
    f->split(f, block, ret);
}

void block_form_unpack(const struct block_form *f, const void *row, uint64_t count, float *ret)
{
    struct block_parts p;
    ASSERT(count % f->values == 0);
    if (!f->split) {
        const struct tensor t = {.dtype = f->dtype, .data = row};
        for (uint64_t i = 0; i < count; i++)
            ret[i] = tensor_f32_at(&t, i);
        return;
    }
    for (const uint8_t *block = row; count > 0; count -= f->values, block += f->bytes, ret += f->values) {
        block_form_split(f, block, &p);
        for (uint32_t i = 0; i < f->values; i++)
            ret[i] = fmaf(p.scales[i / f->group], (float)p.codes[i], p.biases[i / f->group]);
    }
}
