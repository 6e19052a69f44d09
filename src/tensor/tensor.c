/* tensor.c - the table of dtypes, and conversions written from the formats' definitions.
 *
 * Everything that touches data goes through memcpy: checkpoints give no alignment. Nothing here is fast, and
 * nothing here needs to be: packing reads each weight once, kernels read packed weights. */
#include "tensor/tensor.h"

#include "tensor/block_form.h"

#include "base/check.h"
#include "tensor/codebook.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_BOOL] = {"BOOL", 1},       [DTYPE_U8] = {"U8", 1},           [DTYPE_I8] = {"I8", 1},
    [DTYPE_U16] = {"U16", 2},         [DTYPE_I16] = {"I16", 2},         [DTYPE_F16] = {"F16", 2},
    [DTYPE_BF16] = {"BF16", 2},       [DTYPE_U32] = {"U32", 4},         [DTYPE_I32] = {"I32", 4},
    [DTYPE_F32] = {"F32", 4},         [DTYPE_U64] = {"U64", 8},         [DTYPE_I64] = {"I64", 8},
    [DTYPE_F64] = {"F64", 8},         [DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [DTYPE_F8_E5M2] = {"F8_E5M2", 1},
    [DTYPE_F8_E8M0] = {"F8_E8M0", 1},
};

const char *dtype_name(enum dtype d)
{
    ASSERT((unsigned)d < DTYPE_COUNT);
    return dtypes[d].name;
}

bool dtype_parse(struct slice name, enum dtype *ret)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        if (slice_eq(name, slice_of(dtypes[d].name))) {
            *ret = (enum dtype)d;
            return true;
        }
    }
    return false;
}

size_t dtype_bytes(enum dtype d)
{
    ASSERT((unsigned)d < DTYPE_COUNT);
    return dtypes[d].bytes;
}

const char *tensor_form_name(const struct tensor *t)
{
    ASSERT((t->dtype == DTYPE_BLOCKS) == (t->form != NULL));
    return t->form ? t->form->name : dtype_name(t->dtype);
}

struct tensor tensor_in_memory(enum dtype dtype, uint64_t rows, size_t row, const void *data)
{
    ASSERT(row % dtype_bytes(dtype) == 0);
    return (struct tensor){.dtype = dtype,
                           .rank = 2,
                           .shape = {rows, row / dtype_bytes(dtype)},
                           .bytes = (size_t)rows * row,
                           .data = data};
}

uint64_t tensor_count(const struct tensor *t)
{
    ASSERT(t->rank <= TENSOR_RANK_MAX);
    /* A zero anywhere makes the product zero, even where the others would overflow. */
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] == 0)
            return 0;
    }
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (__builtin_mul_overflow(n, t->shape[i], &n))
            return UINT64_MAX;
    }
    return n;
}

char *tensor_shape_text(uint32_t rank, const uint64_t *shape, char *ret, size_t bytes_max)
{
    ASSERT(bytes_max >= 128 && rank <= TENSOR_RANK_MAX);
    size_t at = (size_t)snprintf(ret, bytes_max, "[");
    for (uint32_t i = 0; i < rank && at < bytes_max; i++)
        at += (size_t)snprintf(ret + at, bytes_max - at, "%s%llu", i ? ", " : "", (ull)shape[i]);
    if (at < bytes_max)
        snprintf(ret + at, bytes_max - at, "]");
    return ret;
}

bool tensor_has_shape(const struct tensor *t, uint32_t rank, const uint64_t *wanted)
{
    ASSERT(t->rank <= TENSOR_RANK_MAX);
    bool same = t->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++)
        same = t->shape[i] == wanted[i];
    return same;
}

static float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float bf16_to_f32(uint16_t b)
{
    return f32_of_bits((uint32_t)b << 16);
}

uint16_t bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31)
        return f32_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

float e4m3_to_f32(uint8_t b)
{
    uint32_t exponent = b >> 3 & 15, fraction = b & 7;
    if ((b & 0x7f) == 0x7f)
        return NAN;
    float size = exponent ? ldexpf((float)(8 + fraction), (int)exponent - 10) : ldexpf((float)fraction, -9);
    return b & 0x80 ? -size : size;
}

uint8_t e4m3_from_f32(float f)
{
    float size = fminf(fabsf(f), E4M3_MAX);
    uint32_t bits, sign = signbit(f) ? 0x80 : 0;
    ASSERT(!isnan(f));
    if (size < 0x1p-6f)
        return (uint8_t)(sign | (uint32_t)nearbyintf(size * 0x1p9f));
    memcpy(&bits, &size, sizeof(bits));
    bits = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
    return (uint8_t)(sign | bits);
}

/* A power of two: 255 is NaN. */
static float e8m0_to_f32(uint8_t b)
{
    return b == 255 ? NAN : ldexpf(1, (int)b - 127);
}

float tensor_f32_at(const struct tensor *t, uint64_t i)
{
    const char *p = (const char *)t->data + i * dtype_bytes(t->dtype);
    uint16_t half;
    float f;
    switch (t->dtype) {
    case DTYPE_BF16:
        memcpy(&half, p, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F16:
        memcpy(&half, p, sizeof half);
        return f16_to_f32(half);
    case DTYPE_F8_E4M3:
        return e4m3_to_f32(*(const uint8_t *)p);
    case DTYPE_F8_E8M0:
        return e8m0_to_f32(*(const uint8_t *)p);
    case DTYPE_I8:
        return *(const int8_t *)p;
    case DTYPE_U8:
        return *(const uint8_t *)p;
    default:
        ASSERT(t->dtype == DTYPE_F32);
        memcpy(&f, p, sizeof f);
        return f;
    }
}

uint64_t tensor_reorder_at(const struct tensor_reorder *o, uint64_t i)
{
    if (o->rows == 0 || i < o->from)
        return i;
    ASSERT(o->columns > 0 && o->size > 0);
    uint64_t k = i - o->from, grid = o->rows * o->columns, unit = k / o->size, u = unit % grid;
    return o->from + (unit - u + u % o->columns * o->rows + u / o->columns) * o->size + k % o->size;
}

/* Element `column` of a row that is one little-endian stream of `bits` bits each, lowest bit first. */
static uint32_t stream_at(const uint8_t *row, uint64_t column, uint32_t bits)
{
    uint64_t at = column * bits;
    uint32_t value = 0;
    for (uint32_t b = 0; b < bits; b++, at++)
        value |= (uint32_t)(row[at / 8] >> at % 8 & 1) << b;
    return value;
}

uint64_t linear_source_column(const struct linear_source *s, uint64_t row)
{
    ASSERT(s->transposed && row < s->out);
    if (!s->interleaved)
        return row;
    return row < s->out / 2 ? 2 * row : 2 * (row - s->out / 2) + 1;
}

float code_factor(enum code_map map, uint32_t code)
{
    static const int8_t e2m1[16] = CODES_E2M1_TABLE, iq4[16] = CODES_IQ4_TABLE;
    ASSERT(map == CODES_WHOLE || (map <= CODES_E4M3 && code < (map == CODES_E4M3 ? 256u : 16u)));
    switch (map) {
    case CODES_E2M1:
        return e2m1[code];
    case CODES_IQ4:
        return iq4[code];
    case CODES_E4M3:
        return e4m3_to_f32((uint8_t)code) * 0x1p-8f;
    default:
        return (float)code;
    }
}

float code_scale(enum code_map map)
{
    ASSERT(map <= CODES_IQ3_S);
    switch (map) {
    case CODES_E2M1:
        return 0.5f;
    case CODES_E4M3:
        return 256;
    case CODES_IQ1:
    case CODES_IQ2_XXS:
    case CODES_IQ2_XS:
    case CODES_IQ2_S:
        return 0.125f;
    case CODES_IQ3_XXS:
        return 0.25f;
    default:
        return 1;
    }
}

float code_number(enum code_map map, uint32_t code)
{
    return code_factor(map, code) * code_scale(map);
}

float code_number_at(enum code_map map, const uint8_t *codes, uint64_t at)
{
    const uint64_t place = at % CODEBOOK_VALUES;
    int8_t numbers[CODEBOOK_VALUES];
    uint32_t word = 0;
    if (!code_is_word(map))
        return code_number(map, codes[at]);
    for (uint32_t i = 0; i < CODEBOOK_VALUES; i++)
        word |= (uint32_t)codes[at - place + i] << 4 * i;
    codebook_numbers(map, word, numbers);
    return (float)numbers[place] * code_scale(map);
}

/* Value `which` of a row's pair, or its only one, above group `group`. */
static float super_at(const struct linear_source *s, uint64_t row, uint64_t group, uint32_t which)
{
    uint64_t each = s->bias_kind == BIASES_STORED ? 2 : 1, count = s->in / s->super;
    ASSERT(which < each && s->super % s->group == 0);
    return tensor_f32_at(&s->supers, (row * count + group * s->group / s->super) * each + which);
}

float linear_source_scale(const struct linear_source *s, uint64_t row, uint64_t group)
{
    ASSERT(s->affine && group < s->in / s->group);
    float own = tensor_f32_at(&s->scales, row * (s->in / s->group) + group);
    return s->super ? super_at(s, row, group, 0) * own : own;
}

float linear_source_bias(const struct linear_source *s, uint64_t row, uint64_t group)
{
    uint64_t at = row * (s->in / s->group) + group;
    if (s->bias_kind == BIASES_CENTRED)
        return s->codes == CODES_WHOLE ? -linear_source_scale(s, row, group) * (float)(1u << (s->bits - 1))
                                       : 0;
    float own = tensor_f32_at(&s->biases, at);
    if (s->bias_kind == BIASES_ZEROS)
        return -linear_source_scale(s, row, group) * own;
    return s->super ? -super_at(s, row, group, 1) * own : own;
}

/* The number of a column in a row's stream. */
static float stream_number(const struct linear_source *s, const uint8_t *row, uint64_t column)
{
    const uint64_t place = column % CODEBOOK_VALUES;
    uint8_t codes[CODEBOOK_VALUES];
    if (!code_is_word(s->codes))
        return code_number(s->codes, stream_at(row, column, s->bits));
    for (uint64_t i = 0; i < CODEBOOK_VALUES; i++)
        codes[i] = (uint8_t)stream_at(row, column - place + i, s->bits);
    return code_number_at(s->codes, codes, place);
}

float linear_source_at(const struct linear_source *s, uint64_t expert, uint64_t row, uint64_t column)
{
    ASSERT(expert < s->experts && row < s->out && column < s->in);
    uint64_t r = expert * s->out + row;
    if (s->transposed)
        return tensor_f32_at(&s->weight, (expert * s->in + column) * s->out + linear_source_column(s, row));
    if (!s->affine)
        return tensor_f32_at(&s->weight, r * s->in + column);
    const uint8_t *bytes = (const uint8_t *)s->weight.data + r * (s->in * s->bits / 8);
    float number = stream_number(s, bytes, column);
    uint64_t g = column / s->group;
    /* One rounding: the value the numbers mean. */
    return fmaf(linear_source_scale(s, r, g), number, linear_source_bias(s, r, g));
}
