/* cpu_experts.c - experts beside a device: a workspace that has the arrays of experts alone, and a turn of
 * the workers for each layer. */
#include "compute/cpu/cpu_experts.h"

#include "compute/cpu/cpu.h"
#include "compute/shape.h"

#include <errno.h>
#include <string.h>

enum { ARRAY_IN, ARRAY_ROWS, ARRAY_OUT, ARRAYS };

struct cpu_experts {
    struct compute_shape shape;
    struct cpu *cpu;
    struct device *device; /* the CPU */
};

/* The options of its workspace. */
struct inner {
    struct compute_shape shape;
    struct array_spec arrays[ARRAYS];
    struct compute_opts opts; /* without shape and arrays */
};

static struct inner inner_of(const struct compute_opts *o)
{
    const struct experts_opts *e = &o->experts;
    return (struct inner){.shape = {.hidden = e->in, .experts = o->shape->experts, .top_k = o->shape->top_k},
                          .arrays = {[ARRAY_IN] = {.width = e->in, .read = e->in},
                                     [ARRAY_ROWS] = {.rows = ROWS_PAIRS, .width = e->rows, .read = e->mid},
                                     [ARRAY_OUT] = {.rows = ROWS_PAIRS, .width = e->out}},
                          .opts = {.array_count = ARRAYS,
                                   .mode = e->mode,
                                   .sums = e->sums,
                                   .tokens_max = o->tokens_max,
                                   .seqs_max = 1,
                                   .device = e->cpu,
                                   .device_memory = o->host_memory,
                                   .host_memory = o->host_memory}};
}

void cpu_experts_cost(const struct compute_opts *o, struct compute_bytes *host)
{
    struct inner in = inner_of(o);
    in.opts.shape = &in.shape;
    in.opts.arrays = in.arrays;
    const struct compute_bytes own = o->experts.backend->cost(&in.opts).device;
    host->fixed += own.fixed + own.seq + ROUND_UP(sizeof(struct cpu_experts), (size_t)64);
    host->token += own.token;
    host->worker += own.worker;
}

int cpu_experts_open(const struct compute_opts *o, struct cpu_experts **ret)
{
    struct inner in = inner_of(o);
    struct cpu_experts *e = ARENA_NEW(o->host_memory, struct cpu_experts);
    struct compute *workspace;
    if (!e)
        return -ENOMEM;
    *e = (struct cpu_experts){.shape = in.shape, .device = o->experts.cpu};
    in.opts.shape = &e->shape;
    in.opts.arrays = in.arrays;
    int r = o->experts.backend->open(&in.opts, &workspace);
    if (r < 0)
        return r;
    e->cpu = cpu_of(workspace);
    *ret = e;
    return 0;
}

struct cpu_experts_rows cpu_experts_rows(const struct cpu_experts *e)
{
    const struct cpu_array *in = &e->cpu->arrays[ARRAY_IN], *out = &e->cpu->arrays[ARRAY_OUT];
    return (struct cpu_experts_rows){.in = in->base,
                                     .out = out->base,
                                     .in_stride = in->stride,
                                     .out_stride = out->stride,
                                     .chosen = e->cpu->pair_expert};
}

static void sum_input(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_experts *a = arg;
    cpu_sum(c, a->up->sums, a->x, t);
}

bool cpu_experts_run(struct cpu_experts *e, const struct op_experts *a, uint32_t tokens)
{
    struct cpu *c = e->cpu;
    struct op_experts own = *a;
    ASSERT(tokens <= c->tokens_max);
    for (uint32_t i = 0; i < tokens * e->shape.top_k; i++)
        if (c->pair_expert[i] >= e->shape.experts)
            return false;
    own.machine = false;
    own.x = (struct act){.array = ARRAY_IN, .width = a->x.width};
    own.rows = (struct act){.array = ARRAY_ROWS, .width = a->rows.width};
    own.mid = (struct act){.array = ARRAY_ROWS, .width = a->mid.width};
    own.out = (struct act){.array = ARRAY_OUT, .width = a->out.width};
    c->tokens = tokens;
    device_turn_begin(e->device);
    if (a->up->sums)
        cpu_each_token(c, sum_input, &own, own.x.width);
    cpu_sort_pairs(c);
    compute_experts_here(&c->compute, &own);
    device_turn_end(e->device);
    return true;
}

/* ---- the operation of the CPU's own workspace ---- */

/* The workspace is that of a device (compute/fake) whose experts lie in the machine's memory. */
static void compute_beside(struct cpu *c, const struct op_experts *a)
{
    const struct cpu_experts_rows p = cpu_experts_rows(c->experts);
    const uint32_t pairs = c->tokens * c->shape->top_k;
    for (uint32_t t = 0; t < c->tokens; t++)
        memcpy(p.in + t * p.in_stride, cpu_row(c, a->x, t), a->x.width * sizeof(float));
    memcpy(p.chosen, c->pair_expert, pairs * sizeof(p.chosen[0]));
    const bool chosen = cpu_experts_run(c->experts, a, c->tokens);
    ASSERT(chosen);
    for (uint32_t i = 0; i < pairs; i++)
        memcpy(cpu_row(c, a->out, i), p.out + i * p.out_stride, a->out.width * sizeof(float));
}

void cpu_experts(struct compute *compute, const struct op_experts *a)
{
    struct cpu *c = cpu_of(compute);
    if (a->machine)
        compute_beside(c, a);
    else
        compute_experts_here(compute, a);
}
