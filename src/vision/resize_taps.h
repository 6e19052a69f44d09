/* resize_taps.h - the arithmetic of the two passes of resize.c, in plain C and AVX2: to the bit the same.
 *
 * An output is clip((sum of input * weight + 2^21) >> 22), the weights being numbers of 22 fractional
 * bits, the sum 32 bits wide. A weight is also kept as high * 2^11 + low, 0 <= low < 2^11: both fit 16
 * bits, so that pairs of products are one instruction, and the sum is still exact. */
#ifndef PLATEAU_VISION_RESIZE_TAPS_H
#define PLATEAU_VISION_RESIZE_TAPS_H

#include <stddef.h>
#include <stdint.h>

#define RESIZE_FRACTION 22
#define RESIZE_LOW      11

struct resize_taps {
    uint32_t outputs;
    uint32_t stride;     /* weights per output, a multiple of 4; after an output's count they are 0 */
    uint32_t *first;     /* [outputs]: the input of weight 0; ascends */
    uint32_t *count;     /* [outputs]: >= 1; first + count ascends */
    int32_t *weight;     /* [outputs][stride] */
    int16_t *high, *low; /* [outputs][stride] */
};

/* Across: to[x] = sum of from[first[x] + i] * weight[x][i], for each of 3 colours. `to` has 4 spare bytes
 * at its end. */
typedef void resize_across_fn(uint8_t *to, const uint8_t *from, uint32_t from_width,
                              const struct resize_taps *t);
/* Down: to[i] = sum of rows[k][i] * weight[y][k], for i < bytes. rows has `stride` pointers; after the
 * count they point to any row. */
typedef void resize_down_fn(uint8_t *to, const uint8_t *const *rows, size_t bytes,
                            const struct resize_taps *t, uint32_t y);

resize_across_fn resize_across_plain, resize_across_avx2;
resize_down_fn resize_down_plain, resize_down_avx2;
/* Outputs [x, t->outputs), and bytes [i, bytes): the remainder for the plain code. */
void resize_across_from(uint8_t *to, const uint8_t *from, const struct resize_taps *t, uint32_t x);
void resize_down_from(uint8_t *to, const uint8_t *const *rows, size_t bytes, const struct resize_taps *t,
                      uint32_t y, size_t i);

#endif
