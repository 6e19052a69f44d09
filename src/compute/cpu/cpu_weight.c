/* cpu_weight.c - weights are the kernels' matrices. */
#include "compute/cpu/cpu_device.h"

#include "base/check.h"

_Static_assert(WEIGHT_PANEL == MATRIX_PANEL, "rows lie in the kernels' panels");

static unsigned sums_of(const struct matrix *m)
{
    if (!matrix_needs_sums(m))
        return 0;
    return m->group == 16 ? SUMS_16 : m->group == 32 ? SUMS_32 : m->group == 64 ? SUMS_64 : SUMS_128;
}

uint64_t cpu_weight_bytes(const struct linear_source *s, uint32_t count)
{
    return matrix_stack_bytes(s, count);
}

struct weight cpu_weight_begin(const struct linear_source *s, uint32_t count, dev_ptr at)
{
    const struct matrix m = matrix_begin(s, count, NULL);
    ASSERT(at.at % 64 == 0);
    return (struct weight){.n = m.n,
                           .k = m.k,
                           .experts = m.experts,
                           .data = at,
                           .expert_bytes = m.expert_bytes,
                           .form = (uint8_t)m.form,
                           .qparams = (uint8_t)m.qparams,
                           .bits = (uint8_t)m.bits,
                           .sums = (uint8_t)sums_of(&m),
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
