/* quantise.h - groups of floats become codes with a scale and an offset: --quant, while a model is loaded.
 *
 * A group has 64 values, or 32 where a row is not a multiple of 64. It has codes of 4, 5, 6 or 8 bits, and a
 * scale and an offset in F16. A value is scale * code + offset: the affine form of quantised checkpoints, for
 * the same kernels. Plain arithmetic in one order: the same floats give the same bits on any machine. */
#ifndef PLATEAU_TENSOR_QUANTISE_H
#define PLATEAU_TENSOR_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTISE_GROUP_MAX 64

/* "q4", "q5", "q6" or "q8": bits of a code; "none": 0. False on anything else. */
bool quantise_parse(const char *name, uint32_t *ret);
const char *quantise_name(uint32_t bits);
/* Returns the bits for tables of embeddings and output matrices, which more depends on: 6 at least. */
uint32_t quantise_table_bits(uint32_t bits);
/* The group for rows of `in` values; 0: none fits, and they stay floats. */
uint32_t quantise_group_of(uint64_t in);

/* `count` values, a multiple of 8 up to QUANTISE_GROUP_MAX. Candidates for scale and offset: the range of the
 * values, four narrower ranges, and the least-squares fit to the codes of each. The candidate with the least
 * sum of squared errors is taken. F16 NaN: a value is not finite; infinite: the values do not fit in F16. */
void quantise_values(const float *x, uint32_t count, uint32_t bits, uint8_t *codes, uint16_t *scale,
                     uint16_t *offset);

#endif
