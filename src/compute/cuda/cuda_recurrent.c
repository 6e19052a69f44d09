/* cuda_recurrent.c - convolutions and recurrences: the delta net, Mamba-2, the short convolution. */
#include "compute/cuda/cuda_step.h"
#include "compute/layout.h"
#include "compute/shape.h"

#include <math.h>

#define CHANNELS      128u /* channels of a block */
#define STATE_COLUMNS 32u  /* columns of a block, as in kernels/recurrent.cu */
#define STATE_ROWS    128u /* rows of a column in registers */
#define WARP_HEADS    (CHANNELS / 32u)

_Static_assert(CHANNELS == STATE_ROWS, "a head's channels are a block");

/* A block has its tokens one after the other. Few tokens have blocks of their own. */
#define CONV_TOKENS_FEW 128u
#define CONV_TOKENS     16u

static void run_conv(struct cuda *c, struct cuda_conv k)
{
    uint32_t blocks = DIV_UP(k.channels, CHANNELS);
    k.each = c->step.tokens > CONV_TOKENS_FEW ? CONV_TOKENS : 1;
    ASSERT(k.taps >= 1 && k.taps <= 8 && k.u.at != k.y.at);
    cuda_run_step(c, CUDA_KERNEL_conv,
                  (struct cuda_grid){blocks, DIV_UP(c->step.tokens, k.each), 1, CHANNELS, 0}, &k);
    if (c->step.tokens != c->step.seqs)
        cuda_run_step(c, CUDA_KERNEL_conv_keep, (struct cuda_grid){blocks, c->step.seqs, 1, CHANNELS, 0}, &k);
}

struct recurrence {
    uint32_t columns, heads, rows; /* shape of a head's state: rows values in a column */
    struct cuda_rows x;
    uint64_t pending; /* offset of a pending token's rows, ORed with the distance between tokens */
    bool square;      /* the kernel for columns in registers takes as many as they have rows */
    uint32_t threads; /* that it has for each column */
};

/* Whether columns stay in registers: whole blocks of them, whose inputs come in pieces of 16 bytes. */
static bool can_walk(const struct cuda *c, const struct recurrence *r)
{
    uint64_t places = (uintptr_t)r->x.at | r->x.stride * sizeof(float) | r->pending | c->step.state_bytes;
    bool whole = r->square ? r->columns == r->rows : r->columns % STATE_COLUMNS == 0;
    return r->rows == STATE_ROWS && whole && places % 16 == 0;
}

/* Blocks of 32 columns. */
static void recur(struct cuda *c, const struct recurrence *r, enum cuda_kernel plain, enum cuda_kernel walk,
                  const void *k)
{
    bool usual = can_walk(c, r);
    uint32_t shared = usual ? 0 : r->rows * STATE_COLUMNS * (uint32_t)sizeof(float);
    ASSERT(shared <= 48u << 10);
    cuda_run_step(c, usual ? walk : plain,
                  (struct cuda_grid){DIV_UP(r->columns, STATE_COLUMNS), r->heads, c->step.seqs,
                                     STATE_COLUMNS * (usual ? r->threads : 1), shared},
                  k);
}

/* ---- the delta net ---- */

static struct cuda_delta delta_of(const struct cuda *c, const struct op_delta *a)
{
    const struct compute_shape *s = c->shape;
    const struct recurrent_layer *l = &s->recurrent[a->layer];
    const struct delta_pending_token p = delta_pending_token(s);
    const struct cuda_conv conv = {.weight = cuda_pointer(a->conv),
                                   .u = cuda_rows(c, a->in),
                                   .y = cuda_rows(c, a->conv_out),
                                   .channels = shape_conv_channels(s),
                                   .taps = s->conv_width,
                                   .state_offset = l->offset,
                                   .pending_offset = l->pending_offset,
                                   .pending_floats = p.floats};
    return (struct cuda_delta){.conv = conv,
                               .parts = c->parts ? CUDA_DELTA_PARTS : 1,
                               .key_heads = s->key_heads,
                               .value_heads = s->value_heads,
                               .key_dim = s->key_dim,
                               .value_dim = s->value_dim,
                               .channels = shape_conv_channels(s),
                               .eps = s->eps,
                               .decay = cuda_pointer(a->decay),
                               .dt_bias = cuda_pointer(a->dt_bias),
                               .norm = cuda_pointer(a->norm),
                               .in = cuda_rows(c, a->in),
                               .conv_out = cuda_rows(c, a->conv_out),
                               .gates = cuda_rows(c, a->gates),
                               .out = cuda_rows(c, a->out),
                               .state_offset = l->offset + delta_conv_bytes(s),
                               .pending_offset = l->pending_offset,
                               .pending_floats = p.floats,
                               .k_at = p.k,
                               .v_at = p.v,
                               .alpha_at = p.alpha,
                               .beta_at = p.beta};
}

/* Whether kernels for one token of each sequence compute the layer. */
static bool has_one_token(const struct cuda *c, const struct cuda_delta *k)
{
    uint64_t places = k->state_offset | c->step.state_bytes;
    return c->step.tokens == c->step.seqs && !c->step.keeps && k->parts == CUDA_DELTA_PARTS &&
           k->key_dim == STATE_ROWS && k->value_dim == STATE_ROWS && places % 16 == 0 &&
           c->device->shared_max >= CUDA_DELTA_ONE_SHARED;
}

void cuda_convolve(struct compute *compute, const struct op_delta *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_delta k = delta_of(c, a);
    if (has_one_token(c, &k)) {
        cuda_run_step(c, CUDA_KERNEL_delta_conv,
                      (struct cuda_grid){c->step.seqs, k.channels / STATE_ROWS + 1, 1, STATE_ROWS, 0}, &k);
        return;
    }
    run_conv(c, k.conv);
    cuda_run(c, CUDA_KERNEL_delta_inputs,
             (struct cuda_grid){c->step.tokens, DIV_UP(2 * k.key_heads, WARP_HEADS) + 1, 1, CHANNELS, 0}, &k);
}

/* The rule, then the norm of its outputs. */
static void walk_tokens(struct cuda *c, const struct cuda_delta *k)
{
    const struct recurrence r = {.columns = k->value_dim,
                                 .heads = k->value_heads,
                                 .rows = k->key_dim,
                                 .x = k->conv_out,
                                 .pending = k->pending_offset | (k->pending_floats | k->k_at) * sizeof(float),
                                 .square = true,
                                 .threads = k->parts};
    recur(c, &r, CUDA_KERNEL_delta, k->parts > 1 ? CUDA_KERNEL_delta_parts : CUDA_KERNEL_delta_walk, k);
    cuda_run_step(c, CUDA_KERNEL_delta_end,
                  (struct cuda_grid){c->step.tokens, DIV_UP(k->value_heads, WARP_HEADS), 1, CHANNELS, 0}, k);
}

void cuda_recur(struct compute *compute, const struct op_delta *a)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_delta k = delta_of(c, a);
    k.rounded = cuda_rounded_whole(c, a->out);
    if (has_one_token(c, &k))
        cuda_run_step(
            c, CUDA_KERNEL_delta_one,
            (struct cuda_grid){c->step.seqs, k.value_heads, 1, CUDA_DELTA_ONE_THREADS, CUDA_DELTA_ONE_SHARED},
            &k);
    else
        walk_tokens(c, &k);
    cuda_has_rounded(c, k.rounded, a->out);
}

/* ---- Mamba-2 ---- */

static struct cuda_ssm ssm_of(const struct cuda *c, const struct op_ssm *a)
{
    const struct ssm_shape *s = &c->shape->ssm;
    const struct recurrent_layer *l = &c->shape->recurrent[a->layer];
    const struct ssm_pending_token p = ssm_pending_token(s);
    return (struct cuda_ssm){.heads = s->heads,
                             .head_dim = s->head_dim,
                             .groups = s->groups,
                             .state = s->state,
                             .norm_kind = (uint32_t)a->norm_kind,
                             .eps = c->shape->eps,
                             .dt_min = a->dt_min,
                             .dt_max = a->dt_max,
                             .a = cuda_pointer(a->a),
                             .dt_bias = cuda_pointer(a->dt_bias),
                             .skip = cuda_pointer(a->skip),
                             .norm = cuda_pointer(a->norm),
                             .in = cuda_rows(c, a->in),
                             .conv_out = cuda_rows(c, a->conv_out),
                             .gates = cuda_rows(c, a->gates),
                             .out = cuda_rows(c, a->out),
                             .state_offset = l->offset + ssm_conv_bytes(s),
                             .pending_offset = l->pending_offset,
                             .pending_floats = p.floats,
                             .x_at = p.x,
                             .b_at = p.b,
                             .dt_at = p.dt,
                             .decay_at = p.decay};
}

void cuda_ssm_convolve(struct compute *compute, const struct op_ssm *a)
{
    struct cuda *c = cuda_of(compute);
    const struct ssm_shape *s = &c->shape->ssm;
    const struct cuda_ssm k = ssm_of(c, a);
    const struct cuda_conv conv = {.weight = cuda_pointer(a->conv),
                                   .bias = cuda_pointer(a->conv_bias),
                                   .u = cuda_rows(c, act_part(a->in, ssm_inner(s), ssm_channels(s))),
                                   .y = k.conv_out,
                                   .channels = ssm_channels(s),
                                   .taps = s->conv_width,
                                   .state_offset = c->shape->recurrent[a->layer].offset,
                                   .pending_offset = k.pending_offset,
                                   .pending_floats = k.pending_floats};
    run_conv(c, conv);
    cuda_run(c, CUDA_KERNEL_ssm_gates, cuda_by_row(c->step.tokens), &k);
}

void cuda_ssm_recur(struct compute *compute, const struct op_ssm *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_ssm k = ssm_of(c, a);
    const struct recurrence r = {.columns = k.head_dim,
                                 .heads = k.heads,
                                 .rows = k.state,
                                 .x = k.conv_out,
                                 .pending = k.pending_offset | (k.pending_floats | k.b_at) * sizeof(float),
                                 .threads = 1};
    recur(c, &r, CUDA_KERNEL_ssm, CUDA_KERNEL_ssm_walk, &k);
    cuda_run_step(c, CUDA_KERNEL_ssm_end, cuda_by_row(c->step.tokens), &k);
}

/* ---- the short convolution ---- */

void cuda_short_conv(struct compute *compute, const struct op_short_conv *a)
{
    struct cuda *c = cuda_of(compute);
    const struct recurrent_layer *l = &c->shape->recurrent[a->layer];
    const struct cuda_conv conv = {.weight = cuda_pointer(a->conv),
                                   .bias = cuda_pointer(a->bias),
                                   .u = cuda_rows(c, a->in),
                                   .y = cuda_rows(c, a->out),
                                   .channels = a->out.width,
                                   .taps = a->taps,
                                   .linear = true,
                                   .gated = true,
                                   .state_offset = l->offset,
                                   .pending_offset = l->pending_offset,
                                   .pending_floats = l->token_floats};
    ASSERT(a->in.width == 3 * a->out.width && a->in.from == 0);
    run_conv(c, conv);
}
