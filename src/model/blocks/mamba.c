/* mamba.c - project, convolve, recur, project. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "compute/layout.h"
#include "weights/checkpoint.h"

#include <errno.h>

/* Every writer's SiLU. */
static const struct key_word silu[] = {{"silu", ACTIVATION_SILU}, {"swish", ACTIVATION_SILU}, {NULL, 0}};
static const struct key_word auto_word[] = {{"auto", 0}, {NULL, 0}};

#define SSM_STATE_MAX 1024

static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(ssm.heads, 1, CONFIG_HEADS_MAX, "mamba_n_heads", "mamba_num_heads"),
    CONFIG_U32_OR(ssm.head_dim, auto_word, 1, CONFIG_HEAD_DIM_MAX, 0, "mamba_d_head", "mamba_head_dim"),
    CONFIG_U32(ssm.groups, 1, CONFIG_HEADS_MAX, 1, "mamba_n_groups", "n_groups"),
    CONFIG_U32_NEEDED(ssm.state, 1, SSM_STATE_MAX, "mamba_d_state", "ssm_state_size"),
    CONFIG_U32(ssm.conv_width, 2, CONFIG_CONV_WIDTH_MAX, 4, "mamba_d_conv", "conv_kernel"),
    CONFIG_U32(ssm_inner, 1, CONFIG_INTERMEDIATE_MAX, 0, "mamba_d_ssm"),
    CONFIG_U32(ssm_expand, 1, 64, 2, "mamba_expand", "expand"),
    CONFIG_FLOATS(ssm_dt_limit, 0, 1e30, 0, "time_step_limit", "mamba_dt_limit"),
    CONFIG_FLAG(ssm_normed, true, "mamba_rms_norm"),
    CONFIG_FLAG(ssm_norm_first, false, "mamba_norm_before_gate"),
    CONFIG_WORD(gate_activation, silu, ACTIVATION_SILU, "mamba_hidden_act"),
    /* In these families it is that of the convolution, too. */
    CONFIG_WORD(activation, silu, ACTIVATION_SILU, "hidden_act"),
    CONFIG_KEY_END,
};

static void derive(struct config *c)
{
    uint32_t inner = c->ssm_inner > 0 ? c->ssm_inner : c->ssm_expand * c->hidden;
    if (c->ssm.head_dim == 0)
        c->ssm.head_dim = inner / c->ssm.heads;
}

static void check(struct json_read *r, const struct config *c)
{
    const struct ssm_shape *s = &c->ssm;
    if (s->head_dim == 0 || s->head_dim > CONFIG_HEAD_DIM_MAX)
        json_read_fail(r, -ENOTSUP, "heads of Mamba-2 are %u wide, but must be 1 to %u", s->head_dim,
                       CONFIG_HEAD_DIM_MAX);
    if (c->ssm_inner > 0 && c->ssm_inner != ssm_inner(s))
        json_read_fail(r, -EINVAL, "mamba_d_ssm is %u, but %u heads are %u wide each", c->ssm_inner, s->heads,
                       s->head_dim);
    if (s->heads % s->groups != 0)
        json_read_fail(r, -EINVAL, "mamba_n_groups %u does not divide mamba_n_heads %u", s->groups, s->heads);
    if (c->ssm_dt_limit[1] > 0 && c->ssm_dt_limit[1] < c->ssm_dt_limit[0])
        json_read_fail(r, -EINVAL, "time_step_limit is empty: %g to %g", (double)c->ssm_dt_limit[0],
                       (double)c->ssm_dt_limit[1]);
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    uint32_t inner = ssm_inner(&c->ssm), channels = ssm_channels(&c->ssm);
    (void)l;
    array_raise(&arrays[ARRAY_PROJ], inner + channels + c->ssm.heads, 0);
    array_raise(&arrays[ARRAY_CONV], channels, 0);
    array_raise(&arrays[ARRAY_GATES], 2 * c->ssm.heads, 0);
    array_raise(&arrays[ARRAY_MID], inner, inner);
}

static int bind_matrices(struct binder *b, uint32_t layer, struct ssm_weights *ret)
{
    const struct config *c = b->config;
    uint32_t inner = ssm_inner(&c->ssm);
    /* The factor of the input is applied to its product. */
    const struct binder_matrix in = {ROLE_SSM_IN, inner + ssm_channels(&c->ssm) + c->ssm.heads,
                                     c->ssm_in_scale != 0 ? 1 / c->ssm_in_scale : 0};
    const struct binder_matrix out = {ROLE_SSM_OUT, c->hidden};
    int r = binder_layer_projection(b, layer, &in, 1, c->hidden, &ret->in);
    return r < 0 ? r : binder_layer_projection(b, layer, &out, 1, inner, &ret->out);
}

/* MLX's writer multiplies the weights by the factors, and leaves those in config.json. */
static int refuse_mlx_factors(struct binder *b, uint32_t layer)
{
    char path[BINDER_PATH_MAX], name[BINDER_NAME_MAX];
    struct tensor t;
    binder_name(b, binder_path(b, layer, ROLE_SSM_CONV, path), ".weight", name);
    if (b->config->ssm_in_scale == 0 || !binder_find_optional(b, name, &t) ||
        !binder_conv_is_mlx(&t, b->config->ssm.conv_width))
        return 0;
    return err_set(b->e, -ENOTSUP, "tensor %s has MLX's layout, in which factors of %s are in the weights",
                   name, b->config->family_name);
}

static int bind_conv(struct binder *b, uint32_t layer, struct ssm_weights *ret)
{
    const struct ssm_shape *s = &b->config->ssm;
    char path[BINDER_PATH_MAX];
    int r = refuse_mlx_factors(b, layer);
    if (r < 0)
        return r;
    r = binder_conv(b, binder_path(b, layer, ROLE_SSM_CONV, path), ssm_channels(s), s->conv_width,
                    &ret->conv);
    if (r < 0 || !binder_has(b, binder_path(b, layer, ROLE_SSM_CONV_BIAS, path)))
        return r;
    return binder_vector(b, path, ssm_channels(s), &ret->conv_bias);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    const struct config *c = b->config;
    struct ssm_weights *ret = &l->ssm;
    char path[BINDER_PATH_MAX];
    uint32_t heads = c->ssm.heads;
    int r = bind_matrices(b, layer, ret);
    if (r == 0)
        r = bind_conv(b, layer, ret);
    if (r == 0)
        r = binder_decay(b, binder_path(b, layer, ROLE_SSM_DECAY, path), heads, &ret->decay);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_SSM_DT_BIAS, path), heads, &ret->dt_bias);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_SSM_SKIP, path), heads, &ret->skip);
    if (r == 0 && c->ssm_normed)
        r = binder_norm(b, binder_path(b, layer, ROLE_SSM_NORM, path), ssm_inner(&c->ssm), &ret->norm);
    return r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->ssm.in;
}

/* The factors of the input and of its projections: z, x, B, C, dt. */
static void scale_parts(struct step *s, struct act in)
{
    const struct config *c = s->config;
    uint32_t inner = ssm_inner(&c->ssm), shared = c->ssm.groups * c->ssm.state;
    const uint32_t widths[OP_SCALE_PARTS_MAX] = {inner, inner, shared, shared, c->ssm.heads};
    struct op_scale scale = {.x = in, .count = OP_SCALE_PARTS_MAX};
    ASSERT(in.width == 2 * inner + 2 * shared + c->ssm.heads);
    if (c->ssm_multipliers[0] == 0 && c->ssm_in_scale == 0)
        return;
    for (uint32_t i = 0; i < OP_SCALE_PARTS_MAX; i++) {
        float part = c->ssm_multipliers[i], whole = c->ssm_in_scale;
        scale.parts[i] = (struct scale_part){widths[i], (part != 0 ? part : 1) * (whole != 0 ? whole : 1)};
    }
    compute_scale(s->compute, &scale);
}

static void forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct ssm_weights *w = &l->ssm;
    const struct op_ssm a = {.layer = l->config->recurrent,
                             .norm_kind = !c->ssm_normed      ? SSM_NORM_NONE
                                          : c->ssm_norm_first ? SSM_NORM_BEFORE_GATE
                                                              : SSM_NORM_AFTER_GATE,
                             .dt_min = c->ssm_dt_limit[0],
                             .dt_max = c->ssm_dt_limit[1],
                             .conv = w->conv,
                             .conv_bias = w->conv_bias,
                             .a = w->decay,
                             .dt_bias = w->dt_bias,
                             .skip = w->skip,
                             .norm = w->norm,
                             .in = step_act(ARRAY_PROJ, w->in.out),
                             .conv_out = step_act(ARRAY_CONV, ssm_channels(&s->shape.ssm)),
                             .gates = step_act(ARRAY_GATES, 2 * c->ssm.heads),
                             .out = step_act(ARRAY_MID, w->out.in),
                             .reader = &w->out};
    ASSERT(w->in.out == w->out.in + ssm_channels(&c->ssm) + c->ssm.heads);
    step_project(s, &w->in, step_normed(s), a.in);
    scale_parts(s, a.in);
    compute_ssm_convolve(s->compute, &a);
    compute_ssm_recur(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

const struct block block_mamba = {.state = BLOCK_RECURRENT,
                                  .keys = keys,
                                  .derive = derive,
                                  .check = check,
                                  .arrays = arrays,
                                  .recurrent_layer = ssm_recurrent_layer,
                                  .bind = bind,
                                  .readers = readers,
                                  .forward = forward};
