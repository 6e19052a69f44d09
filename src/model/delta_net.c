/* delta_net.c - project, convolve, normalise, recur, norm and gate, project.
 *
 * Between the projections a sequence's tokens run in order and heads are independent, so tiles are
 * (sequence, head). The convolution is cut at heads too: then the tile that convolves a query or key head
 * also normalises it. Pending tokens of the recurrent state are applied before the first token, in the same
 * walk over the state. A sequence that keeps its tokens pending leaves in state_out the state before them
 * and the inputs of convolution and delta rule. The convolution's part is written as soon as its tile has
 * read those channels of state_in. The rest is written when all heads have recurred, for state_out may be
 * state_in. */
#include "model/delta_net.h"

#include "model/state_layout.h"

#include "base/check.h"

#include <math.h>

int delta_net_bind(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    const struct config *c = b->config;
    char path[BINDER_PATH_MAX];
    uint32_t channels = config_conv_channels(c), values = c->value_heads * c->value_dim;
    const struct binder_matrix in[] = {{"linear_attn.in_proj_qkv", channels},
                                       {"linear_attn.in_proj_z", values},
                                       {"linear_attn.in_proj_b", c->value_heads},
                                       {"linear_attn.in_proj_a", c->value_heads}};
    const struct binder_matrix out = {"linear_attn.out_proj", c->hidden};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, values, &ret->out);
    if (r == 0)
        r = binder_conv(b, binder_path(layer, "linear_attn.conv1d", path), channels, c->conv_width,
                        &ret->conv);
    if (r == 0)
        r = binder_decay(b, binder_path(layer, "linear_attn.A_log", path), c->value_heads, &ret->decay);
    if (r == 0)
        r = binder_vector(b, binder_path(layer, "linear_attn.dt_bias", path), c->value_heads, &ret->dt_bias);
    if (r == 0)
        r = binder_vector(b, binder_path(layer, "linear_attn.norm", path), c->value_dim, &ret->norm);
    return r;
}

struct delta_stage {
    struct step *step;
    const struct layer *layer;
    uint32_t conv_tiles;   /* sequences x heads; then the gates, a span each */
    uint32_t column_width; /* of the state, per tile */
    struct state_pending_token pending;
};

/* Channel where head `head` of q | k | v begins, and its width. */
static uint32_t conv_head(const struct config *c, uint32_t head, uint32_t *width)
{
    uint32_t keys = 2 * c->key_heads;
    *width = head < keys ? c->key_dim : c->value_dim;
    return head < keys ? head * c->key_dim : keys * c->key_dim + (head - keys) * c->value_dim;
}

/* Raw inputs of the channels [from, from + width). */
static void keep_inputs(const struct delta_stage *st, uint32_t seq, uint32_t from, uint32_t width)
{
    const struct step *s = st->step;
    const struct model_seq *r = &s->in->seqs[seq];
    float *pending = step_state_pending(s, r->state_out, st->layer->kind_index) + st->pending.u + from;
    const float *u = s->proj + (size_t)s->seq_column[seq] * s->wide + from;
    for (uint32_t t = 0; t < r->token_count; t++)
        memcpy(pending + t * st->pending.floats, u + (size_t)t * s->wide, width * sizeof(float));
}

static void conv_tile(const struct delta_stage *st, uint32_t seq, uint32_t head)
{
    const struct step *s = st->step;
    const struct config *c = s->config;
    const struct model_seq *r = &s->in->seqs[seq];
    uint32_t channels = config_conv_channels(c), width, column = s->seq_column[seq];
    uint32_t from = conv_head(c, head, &width);
    struct kern_conv a = {.y = s->conv + (size_t)column * channels,
                          .u = s->proj + (size_t)column * s->wide,
                          .w = st->layer->delta.conv,
                          .state_in = step_state(s, r->state_in, st->layer->kind_index),
                          .state_out = step_state(s, r->state_out, st->layer->kind_index),
                          .pending_u = step_state_pending(s, r->state_in, st->layer->kind_index),
                          .tokens = r->token_count,
                          .channels = channels,
                          .conv_width = c->conv_width,
                          .pending = s->seq_pending[seq],
                          .y_stride = channels,
                          .u_stride = s->wide,
                          .pending_stride = st->pending.floats,
                          .keep_pending = r->keep_pending};
    s->ops->conv(&a, from, from + width);
    if (a.keep_pending)
        keep_inputs(st, seq, from, width);
    if (head >= 2 * c->key_heads)
        return;
    float scale = head < c->key_heads ? (float)(1 / sqrt((double)c->key_dim)) : 1;
    for (uint32_t t = 0; t < r->token_count; t++) {
        float *x = a.y + (size_t)t * channels + from;
        s->ops->l2norm(x, x, c->key_dim, 1e-6f, scale);
    }
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Linear where exp would change nothing, like the reference. */
static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static void gates_of_span(const struct delta_stage *st, const struct step_span *span)
{
    const struct step *s = st->step;
    const struct config *c = s->config;
    const struct delta_weights *w = &st->layer->delta;
    uint32_t b_at = config_conv_channels(c) + c->value_heads * c->value_dim;
    for (uint32_t t = span->column; t < span->column + span->count; t++) {
        const float *b = s->proj + (size_t)t * s->wide + b_at, *a = b + c->value_heads;
        float *alpha = s->alpha + (size_t)t * c->value_heads, *beta = s->beta + (size_t)t * c->value_heads;
        for (uint32_t h = 0; h < c->value_heads; h++) {
            beta[h] = sigmoid(b[h]);
            alpha[h] = expf(w->decay[h] * softplus(a[h] + w->dt_bias[h]));
        }
    }
}

/* Tile: a sequence's head of q, k or v; or a span's gates. */
static void conv_and_gates(void *arg, uint32_t tile, uint32_t worker)
{
    const struct delta_stage *st = arg;
    const struct config *c = st->step->config;
    uint32_t heads = 2 * c->key_heads + c->value_heads;
    (void)worker;
    if (tile < st->conv_tiles)
        conv_tile(st, tile / heads, tile % heads);
    else
        gates_of_span(st, &st->step->spans[tile - st->conv_tiles]);
}

/* Tile: a sequence's value head, some columns of its state. */
static void recur(void *arg, uint32_t tile, uint32_t worker)
{
    const struct delta_stage *st = arg;
    const struct step *s = st->step;
    const struct config *c = s->config;
    uint32_t blocks = DIV_UP(c->value_dim, st->column_width);
    uint32_t from = tile % blocks * st->column_width, head = tile / blocks % c->value_heads;
    uint32_t seq = tile / blocks / c->value_heads;
    const struct model_seq *r = &s->in->seqs[seq];
    uint32_t channels = config_conv_channels(c), column = s->seq_column[seq];
    uint32_t key_head = head / (c->value_heads / c->key_heads), keys = c->key_heads * c->key_dim;
    const float *conv = s->conv + (size_t)column * channels;
    size_t state_at = state_conv_bytes(c) / sizeof(float) + head * state_head_floats(c);
    float *in = step_state(s, r->state_in, st->layer->kind_index);
    float *out = step_state(s, r->state_out, st->layer->kind_index);
    const float *pending = step_state_pending(s, r->state_in, st->layer->kind_index);
    struct kern_delta a = {.q = conv + key_head * c->key_dim,
                           .k = conv + keys + key_head * c->key_dim,
                           .v = conv + 2 * keys + head * c->value_dim,
                           .alpha = s->alpha + (size_t)column * c->value_heads + head,
                           .beta = s->beta + (size_t)column * c->value_heads + head,
                           .o = s->mid + (size_t)column * s->mid_wide + head * c->value_dim,
                           .state_in = in ? in + state_at : NULL,
                           .state_out = out + state_at,
                           .pending = {.count = s->seq_pending[seq], .stride = st->pending.floats},
                           .tokens = r->token_count,
                           .dk = c->key_dim,
                           .dv = c->value_dim,
                           .qk_stride = channels,
                           .v_stride = channels,
                           .gate_stride = c->value_heads,
                           .o_stride = s->mid_wide,
                           .keep_pending = r->keep_pending};
    if (a.pending.count > 0) {
        a.pending.k = pending + st->pending.k + key_head * c->key_dim;
        a.pending.v = pending + st->pending.v + head * c->value_dim;
        a.pending.alpha = pending + st->pending.alpha + head;
        a.pending.beta = pending + st->pending.beta + head;
    }
    if (a.keep_pending)
        a.scratch = s->delta_scratch + (size_t)worker * KERN_DELTA_SCRATCH(c->key_dim);
    s->ops->delta(&a, from, MIN_OF(from + st->column_width, c->value_dim));
}

/* What token t brought to the delta rule. */
static void hold_updates(const struct delta_stage *st, uint32_t t)
{
    const struct step *s = st->step;
    const struct config *c = s->config;
    uint32_t seq = s->token_seq[t], keys = c->key_heads * c->key_dim, heads = c->value_heads;
    float *pending = step_state_pending(s, s->in->seqs[seq].state_out, st->layer->kind_index) +
                     (t - s->seq_column[seq]) * st->pending.floats;
    const float *k = s->conv + (size_t)t * config_conv_channels(c) + keys;
    memcpy(pending + st->pending.k, k, (keys + heads * c->value_dim) * sizeof(float));
    memcpy(pending + st->pending.alpha, s->alpha + (size_t)t * heads, heads * sizeof(float));
    memcpy(pending + st->pending.beta, s->beta + (size_t)t * heads, heads * sizeof(float));
}

static void norm_and_gate(struct step *s, const void *arg, uint32_t t)
{
    const struct delta_stage *st = arg;
    const struct config *c = s->config;
    const struct delta_weights *w = &st->layer->delta;
    if (s->in->seqs[s->token_seq[t]].keep_pending)
        hold_updates(st, t);
    float *o = s->mid + (size_t)t * s->mid_wide;
    const float *z = s->proj + (size_t)t * s->wide + config_conv_channels(c);
    for (uint32_t h = 0; h < c->value_heads; h++) {
        size_t at = (size_t)h * c->value_dim;
        s->ops->rmsnorm_gated(o + at, o + at, z + at, w->norm, c->value_dim, c->eps);
    }
    step_sums(s, w->out.groups, s->mid_sums + (size_t)t * step_sums_floats(w->out.in), o, w->out.in);
}

/* Whole heads, unless that leaves workers idle: then halves of the state's columns, quarters ... */
static uint32_t choose_column_width(const struct step *s)
{
    uint32_t width = s->config->value_dim, tiles = s->seqs * s->config->value_heads;
    while (tiles < workers_count(s->workers) && width % 32 == 0) {
        width /= 2;
        tiles *= 2;
    }
    return width;
}

void delta_net_forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct delta_weights *w = &l->delta;
    struct delta_stage st = {s, l, s->seqs * (2 * c->key_heads + c->value_heads), choose_column_width(s),
                             state_pending_token(c)};
    step_project(s, &w->in, step_x(s), step_proj(s), s->tokens);
    step_run(s, conv_and_gates, &st, st.conv_tiles + s->span_count);
    step_run(s, recur, &st, s->seqs * c->value_heads * DIV_UP(c->value_dim, st.column_width));
    step_each_token(s, norm_and_gate, &st, 6 * w->out.in);
    step_project(s, &w->out, step_mid(s, w->out.in), step_d(s), s->tokens);
    s->pending_residual = step_add_block_out;
}
