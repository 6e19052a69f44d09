/* cpu_weight.c - weights are the kernels' matrices. */
#include "compute/cpu/cpu_device.h"

#include "base/check.h"

_Static_assert(WEIGHT_PANEL == MATRIX_PANEL, "rows lie in the kernels' panels");

static unsigned sums_of(const struct matrix *m)
{
    return matrix_needs_sums(m)     ? cpu_sums_flag(m->group)
           : matrix_rounds_input(m) ? cpu_quants_flag(cpu_quants_group(m))
                                    : 0;
}

/* FP8 stays in f32. */
static bool takes_quads(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    return (mode == COMPUTE_INT16 || mode == COMPUTE_INT8) && !s->exact && matrix_fits_quads(s, count);
}

/* Quantised matrices stay in f32. */
static bool takes_pairs(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    return mode == COMPUTE_BF16 && !s->exact && matrix_fits_pairs(s, count);
}

static struct matrix begin(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    return takes_quads(s, count, mode)   ? matrix_begin_quads(s, count, NULL)
           : takes_pairs(s, count, mode) ? matrix_begin_pairs(s, count, NULL)
                                         : matrix_begin(s, count, NULL);
}

uint64_t cpu_weight_bytes(const struct linear_source *s, uint32_t count, enum compute_mode mode)
{
    (void)mode;
    return matrix_stack_bytes(s, count);
}

struct weight cpu_weight_begin(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                               dev_ptr at)
{
    ASSERT(mode != COMPUTE_AUTO);
    const struct matrix m = begin(s, count, mode);
    ASSERT(at.at % 64 == 0);
    return (struct weight){.n = m.n,
                           .k = m.k,
                           .experts = m.experts,
                           .data = at,
                           .expert_bytes = m.expert_bytes,
                           .mode = matrix_rounds_input(&m) ? mode : COMPUTE_F32,
                           .form = (uint8_t)m.form,
                           .qparams = (uint8_t)m.qparams,
                           .bits = (uint8_t)m.bits,
                           .sums = (uint16_t)sums_of(&m),
                           .codes = (uint8_t)m.codes,
                           .biases = (uint8_t)m.bias_kind,
                           .group = m.group,
                           .super = m.super};
}

void cpu_weight_put(struct device *d, const struct weight *w, uint32_t at, const struct linear_source *rows)
{
    const struct matrix m = cpu_weight_matrix(w, cpu_device_of(d)->flip);
    ASSERT(!rows->transposed);
    matrix_put(&m, at, rows);
}
