/* matrix_factor.h - one stored value of a packed matrix, for the reference. Inside kernel/ only. */
#ifndef PLATEAU_KERNEL_MATRIX_FACTOR_H
#define PLATEAU_KERNEL_MATRIX_FACTOR_H

#include "kernel/matrix.h"

/* The factor of x[k] in row `row`: w[row][k] of a dense matrix, q - centre of an affine one. */
float matrix_factor(const struct matrix *m, uint32_t row, uint32_t k);

/* Scale and bias of group `group` of row `row` of an affine matrix, the bias with its centre's share. */
struct matrix_qparams {
    float scale, bias;
};
struct matrix_qparams matrix_qparams(const struct matrix *m, uint32_t row, uint32_t group);

/* As `matrix_qparams()`, but as the checkpoint has them. */
struct matrix_qparams matrix_plain_qparams(const struct matrix *m, uint32_t row, uint32_t group);
/* The q of a group of row `row` of a MATRIX_QUADS matrix: codes, or their numbers plus the centre. */
void matrix_codes(const struct matrix *m, uint32_t row, uint32_t group, uint8_t *ret);

#endif
