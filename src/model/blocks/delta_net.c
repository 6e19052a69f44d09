/* delta_net.c - project, convolve, recur, project. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "compute/layout.h"
#include "tensor/tensor.h"

#include <errno.h>

/* Activation of the MLP, and of the convolution and the gate. */
static const struct key_word silu[] = {{"silu", ACTIVATION_SILU}, {"swish", ACTIVATION_SILU}, {NULL, 0}};

static const struct config_key keys[] = {
    CONFIG_WORD(activation, silu, ACTIVATION_SILU, "hidden_act"),
    CONFIG_U32_NEEDED(conv_width, 2, CONFIG_CONV_WIDTH_MAX, "linear_conv_kernel_dim"),
    CONFIG_U32_NEEDED(key_heads, 1, CONFIG_HEADS_MAX, "linear_num_key_heads"),
    CONFIG_U32_NEEDED(value_heads, 1, CONFIG_HEADS_MAX, "linear_num_value_heads"),
    CONFIG_U32_NEEDED(key_dim, 16, CONFIG_STATE_DIM_MAX, "linear_key_head_dim"),
    CONFIG_U32_NEEDED(value_dim, 16, CONFIG_STATE_DIM_MAX, "linear_value_head_dim"),
    CONFIG_KEY_END,
};

static void check(struct json_read *r, const struct config *c)
{
    if (c->value_heads % c->key_heads != 0)
        json_read_fail(r, -EINVAL, "linear_num_value_heads %u is not a multiple of linear_num_key_heads %u",
                       c->value_heads, c->key_heads);
    /* The convolution is cut between heads, and kernels cut at multiples of 16 channels. */
    if (c->key_dim % 16 != 0 || c->value_dim % 16 != 0)
        json_read_fail(r, -ENOTSUP, "linear head dimensions %u and %u must be multiples of 16", c->key_dim,
                       c->value_dim);
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    uint32_t channels = config_conv_channels(c), values = c->value_heads * c->value_dim;
    (void)l;
    array_raise(&arrays[ARRAY_PROJ], channels + values + 2 * c->value_heads, 0);
    array_raise(&arrays[ARRAY_CONV], channels, 0);
    array_raise(&arrays[ARRAY_GATES], 2 * c->value_heads, 0);
    array_raise(&arrays[ARRAY_MID], values, values);
}

/* Rows of key heads in turn, as parts for all heads: q, k, v, z of the first matrix, b, a of the second. */
static int bind_interleaved(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    const struct config *c = b->config;
    uint32_t heads = c->key_heads, each = c->value_heads / heads, values = each * c->value_dim, count = 0;
    const struct {
        bool second;
        uint32_t from, rows;
    } parts[] = {{false, 0, c->key_dim},
                 {false, c->key_dim, c->key_dim},
                 {false, 2 * c->key_dim, values},
                 {false, 2 * c->key_dim + values, values},
                 {true, 0, each},
                 {true, each, each}};
    const uint32_t rows[2] = {2 * c->key_dim + 2 * values, 2 * each};
    const struct binder_matrix matrices[2] = {{ROLE_DELTA_QKVZ, (uint64_t)rows[0] * heads},
                                              {ROLE_DELTA_BA, (uint64_t)rows[1] * heads}};
    struct linear_source in[2];
    size_t mark = arena_mark(b->scratch);
    struct linear_source *list = ARENA_ARRAY(b->scratch, struct linear_source, COUNT_OF(parts) * heads);
    int r = list ? binder_layer_matrices(b, layer, matrices, 2, c->hidden, in) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < COUNT_OF(parts); i++) {
        for (uint32_t h = 0; h < heads; h++)
            list[count++] = binder_rows(&in[parts[i].second],
                                        (uint64_t)h * rows[parts[i].second] + parts[i].from, parts[i].rows);
    }
    if (r == 0)
        r = binder_projection(b, list, count, &ret->in);
    arena_rewind(b->scratch, mark);
    return r;
}

/* q | k | v and z as they are; rows of key heads in turn of the second matrix as b and a of all heads. */
static int bind_gates_interleaved(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    const struct config *c = b->config;
    const uint32_t heads = c->key_heads, each = c->value_heads / heads;
    const struct binder_matrix matrices[] = {{ROLE_DELTA_QKV, config_conv_channels(c)},
                                             {ROLE_DELTA_Z, (uint64_t)c->value_heads * c->value_dim},
                                             {ROLE_DELTA_BA, 2 * (uint64_t)c->value_heads}};
    struct linear_source in[COUNT_OF(matrices)];
    size_t mark = arena_mark(b->scratch);
    struct linear_source *list = ARENA_ARRAY(b->scratch, struct linear_source, 2 + 2 * (size_t)heads);
    int r = list ? binder_layer_matrices(b, layer, matrices, COUNT_OF(matrices), c->hidden, in) : -ENOMEM;
    if (r == 0)
        memcpy(list, in, 2 * sizeof(in[0]));
    for (uint32_t i = 0; r == 0 && i < 2 * heads; i++)
        list[2 + i] = binder_rows(&in[2], (uint64_t)(i % heads) * 2 * each + i / heads * each, each);
    if (r == 0)
        r = binder_projection(b, list, 2 + 2 * heads, &ret->in);
    arena_rewind(b->scratch, mark);
    return r;
}

/* The projections of the input, in one of the three ways in which files hold them. */
static int bind_in(struct binder *b, uint32_t layer, struct delta_weights *ret)
{
    const struct config *c = b->config;
    char path[BINDER_PATH_MAX];
    const struct binder_matrix in[] = {{ROLE_DELTA_QKV, config_conv_channels(c)},
                                       {ROLE_DELTA_Z, (uint64_t)c->value_heads * c->value_dim},
                                       {ROLE_DELTA_B, c->value_heads},
                                       {ROLE_DELTA_A, c->value_heads}};
    if (binder_has(b, binder_path(b, layer, ROLE_DELTA_QKVZ, path)))
        return bind_interleaved(b, layer, ret);
    if (binder_has(b, binder_path(b, layer, ROLE_DELTA_BA, path)))
        return bind_gates_interleaved(b, layer, ret);
    return binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    const struct config *c = b->config;
    struct delta_weights *ret = &l->delta;
    char path[BINDER_PATH_MAX];
    uint32_t channels = config_conv_channels(c), values = c->value_heads * c->value_dim;
    const struct binder_matrix out = {ROLE_DELTA_OUT, c->hidden};
    int r = bind_in(b, layer, ret);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, values, &ret->out);
    if (r == 0)
        r = binder_conv(b, binder_path(b, layer, ROLE_DELTA_CONV, path), channels, c->conv_width, &ret->conv);
    if (r == 0)
        r = binder_decay(b, binder_path(b, layer, ROLE_DELTA_DECAY, path), c->value_heads, &ret->decay);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_DELTA_DT_BIAS, path), c->value_heads, &ret->dt_bias);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_DELTA_NORM, path), c->value_dim, &ret->norm);
    return r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->delta.in;
}

static void forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct delta_weights *w = &l->delta;
    const struct op_delta a = {.layer = l->config->recurrent,
                               .conv = w->conv,
                               .decay = w->decay,
                               .dt_bias = w->dt_bias,
                               .norm = w->norm,
                               .in = step_act(ARRAY_PROJ, w->in.out),
                               .conv_out = step_act(ARRAY_CONV, shape_conv_channels(&s->shape)),
                               .gates = step_act(ARRAY_GATES, 2 * c->value_heads),
                               .out = step_act(ARRAY_MID, w->out.in),
                               .reader = &w->out};
    step_project(s, &w->in, step_normed(s), a.in);
    compute_convolve(s->compute, &a);
    compute_recur(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

const struct block block_delta_net = {.state = BLOCK_RECURRENT,
                                      .keys = keys,
                                      .check = check,
                                      .arrays = arrays,
                                      .recurrent_layer = delta_recurrent_layer,
                                      .bind = bind,
                                      .readers = readers,
                                      .forward = forward};
