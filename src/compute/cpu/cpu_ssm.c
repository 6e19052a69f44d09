/* cpu_ssm.c - Mamba-2: convolution, steps of time, recurrence, gate and norm.
 *
 * A sequence's tokens run in order; channels of the convolution and heads of the recurrence are independent.
 * So tiles are (sequence, channels), then (sequence, head). Pending tokens are as in the delta net
 * (cpu_delta.c): their inputs are written when all heads have recurred, for state_out may be state_in. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"
#include "compute/shape.h"

#include <math.h>
#include <string.h>

#define CONV_TILE 256u /* channels; a multiple of 16 */

struct ssm_stage {
    struct cpu *cpu;
    const struct op_ssm *op;
    uint32_t conv_tiles;   /* sequences x channels; then the gates, a span each */
    uint32_t column_width; /* columns of the state in a tile */
    struct ssm_pending_token pending;
    struct cpu_conv conv;
};

static const struct ssm_shape *shape_of(const struct ssm_stage *st)
{
    return &st->cpu->shape->ssm;
}

/* ---- the convolution, and the steps of time ---- */

/* NaN stays NaN. */
static float clipped(float x, float min, float max)
{
    x = x < min ? min : x;
    return max > 0 && x > max ? max : x;
}

static void gates_of_span(const struct ssm_stage *st, const struct cpu_span *span)
{
    const struct cpu *c = st->cpu;
    const struct op_ssm *op = st->op;
    uint32_t heads = shape_of(st)->heads, dt_at = op->in.width - heads;
    const float *a = cpu_floats(c, op->a), *dt_bias = cpu_floats(c, op->dt_bias);
    for (uint32_t t = span->column; t < span->column + span->count; t++) {
        const float *raw = cpu_row(c, op->in, t) + dt_at;
        float *dt = cpu_row(c, op->gates, t), *decay = dt + heads;
        for (uint32_t h = 0; h < heads; h++) {
            dt[h] = clipped(cpu_softplus(raw[h] + dt_bias[h]), op->dt_min, op->dt_max);
            decay[h] = expf(a[h] * dt[h]);
        }
    }
}

/* Tile: some channels of a sequence; or a span's gates. */
static void conv_and_gates(void *arg, uint32_t tile, uint32_t worker)
{
    const struct ssm_stage *st = arg;
    const struct cpu *c = st->cpu;
    uint32_t channels = st->conv.channels, blocks = DIV_UP(channels, CONV_TILE);
    uint32_t from = tile % blocks * CONV_TILE;
    (void)worker;
    if (tile < st->conv_tiles)
        cpu_conv_part(c, &st->conv, &c->in->seqs[tile / blocks], from, MIN_OF(from + CONV_TILE, channels));
    else
        gates_of_span(st, &c->spans[tile - st->conv_tiles]);
}

static struct cpu_conv conv_of(const struct cpu *c, const struct op_ssm *a, size_t pending_floats)
{
    const struct ssm_shape *s = &c->shape->ssm;
    return (struct cpu_conv){.layer = a->layer,
                             .channels = ssm_channels(s),
                             .conv_width = s->conv_width,
                             .weight = a->conv,
                             .bias = a->conv_bias,
                             .u = act_part(a->in, ssm_inner(s), ssm_channels(s)),
                             .y = a->conv_out,
                             .pending_floats = pending_floats};
}

void cpu_ssm_convolve(struct compute *compute, const struct op_ssm *a)
{
    struct cpu *c = cpu_of(compute);
    struct ssm_stage st = {.cpu = c, .op = a, .pending = ssm_pending_token(&c->shape->ssm)};
    st.conv = conv_of(c, a, st.pending.floats);
    st.conv_tiles = c->in->seq_count * DIV_UP(st.conv.channels, CONV_TILE);
    cpu_run(c, conv_and_gates, &st, st.conv_tiles + c->span_count);
}

/* ---- the recurrence ---- */

static struct kern_ssm_pending pending_of(const struct ssm_stage *st, const struct batch_seq *seq,
                                          uint32_t head)
{
    const struct ssm_shape *s = shape_of(st);
    struct kern_ssm_pending p = {.count = seq->pending, .stride = st->pending.floats};
    if (p.count == 0)
        return p;
    const float *pending = cpu_state_pending(st->cpu, seq->state_in, st->op->layer);
    p.x = pending + st->pending.x + (size_t)head * s->head_dim;
    p.b = pending + st->pending.b + (size_t)(head / (s->heads / s->groups)) * s->state;
    p.dt = pending + st->pending.dt + head;
    p.decay = pending + st->pending.decay + head;
    return p;
}

/* Tile: a sequence's head, some columns of its state. */
static void recur_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct ssm_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct ssm_shape *s = shape_of(st);
    const struct op_ssm *op = st->op;
    uint32_t blocks = DIV_UP(s->head_dim, st->column_width);
    uint32_t from = tile % blocks * st->column_width, head = tile / blocks % s->heads;
    const struct batch_seq *seq = &c->in->seqs[tile / blocks / s->heads];
    const float *conv = cpu_row(c, op->conv_out, seq->first), *gates = cpu_row(c, op->gates, seq->first);
    const float *b = conv + ssm_inner(s) + (size_t)(head / (s->heads / s->groups)) * s->state;
    size_t state_at = ssm_conv_bytes(s) / sizeof(float) + head * ssm_head_floats(s);
    float *in = cpu_state(c, seq->state_in, op->layer), *out = cpu_state(c, seq->state_out, op->layer);
    struct kern_ssm a = {.x = conv + (size_t)head * s->head_dim,
                         .b = b,
                         .c = b + (size_t)s->groups * s->state,
                         .dt = gates + head,
                         .decay = gates + s->heads + head,
                         .y = cpu_row(c, op->out, seq->first) + (size_t)head * s->head_dim,
                         .state_in = in ? in + state_at : NULL,
                         .state_out = out + state_at,
                         .pending = pending_of(st, seq, head),
                         .skip = cpu_floats(c, op->skip)[head],
                         .tokens = seq->count,
                         .n = s->state,
                         .p = s->head_dim,
                         .stride = cpu_stride(c, op->conv_out),
                         .gate_stride = cpu_stride(c, op->gates),
                         .y_stride = cpu_stride(c, op->out),
                         .keep_pending = seq->keep_pending};
    if (a.keep_pending)
        a.scratch = c->recurrent_scratch + (size_t)worker * KERN_SSM_SCRATCH(s->state);
    c->ops->ssm(&a, from, MIN_OF(from + st->column_width, s->head_dim));
}

/* Keeps the values that token t brought to the recurrence. */
static void keep_updates(const struct ssm_stage *st, const struct batch_seq *seq, uint32_t t)
{
    const struct cpu *c = st->cpu;
    const struct ssm_shape *s = shape_of(st);
    float *pending =
        cpu_state_pending(c, seq->state_out, st->op->layer) + (t - seq->first) * st->pending.floats;
    memcpy(pending + st->pending.x, cpu_row(c, st->op->conv_out, t),
           (ssm_inner(s) + (size_t)s->groups * s->state) * sizeof(float));
    memcpy(pending + st->pending.dt, cpu_row(c, st->op->gates, t), 2 * s->heads * sizeof(float));
}

static void gate_and_norm(struct cpu *c, const void *arg, uint32_t t)
{
    const struct ssm_stage *st = arg;
    const struct op_ssm *op = st->op;
    const struct ssm_shape *s = shape_of(st);
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    const float *z = cpu_row(c, op->in, t), *w = cpu_floats(c, op->norm);
    float *y = cpu_row(c, op->out, t);
    uint32_t inner = ssm_inner(s), width = inner / s->groups;
    if (seq->keep_pending)
        keep_updates(st, seq, t);
    if (op->norm_kind != SSM_NORM_BEFORE_GATE)
        c->ops->silu_mul(y, z, y, inner);
    for (uint32_t at = 0; at < inner && op->norm_kind == SSM_NORM_AFTER_GATE; at += width)
        c->ops->rmsnorm(y + at, y + at, w + at, width, c->shape->eps);
    for (uint32_t at = 0; at < inner && op->norm_kind == SSM_NORM_BEFORE_GATE; at += width)
        c->ops->rmsnorm_gated(y + at, y + at, z + at, w + at, width, c->shape->eps);
    cpu_sum(c, op->reader->sums, op->out, t);
}

/* Whole heads, unless that leaves workers idle: then halves of the state's columns, quarters ... */
static uint32_t choose_column_width(const struct cpu *c)
{
    const struct ssm_shape *s = &c->shape->ssm;
    uint32_t width = s->head_dim, tiles = c->in->seq_count * s->heads;
    while (tiles < workers_count(c->workers) && width % 32 == 0) {
        width /= 2;
        tiles *= 2;
    }
    return width;
}

void cpu_ssm_recur(struct compute *compute, const struct op_ssm *a)
{
    struct cpu *c = cpu_of(compute);
    const struct ssm_shape *s = &c->shape->ssm;
    struct ssm_stage st = {
        .cpu = c, .op = a, .column_width = choose_column_width(c), .pending = ssm_pending_token(s)};
    cpu_run(c, recur_tile, &st, c->in->seq_count * s->heads * DIV_UP(s->head_dim, st.column_width));
    cpu_each_token(c, gate_and_norm, &st, 6 * a->out.width);
}
