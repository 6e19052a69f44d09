/* kern_int_ref.c - the integer products as matrix.h and quants.h state them. A quantised row holds words in
 * their order. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"
#include "kernel/matrix_factor.h"

#include <math.h>
#include <string.h>

static void quantise_group(struct quants_group *ret, int16_t *values, const float *x, const struct quants *q)
{
    uint32_t max = 0;
    int32_t sum = 0;
    for (uint32_t i = 0; i < q->group; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        max = MAX_OF(max, bits & 0x7fffffff);
    }
    struct quants_step step = quants_step_of(max, q->bytes);
    for (uint32_t i = 0; i < q->group; i++) {
        values[i] = step.kind == QUANTS_VALUES ? (int16_t)rintf(x[i] * step.factor) : 0;
        sum += values[i];
    }
    *ret = (struct quants_group){step.scale, (float)sum * step.scale};
}

static void ref_quantise(void *row, const struct quants *q, const float *x, uint32_t from, uint32_t to)
{
    struct quants_group *groups = row;
    int16_t *values = (void *)((char *)row + quants_values_at(q));
    ASSERT(from % q->group == 0 && to % q->group == 0 && to <= q->k);
    for (uint32_t k = from; k < to; k += q->group)
        quantise_group(&groups[k / q->group], values + k, x + k, q);
}

static int32_t dot(const uint8_t *codes, const int16_t *values, uint32_t count)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += codes[i] * values[i];
    return sum;
}

/* One row's outputs of all columns: a group's codes are unpacked once for all of them. */
static void outputs(const struct matrix *w, uint32_t row, const struct kern_int_columns *c)
{
    const struct quants q = {w->k, w->group, c->bytes};
    uint8_t codes[128];
    for (uint32_t column = 0; column < c->count; column++)
        c->y[column][row] = 0;
    for (uint32_t g = 0; g < w->k / w->group; g++) {
        struct matrix_qparams p = matrix_plain_qparams(w, row, g);
        matrix_codes(w, row, g, codes);
        for (uint32_t column = 0; column < c->count; column++) {
            const struct quants_group *group = (const struct quants_group *)c->x[column] + g;
            const char *values = (const char *)c->x[column] + quants_values_at(&q);
            float s =
                (float)dot(codes, (const int16_t *)(const void *)values + (size_t)g * w->group, w->group);
            float acc = fmaf(s, p.scale * group->scale, c->y[column][row]);
            c->y[column][row] = fmaf(p.bias, group->sum, acc);
        }
    }
}

static void ref_int_matmul(const struct matrix *w, const struct kern_int_columns *c, uint32_t panel_begin,
                           uint32_t panel_end)
{
    uint32_t row_end = MIN_OF(panel_end * MATRIX_PANEL, w->n);
    ASSERT(w->form == MATRIX_QUADS);
    for (uint32_t row = panel_begin * MATRIX_PANEL; row < row_end; row++)
        outputs(w, row, c);
}

void kern_int_ref_fill(struct kern_ops *ops)
{
    ops->int_tier = "ref";
    ops->quantise = ref_quantise;
    ops->int_matmul = ref_int_matmul;
    ops->int_panels_many = 4;
    ops->int_columns_many = 64;
}
