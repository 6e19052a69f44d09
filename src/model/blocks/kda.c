/* kda.c - Kimi delta attention (contract 10.9): the delta rule with a decay for each channel of a key. Decays
 * and gates come from projections of the input, of low rank or of one matrix. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "compute/layout.h"

#include <errno.h>

static const struct key_word silu[] = {{"silu", ACTIVATION_SILU}, {"swish", ACTIVATION_SILU}, {NULL, 0}};

static const struct config_key keys[] = {
    CONFIG_WORD(activation, silu, ACTIVATION_SILU, "hidden_act"),
    CONFIG_U32_NEEDED(conv_width, 2, CONFIG_CONV_WIDTH_MAX, "linear_conv_kernel_dim",
                      "linear_attn_config.short_conv_kernel_size"),
    CONFIG_U32_NEEDED(key_heads, 1, CONFIG_HEADS_MAX, "linear_num_heads", "linear_attn_config.num_heads"),
    CONFIG_U32_NEEDED(key_dim, 16, CONFIG_STATE_DIM_MAX, "linear_head_dim", "linear_attn_config.head_dim"),
    CONFIG_KEY_END,
};

static void derive(struct config *c)
{
    c->value_heads = c->key_heads;
    c->value_dim = c->key_dim;
    c->decay_channels = true;
    if (!c->decay_bounded)
        c->decay_bound = 0;
}

/* The convolution is cut between heads, and kernels cut at multiples of 16 channels. */
static void check(struct json_read *r, const struct config *c)
{
    if (c->key_dim % 16 != 0)
        json_read_fail(r, -ENOTSUP, "linear head dimension %u must be a multiple of 16", c->key_dim);
}

static uint32_t width_of(const struct config *c)
{
    return c->key_heads * c->key_dim;
}

/* q | k | v | b, the low ranks of decay and gate, both. */
static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    const uint32_t width = width_of(c);
    (void)l;
    array_raise(&arrays[ARRAY_PROJ], 5 * width + c->key_heads + 2 * c->key_dim, 0);
    array_raise(&arrays[ARRAY_CONV], 3 * width, 0);
    array_raise(&arrays[ARRAY_GATES], width + c->key_heads, 0);
    array_raise(&arrays[ARRAY_MID], width, width);
}

static int bind_in(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    const struct config *c = b->config;
    const uint32_t width = width_of(c);
    const bool low = binder_layer_has(b, layer, ROLE_KDA_DECAY_LOW);
    const struct binder_matrix in[] = {{ROLE_Q, width},
                                       {ROLE_K, width},
                                       {ROLE_V, width},
                                       {ROLE_DELTA_B, c->key_heads},
                                       {low ? ROLE_KDA_DECAY_LOW : ROLE_KDA_DECAY, low ? c->key_dim : width},
                                       {low ? ROLE_KDA_GATE_LOW : ROLE_KDA_GATE, low ? c->key_dim : width}};
    const struct binder_matrix decay = {ROLE_KDA_DECAY_HIGH, width}, gate = {ROLE_KDA_GATE_HIGH, width};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    if (r == 0 && low)
        r = binder_layer_projection(b, layer, &decay, 1, c->key_dim, &ret->decay_high);
    if (r == 0 && low)
        r = binder_layer_projection(b, layer, &gate, 1, c->key_dim, &ret->gate_high);
    return r;
}

static int bind_convs(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    static const enum tensor_role roles[] = {ROLE_KDA_CONV_Q, ROLE_KDA_CONV_K, ROLE_KDA_CONV_V};
    char paths[COUNT_OF(roles)][BINDER_PATH_MAX];
    const char *list[COUNT_OF(roles)];
    for (size_t i = 0; i < COUNT_OF(roles); i++)
        list[i] = binder_path(b, layer, roles[i], paths[i]);
    return binder_convs(b, list, COUNT_OF(roles), width_of(b->config), b->config->conv_width, &ret->conv);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    const struct config *c = b->config;
    struct delta_weights *ret = &l->delta;
    char path[BINDER_PATH_MAX];
    const struct binder_matrix out = {ROLE_DELTA_OUT, c->hidden};
    int r = bind_in(b, layer, ret);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, width_of(c), &ret->out);
    if (r == 0)
        r = bind_convs(b, layer, ret);
    if (r == 0)
        r = binder_decay(b, binder_path(b, layer, ROLE_DELTA_DECAY, path), c->key_heads, &ret->decay);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_DELTA_DT_BIAS, path), width_of(c), &ret->dt_bias);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_DELTA_NORM, path), c->key_dim, &ret->norm);
    return r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->delta.in;
}

/* to = w low, if there is a low rank. */
static void raise_rank(struct step *s, const struct projection *w, struct act low, struct act to)
{
    const struct act copy = step_act(ARRAY_MID, low.width);
    if (w->out == 0)
        return;
    compute_norm(s->compute, &(struct op_norm){.h = low, .y = copy, .readers = {w}});
    step_project(s, w, copy, to);
}

static void forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct delta_weights *w = &l->delta;
    const uint32_t width = width_of(c), inputs = 3 * width + c->key_heads, rank = c->key_dim;
    const bool low = w->decay_high.out > 0;
    const struct act row = step_act(ARRAY_PROJ, inputs + 2 * width + (low ? 2 * rank : 0));
    const struct op_delta a = {.layer = l->config->recurrent,
                               .decay_kind = c->decay_bound != 0 ? DELTA_DECAY_BOUNDED : DELTA_DECAY_CHANNELS,
                               .decay_bound = c->decay_bound,
                               .conv = w->conv,
                               .decay = w->decay,
                               .dt_bias = w->dt_bias,
                               .norm = w->norm,
                               .in = act_part(row, 0, inputs),
                               .decays = act_part(row, row.width - 2 * width, width),
                               .z = act_part(row, row.width - width, width),
                               .conv_out = step_act(ARRAY_CONV, 3 * width),
                               .gates = step_act(ARRAY_GATES, width + c->key_heads),
                               .out = step_act(ARRAY_MID, width),
                               .reader = &w->out};
    step_project(s, &w->in, step_normed(s), act_part(row, 0, w->in.out));
    raise_rank(s, &w->decay_high, act_part(row, inputs, rank), a.decays);
    raise_rank(s, &w->gate_high, act_part(row, inputs + rank, rank), a.z);
    compute_convolve(s->compute, &a);
    compute_recur(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

const struct block block_kda = {.state = BLOCK_RECURRENT,
                                .keys = keys,
                                .derive = derive,
                                .check = check,
                                .arrays = arrays,
                                .recurrent_layer = delta_recurrent_layer,
                                .bind = bind,
                                .readers = readers,
                                .forward = forward};
