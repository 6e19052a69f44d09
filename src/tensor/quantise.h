/* quantise.h - groups of floats become codes with a scale and an offset: what --quant does while a model is
 * loaded.
 *
 * A group of 64 values, of 32 where a row is no multiple of 64, has codes of 4, 5, 6 or 8 bits and an F16
 * scale and offset: value = scale * code + offset. This is the affine form of quantised checkpoints, so the
 * same kernels read it. Plain arithmetic in one order: the same floats give the same bits on any machine. */
#ifndef PLATEAU_TENSOR_QUANTISE_H
#define PLATEAU_TENSOR_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTISE_GROUP_MAX 64

/* "q4", "q5", "q6" or "q8": bits of a code; "none": 0. False on anything else. */
bool quantise_parse(const char *name, uint32_t *ret);
const char *quantise_name(uint32_t bits);
/* Of tables of embeddings and of output matrices, which more depends on: 6 at least. */
uint32_t quantise_table_bits(uint32_t bits);
/* The group for rows of `in` values; 0: none fits, and they stay floats. */
uint32_t quantise_group_of(uint64_t in);

/* `count` values, a multiple of 8 up to QUANTISE_GROUP_MAX. Scale and offset are those of several tries that
 * give the least sum of squared errors: the range of the values, ranges a little narrower, and the least
 * squares fit to the codes of each. F16 NaN: a value is not finite; infinite: the values do not fit in F16. */
void quantise_values(const float *x, uint32_t count, uint32_t bits, uint8_t *codes, uint16_t *scale,
                    uint16_t *offset);

#endif
