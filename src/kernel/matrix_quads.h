/* matrix_quads.h - the order of codes in the layout MATRIX_QUADS (matrix.h). Inside kernel/ only. */
#ifndef PLATEAU_KERNEL_MATRIX_QUADS_H
#define PLATEAU_KERNEL_MATRIX_QUADS_H

#include <stdint.h>

/* Puts `steps` codes of a checkpoint's row, the bit stream at `stream`, into lane `lane` of the units at
 * `units`, which are zeros there. steps % 32 == 0. */
void matrix_quads_put(uint8_t *units, uint32_t lane, const uint8_t *stream, uint32_t bits, uint32_t steps);
/* The codes of that lane. */
void matrix_quads_get(const uint8_t *units, uint32_t lane, uint32_t bits, uint32_t steps, uint8_t *ret);

#endif
