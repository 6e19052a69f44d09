/* block_form.c - one function for each layout of a block.
 *
 * A scale of two levels is a product of two numbers of few bits, which f32 holds exactly, and so is a bias. A
 * value is rounded once, from the exact sum. Bytes are read one by one or through memcpy: files give no
 * alignment. */
#include "tensor/block_form.h"

#include "base/check.h"
#include "tensor/block_codebook.h"

#include <math.h>

static uint16_t half_at(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof(bits));
    return bits;
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
    ret->half = half_at(b);
    ret->bias_half = f->offset_at ? half_at(b + f->offset_at) : 0;
    const uint8_t *low = b + f->low_at;
    for (uint32_t i = 0; i < 16; i++) {
        ret->codes[i] = low[i] & 15;
        ret->codes[16 + i] = low[i] >> 4;
    }
    for (uint32_t i = 0; f->high_at && i < 32; i++)
        ret->codes[i] |= (uint8_t)((b[f->high_at + i / 8] >> i % 8 & 1u) << 4);
}

static void split_q8_0(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32);
    ret->half = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = b[f->low_at + i] ^ 0x80; /* two's complement, plus the centre */
}

static void split_iq4_nl(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32);
    ret->half = half_at(b);
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = (uint8_t)nibble(b + f->low_at, i);
}

static void split_mxfp4(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 32);
    ret->scales[0] = b[0];
    for (uint32_t i = 0; i < 32; i++)
        ret->codes[i] = (uint8_t)nibble(b + f->low_at, i);
}

/* Four groups of 16. A scale has no sign, and the byte of a NaN is 0. */
static void split_nvfp4(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 64 && f->group == 16);
    for (uint32_t j = 0; j < 4; j++) {
        ret->scales[j] = (b[j] & 0x7f) == 0x7f ? 0 : b[j] & 0x7f;
        for (uint32_t i = 0; i < 8; i++) {
            const uint8_t two = b[f->low_at + 8 * j + i];
            ret->codes[16 * j + i] = two & 15;
            ret->codes[16 * j + 8 + i] = two >> 4;
        }
    }
}

/* ---- blocks of 256 ---- */

/* Scale and offset of sub-block j of 8, six bits each, from the 12 bytes that Q4_K and Q5_K have. */
static void scales_k(const uint8_t *s, uint32_t j, uint8_t *scale, uint8_t *offset)
{
    ASSERT(j < 8);
    if (j < 4) {
        *scale = s[j] & 63;
        *offset = s[j + 4] & 63;
    } else {
        *scale = (uint8_t)((s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        *offset = (uint8_t)(s[j + 4] >> 4 | s[j] >> 6 << 4);
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
    ret->half = half_at(b);
    ret->bias_half = half_at(b + 2);
    for (uint32_t j = 0; j < 8; j++)
        scales_k(b + 4, j, &ret->scales[j], &ret->biases[j]);
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
    ASSERT(f->values == 256 && f->bits == 6);
    ret->half = half_at(b + 208);
    memcpy(ret->scales, b + 192, 16);
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t low = b[i / 128 * 64 + i % 64];
        ret->codes[i] = (uint8_t)((i % 128 < 64 ? low & 15u : low >> 4u) | two_bits(b + f->high_at, i) << 4);
    }
}

static void split_q2_k(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->bits == 2);
    ret->half = half_at(b + 80);
    ret->bias_half = half_at(b + 82);
    for (uint32_t j = 0; j < 16; j++) {
        ret->scales[j] = b[j] & 15;
        ret->biases[j] = b[j] >> 4;
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
    ASSERT(f->values == 256 && f->bits == 3);
    ret->half = half_at(b + 108);
    for (uint32_t j = 0; j < 16; j++)
        ret->scales[j] = (uint8_t)scale_q3_k(b + 96, j);
    for (uint32_t i = 0; i < 256; i++)
        ret->codes[i] = (uint8_t)(two_bits(b + f->low_at, i) | (b[i % 32] >> i / 32 & 1u) << 2);
}

static void split_iq4_xs(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->values == 256 && f->bits == 4);
    ret->half = half_at(b);
    uint32_t high = b[2] | (uint32_t)b[3] << 8;
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t low = j % 2 ? (uint32_t)b[4 + j / 2] >> 4 : b[4 + j / 2] & 15u;
        ret->scales[j] = (uint8_t)((low | (high >> 2 * j & 3) << 4) - 32);
        for (uint32_t i = 0; i < 32; i++)
            ret->codes[32 * j + i] = (uint8_t)nibble(b + f->low_at + 16 * j, i);
    }
}

/* ---- the table ---- */

#define BLOCKS(type, name, values, bytes, bits, group, split, scales, bias, codes, ...)                      \
    {                                                                                                        \
        type, name, DTYPE_BLOCKS, values, bytes, bits, group, split, DTYPE_##scales, bias, codes,            \
            __VA_ARGS__                                                                                      \
    }
#define STORED  BIASES_STORED
#define CENTRED BIASES_CENTRED
#define WHOLE   CODES_WHOLE
/* Type, name, dtype, values and bytes of a block, bits, group, function; scales, biases, codes; places. */
static const struct block_form forms[] = {
    {0, "F32", DTYPE_F32, 1, 4, .split = NULL},
    {1, "F16", DTYPE_F16, 1, 2, .split = NULL},
    {30, "BF16", DTYPE_BF16, 1, 2, .split = NULL},
    BLOCKS(2, "Q4_0", 32, 18, 4, 32, split_q4_q5, F16, CENTRED, WHOLE, .low_at = 2),
    BLOCKS(3, "Q4_1", 32, 20, 4, 32, split_q4_q5, F16, STORED, WHOLE, .offset_at = 2, .low_at = 4),
    BLOCKS(6, "Q5_0", 32, 22, 5, 32, split_q4_q5, F16, CENTRED, WHOLE, .high_at = 2, .low_at = 6),
    BLOCKS(7, "Q5_1", 32, 24, 5, 32, split_q4_q5, F16, STORED, WHOLE, .offset_at = 2, .high_at = 4,
           .low_at = 8),
    BLOCKS(8, "Q8_0", 32, 34, 8, 32, split_q8_0, F16, CENTRED, WHOLE, .low_at = 2),
    BLOCKS(10, "Q2_K", 256, 84, 2, 16, split_q2_k, I8, STORED, WHOLE, .low_at = 16),
    BLOCKS(11, "Q3_K", 256, 110, 3, 16, split_q3_k, I8, CENTRED, WHOLE, .low_at = 32),
    BLOCKS(12, "Q4_K", 256, 144, 4, 32, split_q4_q5_k, I8, STORED, WHOLE, .low_at = 16),
    BLOCKS(13, "Q5_K", 256, 176, 5, 32, split_q4_q5_k, I8, STORED, WHOLE, .high_at = 16, .low_at = 48),
    BLOCKS(14, "Q6_K", 256, 210, 6, 16, split_q6_k, I8, CENTRED, WHOLE, .high_at = 128),
    BLOCKS(16, "IQ2_XXS", 256, 66, 4, 32, block_codebook_iq2_xxs, I8, CENTRED, CODES_IQ2_XXS, .low_at = 2),
    BLOCKS(17, "IQ2_XS", 256, 74, 4, 16, block_codebook_iq2_xs, I8, CENTRED, CODES_IQ2_XS, .low_at = 2),
    BLOCKS(18, "IQ3_XXS", 256, 98, 4, 32, block_codebook_iq3_xxs, I8, CENTRED, CODES_IQ3_XXS, .low_at = 2),
    BLOCKS(19, "IQ1_S", 256, 50, 4, 32, block_codebook_iq1_s, I8, CENTRED, CODES_IQ1, .low_at = 2),
    BLOCKS(20, "IQ4_NL", 32, 18, 4, 32, split_iq4_nl, F16, CENTRED, CODES_IQ4, .low_at = 2),
    BLOCKS(21, "IQ3_S", 256, 110, 4, 32, block_codebook_iq3_s, I8, CENTRED, CODES_IQ3_S, .low_at = 2),
    BLOCKS(22, "IQ2_S", 256, 82, 4, 16, block_codebook_iq2_s, I8, CENTRED, CODES_IQ2_S, .low_at = 2),
    BLOCKS(23, "IQ4_XS", 256, 136, 4, 32, split_iq4_xs, I8, CENTRED, CODES_IQ4, .low_at = 8),
    BLOCKS(29, "IQ1_M", 256, 56, 4, 16, block_codebook_iq1_m, I8, CENTRED, CODES_IQ1, .low_at = 0),
    BLOCKS(39, "MXFP4", 32, 17, 4, 32, split_mxfp4, F8_E8M0, CENTRED, CODES_E2M1, .low_at = 1),
    BLOCKS(40, "NVFP4", 64, 36, 4, 16, split_nvfp4, F8_E4M3, CENTRED, CODES_E2M1, .low_at = 4),
};
#undef BLOCKS
#undef STORED
#undef CENTRED
#undef WHOLE

static const struct {
    uint32_t type;
    const char *name;
} refused[] = {{9, "Q8_1"}, {15, "Q8_K"}, {24, "I8"},    {25, "I16"},  {26, "I32"},
               {27, "I64"}, {28, "F64"},  {34, "TQ1_0"}, {35, "TQ2_0"}};

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

void block_form_source(const struct block_form *f, struct linear_source *s)
{
    ASSERT(f->split && s->in % f->values == 0);
    s->affine = true;
    s->bits = f->bits;
    s->group = f->group;
    s->codes = f->codes;
    s->bias_kind = f->bias;
    s->super = f->scales == DTYPE_I8 ? f->values : 0;
    /* Columns in another order move with their upper scales. */
    const struct tensor_reorder *o = &s->column_order;
    while (o->rows > 0 && s->super > s->group && (o->size % s->super != 0 || o->from % s->super != 0))
        s->super /= 2;
    s->scales = (struct tensor){.dtype = f->scales};
    s->biases = (struct tensor){.dtype = f->scales};
    s->supers = (struct tensor){.dtype = DTYPE_F16};
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
    bool halves = f->scales == DTYPE_F16;
    struct linear_source s = {.in = f->values, .out = 1, .experts = 1};
    block_form_source(f, &s);
    s.scales.data = halves ? (const void *)&p.half : p.scales;
    s.biases.data = halves ? (const void *)&p.bias_half : p.biases;
    for (const uint8_t *block = row; count > 0; count -= f->values, block += f->bytes, ret += f->values) {
        block_form_split(f, block, &p);
        const uint16_t both[2] = {p.half, p.bias_half};
        s.supers.data = both;
        for (uint32_t i = 0; i < f->values; i++)
            ret[i] = fmaf(linear_source_scale(&s, 0, i / f->group), code_number_at(f->codes, p.codes, i),
                          linear_source_bias(&s, 0, i / f->group));
    }
}
