/* cpu_delta.c - convolution, gates, recurrence, gated norm.
 *
 * A sequence's tokens run in order and heads are independent, so tiles are (sequence, head). The convolution
 * is cut at heads too: then the tile that convolves a query or key head also normalises it, and computes the
 * decays of the key's channels where those have some. Pending tokens of
 * the recurrent state are applied before the first token, in the same walk over the state. A sequence that
 * keeps its tokens pending leaves in state_out the state before them and the inputs of convolution and delta
 * rule. The convolution's part is written as soon as its tile has read those channels of state_in. The rest
 * is written when all heads have recurred, for state_out may be state_in. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"
#include "compute/shape.h"

#include <math.h>
#include <string.h>

struct delta_stage {
    struct cpu *cpu;
    const struct op_delta *op;
    uint32_t conv_step, conv_parts; /* heads of a tile, tiles of a sequence */
    uint32_t conv_tiles;            /* tiles of all sequences; then the gates, a span each */
    uint32_t column_width;          /* columns of the state in a tile */
    struct delta_pending_token pending;
    bool norm;     /* tiles of whole heads norm and gate their results */
    unsigned sums; /* that these tiles make */
};

/* Channel where head `head` of q | k | v begins, and its width. */
static uint32_t conv_head(const struct compute_shape *s, uint32_t head, uint32_t *width)
{
    uint32_t keys = 2 * s->key_heads;
    *width = head < keys ? s->key_dim : s->value_dim;
    return head < keys ? head * s->key_dim : keys * s->key_dim + (head - keys) * s->value_dim;
}

/* alpha of each channel of a head's keys. */
static void decay_channels(const struct delta_stage *st, const struct batch_seq *seq, uint32_t head)
{
    const struct cpu *c = st->cpu;
    const struct op_delta *op = st->op;
    const uint32_t dim = c->shape->key_dim, at = head * dim;
    const float *dt_bias = cpu_floats(c, op->dt_bias) + at, decay = cpu_floats(c, op->decay)[head];
    const float bound = op->decay_kind == DELTA_DECAY_BOUNDED ? op->decay_bound : 0;
    for (uint32_t t = seq->first; t < seq->first + seq->count; t++)
        c->ops->decays(cpu_row(c, op->gates, t) + at, cpu_row(c, op->decays, t) + at, dt_bias, decay, bound,
                       dim);
}

static void convolve_head(const struct delta_stage *st, const struct batch_seq *seq, uint32_t head)
{
    const struct cpu *c = st->cpu;
    const struct compute_shape *s = c->shape;
    const struct op_delta *op = st->op;
    uint32_t width, from = conv_head(s, head, &width);
    const struct cpu_conv conv = {.layer = op->layer,
                                  .channels = shape_conv_channels(s),
                                  .conv_width = s->conv_width,
                                  .weight = op->conv,
                                  .u = op->in,
                                  .y = op->conv_out,
                                  .pending_floats = st->pending.floats};
    cpu_conv_part(c, &conv, seq, from, from + width);
    if (head >= 2 * s->key_heads)
        return;
    if (s->decay_channels && head >= s->key_heads)
        decay_channels(st, seq, head - s->key_heads);
    float scale = head < s->key_heads ? (float)(1 / sqrt((double)s->key_dim)) : 1;
    for (uint32_t t = 0; t < seq->count; t++) {
        float *x = cpu_row(c, op->conv_out, seq->first + t) + from;
        c->ops->l2norm(x, x, s->key_dim, 1e-6f, scale);
    }
}

static void gates_of_span(const struct delta_stage *st, const struct cpu_span *span)
{
    const struct cpu *c = st->cpu;
    const struct compute_shape *s = c->shape;
    const float *decay = cpu_floats(c, st->op->decay), *dt_bias = cpu_floats(c, st->op->dt_bias);
    const uint32_t b_at = shape_conv_channels(s) + (s->decay_channels ? 0 : s->value_heads * s->value_dim);
    for (uint32_t t = span->column; t < span->column + span->count; t++) {
        const float *b = cpu_row(c, st->op->in, t) + b_at, *a = b + s->value_heads;
        float *alpha = cpu_row(c, st->op->gates, t), *beta = alpha + s->value_heads * shape_decays(s);
        for (uint32_t h = 0; h < s->value_heads; h++) {
            beta[h] = cpu_sigmoid(b[h]);
            if (!s->decay_channels)
                alpha[h] = expf(decay[h] * cpu_softplus(a[h] + dt_bias[h]));
        }
    }
}

static uint32_t conv_heads(const struct compute_shape *s)
{
    return 2 * s->key_heads + s->value_heads;
}

/* Tile: some heads of a sequence's q, k and v; or a span's gates. */
static void conv_and_gates(void *arg, uint32_t tile, uint32_t worker)
{
    const struct delta_stage *st = arg;
    const struct cpu *c = st->cpu;
    (void)worker;
    if (tile >= st->conv_tiles) {
        gates_of_span(st, &c->spans[tile - st->conv_tiles]);
        return;
    }
    uint32_t head = tile % st->conv_parts * st->conv_step;
    uint32_t end = MIN_OF(head + st->conv_step, conv_heads(c->shape));
    for (; head < end; head++)
        convolve_head(st, &c->in->seqs[tile / st->conv_parts], head);
}

/* A head of a few tokens takes less time than a ticket that all workers want. */
#define CONV_TOKENS_FEW     8u
#define CONV_TILES_A_WORKER 3u

static uint32_t choose_conv_step(const struct cpu *c)
{
    const uint32_t all = c->in->seq_count * conv_heads(c->shape);
    for (uint32_t i = 0; i < c->in->seq_count; i++) {
        if (c->in->seqs[i].count > CONV_TOKENS_FEW)
            return 1;
    }
    return MIN_OF(DIV_UP(all, CONV_TILES_A_WORKER * workers_count(c->workers)), conv_heads(c->shape));
}

void cpu_convolve(struct compute *compute, const struct op_delta *a)
{
    struct cpu *c = cpu_of(compute);
    struct delta_stage st = {
        .cpu = c, .op = a, .conv_step = choose_conv_step(c), .pending = delta_pending_token(c->shape)};
    st.conv_parts = DIV_UP(conv_heads(c->shape), st.conv_step);
    st.conv_tiles = c->in->seq_count * st.conv_parts;
    cpu_run(c, conv_and_gates, &st, st.conv_tiles + c->span_count);
}

/* ---- the recurrence ---- */

/* Where a value head's inputs lie in a row of the convolution's output. */
struct head_inputs {
    uint32_t q, k, v;
};

static struct head_inputs inputs_of(const struct compute_shape *s, uint32_t head)
{
    uint32_t key_head = head / (s->value_heads / s->key_heads), keys = s->key_heads * s->key_dim;
    return (struct head_inputs){key_head * s->key_dim, keys + key_head * s->key_dim,
                                2 * keys + head * s->value_dim};
}

static struct kern_delta_pending pending_of(const struct delta_stage *st, const struct batch_seq *seq,
                                            uint32_t head)
{
    const struct compute_shape *s = st->cpu->shape;
    struct kern_delta_pending p = {.count = seq->pending, .stride = st->pending.floats};
    if (p.count == 0)
        return p;
    const float *pending = cpu_state_pending(st->cpu, seq->state_in, st->op->layer);
    p.k = pending + st->pending.k + head / (s->value_heads / s->key_heads) * s->key_dim;
    p.v = pending + st->pending.v + head * s->value_dim;
    p.alpha = pending + st->pending.alpha + head * shape_decays(s);
    p.beta = pending + st->pending.beta + head;
    return p;
}

static void norm_head(const struct delta_stage *st, uint32_t t, uint32_t head)
{
    const struct cpu *c = st->cpu;
    const struct compute_shape *s = c->shape;
    uint32_t at = head * s->value_dim;
    float *o = cpu_row(c, st->op->out, t) + at;
    const float *z = s->decay_channels ? cpu_row(c, st->op->z, t) + at
                                       : cpu_row(c, st->op->in, t) + shape_conv_channels(s) + at;
    const float *w = cpu_floats(c, st->op->norm);
    if (s->decay_channels) {
        c->ops->rmsnorm(o, o, w, s->value_dim, s->eps);
        c->ops->sigmoid_mul(o, o, z, s->value_dim);
    } else {
        c->ops->rmsnorm_gated(o, o, z, w, s->value_dim, s->eps);
    }
    if (st->sums)
        cpu_sum_part(c, st->sums, st->op->out, t, at, at + s->value_dim);
}

/* Tile: a sequence's value head, some columns of its state. */
static void recur_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct delta_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct compute_shape *s = c->shape;
    const struct op_delta *op = st->op;
    uint32_t blocks = DIV_UP(s->value_dim, st->column_width);
    uint32_t from = tile % blocks * st->column_width, head = tile / blocks % s->value_heads;
    const struct batch_seq *seq = &c->in->seqs[tile / blocks / s->value_heads];
    const struct head_inputs at = inputs_of(s, head);
    const float *conv = cpu_row(c, op->conv_out, seq->first), *gates = cpu_row(c, op->gates, seq->first);
    size_t state_at = delta_conv_bytes(s) / sizeof(float) + head * delta_head_floats(s);
    float *in = cpu_state(c, seq->state_in, op->layer), *out = cpu_state(c, seq->state_out, op->layer);
    struct kern_delta a = {.q = conv + at.q,
                           .k = conv + at.k,
                           .v = conv + at.v,
                           .alpha = gates + head * shape_decays(s),
                           .beta = gates + s->value_heads * shape_decays(s) + head,
                           .o = cpu_row(c, op->out, seq->first) + head * s->value_dim,
                           .state_in = in ? in + state_at : NULL,
                           .state_out = out + state_at,
                           .pending = pending_of(st, seq, head),
                           .tokens = seq->count,
                           .dk = s->key_dim,
                           .dv = s->value_dim,
                           .qk_stride = cpu_stride(c, op->conv_out),
                           .v_stride = cpu_stride(c, op->conv_out),
                           .gate_stride = cpu_stride(c, op->gates),
                           .o_stride = cpu_stride(c, op->out),
                           .keep_pending = seq->keep_pending,
                           .channels = s->decay_channels};
    if (a.keep_pending)
        a.scratch = c->recurrent_scratch + (size_t)worker * KERN_DELTA_SCRATCH(s->key_dim);
    c->ops->delta(&a, from, MIN_OF(from + st->column_width, s->value_dim));
    for (uint32_t t = seq->first; st->norm && t < seq->first + seq->count; t++)
        norm_head(st, t, head);
}

/* Keeps the values that token t brought to the delta rule. */
static void keep_updates(const struct delta_stage *st, const struct batch_seq *seq, uint32_t t)
{
    const struct cpu *c = st->cpu;
    const struct compute_shape *s = c->shape;
    uint32_t keys = s->key_heads * s->key_dim, heads = s->value_heads;
    float *pending =
        cpu_state_pending(c, seq->state_out, st->op->layer) + (t - seq->first) * st->pending.floats;
    const float *gates = cpu_row(c, st->op->gates, t);
    memcpy(pending + st->pending.k, cpu_row(c, st->op->conv_out, t) + keys,
           (keys + heads * s->value_dim) * sizeof(float));
    const uint32_t decays = heads * shape_decays(s);
    memcpy(pending + st->pending.alpha, gates, decays * sizeof(float));
    memcpy(pending + st->pending.beta, gates + decays, heads * sizeof(float));
}

static void norm_and_gate(struct cpu *c, const void *arg, uint32_t t)
{
    const struct delta_stage *st = arg;
    for (uint32_t h = 0; !st->norm && h < c->shape->value_heads; h++)
        norm_head(st, t, h);
    if (st->sums != st->op->reader->sums)
        cpu_sum(c, st->op->reader->sums, st->op->out, t);
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    if (seq->keep_pending)
        keep_updates(st, seq, t);
}

static bool any_keeps(const struct cpu *c)
{
    for (uint32_t i = 0; i < c->in->seq_count; i++) {
        if (c->in->seqs[i].keep_pending)
            return true;
    }
    return false;
}

/* Whole heads, unless that leaves workers idle: then halves of the state's columns, quarters ... */
static uint32_t choose_column_width(const struct cpu *c)
{
    uint32_t width = c->shape->value_dim, tiles = c->in->seq_count * c->shape->value_heads;
    while (tiles < workers_count(c->workers) && width % 32 == 0) {
        width /= 2;
        tiles *= 2;
    }
    return width;
}

void cpu_recur(struct compute *compute, const struct op_delta *a)
{
    struct cpu *c = cpu_of(compute);
    const struct compute_shape *s = c->shape;
    const unsigned sums = a->reader->sums;
    struct delta_stage st = {
        .cpu = c, .op = a, .column_width = choose_column_width(c), .pending = delta_pending_token(s)};
    st.norm = st.column_width == s->value_dim;
    st.sums = st.norm && s->value_dim % cpu_sums_largest(sums) == 0 ? sums : 0;
    cpu_run(c, recur_tile, &st, c->in->seq_count * s->value_heads * DIV_UP(s->value_dim, st.column_width));
    if (!st.norm || st.sums != sums || any_keeps(c))
        cpu_each_token(c, norm_and_gate, &st, st.norm ? a->out.width : 6 * a->out.width);
}
