/* cpu_sums.c - what products need beside their inputs: group sums, quantised rows, rows in BF16. */
#include "compute/cpu/cpu.h"

void cpu_sum_part(const struct cpu *c, unsigned sums, struct act a, size_t row, uint32_t from, uint32_t to)
{
    const float *x = cpu_row(c, a, row);
    for (uint32_t group = CPU_GROUP_MIN; sums != 0 && group <= CPU_GROUP_MAX; group *= 2) {
        const struct quants q = {a.width, group, c->value_bytes};
        void *quants = sums & cpu_quants_flag(group) ? cpu_quants(c, a, row, group) : NULL;
        if (sums & cpu_sums_flag(group))
            c->ops->group_sums(cpu_sums(c, a, row, group) + from / group, x + from, to - from, group);
        if (quants)
            c->ops->quantise(quants, &q, x, from, to);
    }
    if (sums & cpu_quants_flag(CPU_BF16_GROUP))
        c->ops->round_bf16(cpu_quants(c, a, row, CPU_BF16_GROUP), x, from, to);
}

void cpu_sum(const struct cpu *c, unsigned sums, struct act a, size_t row)
{
    cpu_sum_part(c, sums, a, row, 0, a.width);
}
