/* cpu_experts.h - experts of a model on a device that lie in the machine's memory: the CPU computes them.
 *
 * Owns a workspace of the CPU for one layer's experts at a time. The device's backend fills in the inputs and
 * the experts that each token chose, runs, and takes a row for each pair. The weighted sum stays with the
 * device, in router order. The products are the CPU's own, so a row has the bits that a model on the CPU has.
 *
 * The engine's thread, which is one of the CPU's workers meanwhile. */
#ifndef PLATEAU_COMPUTE_CPU_EXPERTS_H
#define PLATEAU_COMPUTE_CPU_EXPERTS_H

#include "compute/backend.h"

struct compute_bytes;
struct cpu_experts;

/* Adds its bytes, in the machine's memory. */
void cpu_experts_cost(const struct compute_opts *o, struct compute_bytes *host);
/* Lays it out in o->host_memory, which frees it. 0 or -ENOMEM. */
int cpu_experts_open(const struct compute_opts *o, struct cpu_experts **ret);

/* The places of an operation over `tokens` tokens: a row of a->x.width floats for each token, [tokens][top_k]
 * experts, and a row of a->out.width floats for each pair. */
struct cpu_experts_rows {
    float *in, *out;
    size_t in_stride, out_stride; /* floats from one row to the next */
    uint32_t *chosen;
    size_t bytes; /* bytes of the block that has all three, from `in` on */
};
struct cpu_experts_rows cpu_experts_rows(const struct cpu_experts *e);
/* Computes the rows of all pairs. False: a choice is not an expert, since the device failed; the rows are
 * undefined. */
bool cpu_experts_run(struct cpu_experts *e, const struct op_experts *a, uint32_t tokens);

#endif
