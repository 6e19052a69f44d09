/* kern_bf16_ref.c - the products in BF16 as matrix.h states them. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"
#include "kernel/matrix_factor.h"

#include <float.h>
#include <math.h>

/* Where a normal number is rounded to, a denormal is a zero of its sign. */
static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static float step(float w, uint16_t x, float sum)
{
    return flushed(fmaf(flushed(w), flushed(bf16_to_f32(x)), sum));
}

static void ref_round(uint16_t *row, const float *x, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        row[k] = bf16_from_f32(x[k]);
}

/* One row's outputs of all columns: a tile's weights are read once for all of them. */
static void outputs(const struct matrix *w, uint32_t row, const struct kern_bf16_columns *c)
{
    float weights[MATRIX_PAIRS_TILE];
    for (uint32_t column = 0; column < c->count; column++)
        c->y[column][row] = 0;
    for (uint32_t tile = 0; tile < w->k; tile += MATRIX_PAIRS_TILE) {
        for (uint32_t k = 0; k < MATRIX_PAIRS_TILE; k++)
            weights[k] = matrix_factor(w, row, tile + k);
        for (uint32_t column = 0; column < c->count; column++) {
            const uint16_t *x = c->x[column] + tile;
            float even = 0, odd = 0;
            for (uint32_t k = 0; k < MATRIX_PAIRS_TILE; k += 2) {
                even = step(weights[k], x[k], even);
                odd = step(weights[k + 1], x[k + 1], odd);
            }
            c->y[column][row] = flushed(c->y[column][row] + flushed(even + odd));
        }
    }
}

static void ref_bf16_matmul(const struct matrix *w, const struct kern_bf16_columns *c, uint32_t panel_begin,
                            uint32_t panel_end)
{
    uint32_t row_end = MIN_OF(panel_end * MATRIX_PANEL, w->n);
    ASSERT(w->form == MATRIX_PAIRS && w->k % MATRIX_PAIRS_TILE == 0);
    for (uint32_t row = panel_begin * MATRIX_PANEL; row < row_end; row++)
        outputs(w, row, c);
}

void kern_bf16_ref_fill(struct kern_ops *ops)
{
    ops->bf16_tier = "ref";
    ops->round_bf16 = ref_round;
    ops->bf16_matmul = ref_bf16_matmul;
    ops->bf16_panels_many = 4;
    ops->bf16_columns_many = 64;
}
