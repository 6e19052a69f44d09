/* quants.h - a row of activations as whole numbers, the other side of a product with a MATRIX_QUADS matrix.
 *
 * kern_ops.quantise writes such a row and kern_ops.int_matmul of the same table reads it. It lies in
 * quants_bytes() bytes, 4-byte aligned: a scale and a sum per group, then the values in an order that is the
 * tier's own. The numbers do not depend on the tier. Of each group of the matrix's size:
 *   m = max |x[k]|, scale = m / top, v[k] = round(x[k] * (top / m)) to nearest, ties to even,
 *   sum = (float)(sum over k of v[k], exact) * scale,
 *   top = 127 for one byte, 32512 = 127 * 256 for two.
 * With m < QUANTS_TINY all of them are 0. With a NaN or an infinity among the x, v is 0 and scale and sum are
 * NaN, so the products are NaN. */
#ifndef PLATEAU_KERNEL_QUANTS_H
#define PLATEAU_KERNEL_QUANTS_H

#include "base/check.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define QUANTS_TINY 0x1p-100f
/* Values of a unit: a group has one, two or four, or a half. */
#define QUANTS_UNIT 32u

struct quants {
    uint32_t k, group; /* k % group == 0; group is 16, 32, 64 or 128 */
    uint32_t bytes;    /* bytes of a value: 1 (int8) or 2 (int16) */
};

/* Scale and sum of a group's values. */
struct quants_group {
    float scale, sum;
};

/* Offset of the values in a row. */
static inline size_t quants_values_at(const struct quants *q)
{
    return ROUND_UP(q->k / q->group * sizeof(struct quants_group), (size_t)64);
}

/* Returns the bytes of a row, in every tier: some take two bytes for a value of one. */
static inline size_t quants_bytes(const struct quants *q)
{
    return quants_values_at(q) + 2 * ROUND_UP((size_t)q->k, (size_t)64);
}

/* Inside kernel/ only. How a group is quantised whose largest |x| has the bits `max`. As whole numbers the
 * bits of positive floats have their order, and NaN is above infinity. */
enum quants_kind { QUANTS_VALUES, QUANTS_ZERO, QUANTS_NAN };
struct quants_step {
    enum quants_kind kind;
    float scale, factor;
};
static inline struct quants_step quants_step_of(uint32_t max, uint32_t bytes)
{
    const float top = bytes == 1 ? 127 : 32512;
    float m;
    __builtin_memcpy(&m, &max, sizeof m);
    if (max >= 0x7f800000)
        return (struct quants_step){QUANTS_NAN, NAN, 0};
    if (m < QUANTS_TINY)
        return (struct quants_step){QUANTS_ZERO, 0, 0};
    return (struct quants_step){QUANTS_VALUES, m / top, top / m};
}

#endif
