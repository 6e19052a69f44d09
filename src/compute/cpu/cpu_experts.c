/* cpu_experts.c - experts beside a device: a workspace that has the arrays of experts alone, and a turn of
 * the workers for each layer. */
#include "compute/cpu/cpu_experts.h"

#include "compute/cpu/cpu.h"
#include "compute/shape.h"

#include <errno.h>
#include <string.h>

/* ARRAY_OUT lies in the block that devices copy from. */
enum { ARRAY_IN, ARRAY_ROWS, ARRAYS, ARRAY_OUT = ARRAYS };
/* Rows of the block begin as those of a GPU's arrays do, so that one copy takes them all. */
#define ROW_FLOATS 32u

struct cpu_experts {
    struct compute_shape shape;
    struct cpu *cpu;
    struct device *device; /* the CPU */
    struct cpu_experts_rows rows;
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
                                     [ARRAY_ROWS] = {.rows = ROWS_PAIRS, .width = e->rows, .read = e->mid}},
                          .opts = {.array_count = ARRAYS,
                                   .mode = e->mode,
                                   .sums = e->sums,
                                   .tokens_max = o->tokens_max,
                                   .seqs_max = 1,
                                   .device = e->cpu,
                                   .device_memory = o->host_memory,
                                   .host_memory = o->host_memory}};
}

/* The block of `tokens` tokens, without its place. */
static struct cpu_experts_rows lay_out(const struct compute_opts *o, uint64_t tokens)
{
    const uint64_t in = ROUND_UP(o->experts.in, ROW_FLOATS), out = ROUND_UP(o->experts.out, ROW_FLOATS);
    const uint64_t pairs = tokens * o->shape->top_k;
    return (struct cpu_experts_rows){.in_stride = in,
                                     .out_stride = out,
                                     .bytes = (tokens * in + pairs * out) * sizeof(float) +
                                              pairs * sizeof(uint32_t)};
}

void cpu_experts_cost(const struct compute_opts *o, struct compute_bytes *host)
{
    struct inner in = inner_of(o);
    in.opts.shape = &in.shape;
    in.opts.arrays = in.arrays;
    const struct compute_bytes own = o->experts.backend->cost(&in.opts).device;
    host->fixed += own.fixed + own.seq + ROUND_UP(sizeof(struct cpu_experts), (size_t)64) + 64;
    host->token += own.token + lay_out(o, 1).bytes;
    host->worker += own.worker;
}

static int make_block(struct cpu_experts *e, const struct compute_opts *o)
{
    struct cpu_experts_rows *r = &e->rows;
    *r = lay_out(o, o->tokens_max);
    r->in = arena_alloc(o->host_memory, r->bytes);
    if (!r->in)
        return -ENOMEM;
    r->out = r->in + o->tokens_max * r->in_stride;
    r->chosen = (uint32_t *)(r->out + (size_t)o->tokens_max * e->shape.top_k * r->out_stride);
    e->cpu->arrays[ARRAY_OUT] =
        (struct cpu_array){.base = r->out, .stride = r->out_stride, .rows = ROWS_PAIRS};
    return 0;
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
    return make_block(e, o);
}

struct cpu_experts_rows cpu_experts_rows(const struct cpu_experts *e)
{
    return e->rows;
}

/* Arguments of the operation in this workspace, and where its inputs come from. */
struct taking {
    struct op_experts own;
    const struct cpu_experts_rows *rows;
};

/* Takes a token's input, with what its products need beside it. */
static void take_input(struct cpu *c, const void *arg, uint32_t t)
{
    const struct taking *k = arg;
    const struct act x = k->own.x;
    memcpy(cpu_row(c, x, t), k->rows->in + t * k->rows->in_stride, x.width * sizeof(float));
    if (k->own.up->sums)
        cpu_sum(c, k->own.up->sums, x, t);
}

static bool take_choices(struct cpu_experts *e, uint32_t pairs)
{
    for (uint32_t i = 0; i < pairs; i++) {
        e->cpu->pair_expert[i] = e->rows.chosen[i];
        if (e->rows.chosen[i] >= e->shape.experts)
            return false;
    }
    return true;
}

bool cpu_experts_run(struct cpu_experts *e, const struct op_experts *a, uint32_t tokens)
{
    struct cpu *c = e->cpu;
    struct taking k = {*a, &e->rows};
    ASSERT(tokens <= c->tokens_max);
    if (!take_choices(e, tokens * e->shape.top_k))
        return false;
    k.own.machine = false;
    k.own.x = (struct act){.array = ARRAY_IN, .width = a->x.width};
    k.own.rows = (struct act){.array = ARRAY_ROWS, .width = a->rows.width};
    k.own.mid = (struct act){.array = ARRAY_ROWS, .width = a->mid.width};
    k.own.out = (struct act){.array = ARRAY_OUT, .width = a->out.width};
    c->tokens = tokens;
    device_turn_begin(e->device);
    cpu_each_token(c, take_input, &k, a->x.width);
    cpu_sort_pairs(c);
    compute_experts_here(&c->compute, &k.own);
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
