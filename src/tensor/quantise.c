/* quantise.c - rounding to nearest between the ends of a range, for several ranges.
 *
 * Sums have eight lanes in a fixed order: two vectors of four. */
#include "tensor/quantise.h"

#include "tensor/tensor.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

#define LANES 8
/* Attempted shares of the whole range: an outlier may be cut off where that is better for the others. */
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

/* Half of the lanes, in one register of any machine. */
typedef float four __attribute__((vector_size(16)));
typedef int32_t four_whole __attribute__((vector_size(16)));

static inline four four_of(float x)
{
    return (four){x, x, x, x};
}

static inline four load(const float *x)
{
    four ret;
    memcpy(&ret, x, sizeof(ret));
    return ret;
}

static float sum(four even, four odd)
{
    const four by = even + odd;
    return (by[0] + by[2]) + (by[1] + by[3]);
}

/* False: a value is not finite. */
static bool find_range(const float *x, uint32_t count, float *low, float *high)
{
    four zeros = {0};
    ASSERT(count > 0 && count % LANES == 0);
    *low = *high = x[0];
    for (uint32_t i = 0; i < count; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
    for (uint32_t i = 0; i < count; i += 4)
        zeros += load(&x[i]) * four_of(0);
    return zeros[0] + zeros[1] + zeros[2] + zeros[3] == 0;
}

/* A scale, an offset, and what they make of the values. */
struct attempt {
    float scale, offset;                      /* values that F16 has */
    float error;                              /* sum of squares */
    float codes_sum, codes_squares, products; /* sums of codes, of their squares, and of codes times values */
    uint16_t halves[2];
};

/* Codes of four values: below 0 and above `most` they are cut. A comparison is all ones or zeros. */
static inline four_whole codes_of(four x, float most, float back, const struct attempt *a)
{
    four at = (x - four_of(a->offset)) * four_of(back) + four_of(0.5f);
    at = (four)((four_whole)at & (at > four_of(0)));
    const four_whole fits = at < four_of(most);
    at = (four)(((four_whole)at & fits) | ((four_whole)four_of(most) & ~fits));
    return __builtin_convertvector(at, four_whole);
}

static float back_of(const struct attempt *a)
{
    ASSERT(a->scale >= 0);
    return a->scale > 0 ? 1 / a->scale : 0;
}

struct sums {
    four errors, codes, squares, products;
};

static inline void add(struct sums *to, four x, float most, float back, const struct attempt *a)
{
    const four code = __builtin_convertvector(codes_of(x, most, back, a), four),
               error = four_of(a->scale) * code + four_of(a->offset) - x;
    to->errors += error * error;
    to->codes += code;
    to->squares += code * code;
    to->products += code * x;
}

/* Sums up the codes and their error, without keeping the codes. */
static void weigh(const float *x, uint32_t count, float most, struct attempt *a)
{
    struct sums even = {.errors = {0}}, odd = {.errors = {0}};
    const struct attempt at = *a;
    const float back = back_of(a);
    ASSERT(count % LANES == 0 && most < 256);
    for (uint32_t i = 0; i < count; i += LANES) {
        add(&even, load(&x[i]), most, back, &at);
        add(&odd, load(&x[i + 4]), most, back, &at);
    }
    a->error = sum(even.errors, odd.errors);
    a->codes_sum = sum(even.codes, odd.codes);
    a->codes_squares = sum(even.squares, odd.squares);
    a->products = sum(even.products, odd.products);
}

static void encode(const float *x, uint32_t count, float most, const struct attempt *a, uint8_t *ret)
{
    const float back = back_of(a);
    ASSERT(count % 4 == 0 && most < 256);
    for (uint32_t i = 0; i < count; i += 4) {
        const four_whole codes = codes_of(load(&x[i]), most, back, a);
        for (uint32_t l = 0; l < 4; l++)
            ret[i + l] = (uint8_t)codes[l];
    }
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
    weigh(x, count, (float)((1u << bits) - 1), ret);
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
    four even = {0}, odd = {0};
    ASSERT(x);
    for (uint32_t i = 0; i < count; i += LANES) {
        even += load(&x[i]);
        odd += load(&x[i + 4]);
    }
    return sum(even, odd);
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
    encode(x, count, levels, &best, codes);
    *scale = best.halves[0];
    *offset = best.halves[1];
}
