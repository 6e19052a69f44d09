/* quantise.c - rounding to nearest between the ends of a range, for several ranges.
 *
 * Sums have eight lanes in a fixed order, which a compiler may compute together. */
#include "tensor/quantise.h"

#include "tensor/tensor.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

#define LANES 8
/* Of the whole range: an outlier may be cut off where that is better for the others. */
static const float widths[] = {1.0f, 0.95f, 0.9f, 0.82f, 0.74f};

static const struct {
    const char *name;
    uint32_t bits;
} names[] = {{"none", 0}, {"q4", 4}, {"q5", 5}, {"q6", 6}, {"q8", 8}};

bool quantise_parse(const char *name, uint32_t *ret)
{
    ASSERT(name && ret);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i].name) == 0) {
            *ret = names[i].bits;
            return true;
        }
    }
    return false;
}

const char *quantise_name(uint32_t bits)
{
    size_t i = 0;
    while (i + 1 < COUNT_OF(names) && names[i].bits != bits)
        i++;
    ASSERT(names[i].bits == bits);
    return names[i].name;
}

uint32_t quantise_table_bits(uint32_t bits)
{
    return bits ? MAX_OF(bits, 6u) : 0;
}

uint32_t quantise_group_of(uint64_t in)
{
    return in % 64 == 0 ? 64 : in % 32 == 0 ? 32 : 0;
}

/* To the nearest, ties to even. */
static uint16_t to_half(float x)
{
    uint32_t bits;
    float size = fabsf(x);
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7e00;
    if (size >= 65520.0f)
        return sign | 0x7c00;
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)nearbyintf(size * 0x1p24f));
    memcpy(&bits, &size, sizeof(bits));
    bits += 0xfff + (bits >> 13 & 1u) - (112u << 23);
    return (uint16_t)(sign | bits >> 13);
}

static float sum(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* False: a value is not finite. */
static bool find_range(const float *x, uint32_t count, float *low, float *high)
{
    float zeros[LANES] = {0};
    ASSERT(count > 0);
    *low = *high = x[0];
    for (uint32_t i = 0; i < count; i++) {
        zeros[i % LANES] += x[i] * 0.0f;
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
    return sum(zeros) == 0;
}

/* A scale, an offset, and what they make of the values. */
struct attempt {
    float scale, offset;                      /* as F16 has them */
    float error;                              /* sum of squares */
    float codes_sum, codes_squares, products; /* of codes, and of codes with values */
    uint16_t halves[2];
    float codes[QUANTISE_GROUP_MAX]; /* whole numbers */
};

static void encode(const float *x, uint32_t count, float most, struct attempt *a)
{
    float errors[LANES] = {0}, sums[LANES] = {0}, squares[LANES] = {0}, products[LANES] = {0};
    float *const q = a->codes;
    ASSERT(count % LANES == 0 && most < 256);
    const float back = a->scale > 0 ? 1 / a->scale : 0;
    for (uint32_t i = 0; i < count; i++) {
        float at = (x[i] - a->offset) * back + 0.5f;
        at = at > 0 ? at : 0;
        at = at < most ? at : most;
        q[i] = (float)(int32_t)at;
    }
    for (uint32_t i = 0; i < count; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            float code = q[i + l], value = x[i + l], error = a->scale * code + a->offset - value;
            errors[l] += error * error;
            sums[l] += code;
            squares[l] += code * code;
            products[l] += code * value;
        }
    }
    a->error = sum(errors);
    a->codes_sum = sum(sums);
    a->codes_squares = sum(squares);
    a->products = sum(products);
}

/* False: F16 does not hold scale and offset. A scale below F16's smallest gives each value the offset. */
static bool try(const float *x, uint32_t count, uint32_t bits, float scale, float offset, struct attempt *ret)
{
    ASSERT(bits <= 8 && count <= QUANTISE_GROUP_MAX);
    ret->halves[0] = to_half(scale);
    ret->halves[1] = to_half(offset);
    ret->scale = f16_to_f32(ret->halves[0]);
    ret->offset = f16_to_f32(ret->halves[1]);
    if (!isfinite(ret->scale) || !isfinite(ret->offset) || ret->scale < 0)
        return false;
    const float back = 1 / ret->scale;
    if (ret->scale > 0 && !isfinite(back))
        return false;
    encode(x, count, (float)((1u << bits) - 1), ret);
    return true;
}

static void keep_better(struct attempt *best, const struct attempt *other)
{
    ASSERT(best != other);
    if (other->error < best->error)
        *best = *other;
}

/* Scale and offset with the least squared error for the codes of `a`. */
static bool fit(const float *x, uint32_t count, uint32_t bits, float total, const struct attempt *a,
                struct attempt *ret)
{
    ASSERT(a != ret && count > 0);
    double n = count, codes = a->codes_sum, det = n * a->codes_squares - codes * codes;
    if (det <= 0)
        return false;
    double scale = (n * a->products - codes * total) / det;
    return try(x, count, bits, (float)scale, (float)((total - scale * codes) / n), ret);
}

static float total_of(const float *x, uint32_t count)
{
    ASSERT(count % LANES == 0);
    float lanes[LANES] = {0};
    for (uint32_t i = 0; i < count; i++)
        lanes[i % LANES] += x[i];
    return sum(lanes);
}

void quantise_values(const float *x, uint32_t count, uint32_t bits, uint8_t *codes, uint16_t *scale,
                     uint16_t *offset)
{
    struct attempt best, other, refined;
    float low, high;
    ASSERT(count > 0 && count <= QUANTISE_GROUP_MAX && count % LANES == 0 && bits >= 2 && bits <= 8);
    memset(codes, 0, count);
    *scale = *offset = 0x7e00;
    if (!find_range(x, count, &low, &high))
        return;
    const float levels = (float)((1u << bits) - 1), total = total_of(x, count);
    if (!try(x, count, bits, (high - low) / levels, low, &best)) {
        *scale = *offset = 0x7c00;
        return;
    }
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        float cut = (high - low) * (1 - widths[i]);
        if (!try(x, count, bits, (high - low - cut) / levels, low + cut / 2, &other))
            continue;
        keep_better(&best, &other);
        if (fit(x, count, bits, total, &other, &refined))
            keep_better(&best, &refined);
    }
    for (uint32_t i = 0; i < count; i++)
        codes[i] = (uint8_t)best.codes[i];
    *scale = best.halves[0];
    *offset = best.halves[1];
}
