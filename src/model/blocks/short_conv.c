/* short_conv.c - project to b | c | u, convolve b * u, gate by c, project (contract 10.6). The state is the
 * last values of b * u. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config_key.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "compute/layout.h"

static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(conv_width, 2, CONFIG_CONV_WIDTH_MAX, "conv_L_cache"),
    CONFIG_KEY_END,
};

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    (void)l;
    array_raise(&arrays[ARRAY_PROJ], 3 * c->hidden, 0);
    array_raise(&arrays[ARRAY_MID], c->hidden, c->hidden);
}

static struct recurrent_layer recurrent_layer(const struct compute_shape *s)
{
    return short_conv_recurrent_layer(s->conv_width, s->hidden);
}

/* Files with conv_bias have a bias; the projections find theirs by themselves. */
static int bind_bias(struct binder *b, uint32_t layer, struct short_conv_weights *ret)
{
    char path[BINDER_PATH_MAX];
    binder_path(b, layer, ROLE_SHORT_CONV_BIAS, path);
    return binder_has(b, path) ? binder_vector(b, path, b->config->hidden, &ret->bias) : 0;
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    char path[BINDER_PATH_MAX];
    uint32_t hidden = b->config->hidden;
    struct short_conv_weights *ret = &l->short_conv;
    const struct binder_matrix in = {ROLE_SHORT_CONV_IN, 3 * (uint64_t)hidden};
    const struct binder_matrix out = {ROLE_SHORT_CONV_OUT, hidden};
    int r = binder_layer_projection(b, layer, &in, 1, hidden, &ret->in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, hidden, &ret->out);
    if (r == 0)
        r = binder_conv(b, binder_path(b, layer, ROLE_SHORT_CONV, path), hidden, b->config->conv_width,
                        &ret->conv);
    return r == 0 ? bind_bias(b, layer, ret) : r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->short_conv.in;
}

static void forward(struct step *s, const struct layer *l)
{
    const struct short_conv_weights *w = &l->short_conv;
    const struct op_short_conv a = {.layer = l->config->recurrent,
                                    .taps = s->config->conv_width,
                                    .conv = w->conv,
                                    .bias = w->bias,
                                    .in = step_act(ARRAY_PROJ, w->in.out),
                                    .out = step_act(ARRAY_MID, w->out.in),
                                    .reader = &w->out};
    step_project(s, &w->in, step_normed(s), a.in);
    compute_short_conv(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

const struct block block_short_conv = {.state = BLOCK_RECURRENT,
                                       .keys = keys,
                                       .arrays = arrays,
                                       .recurrent_layer = recurrent_layer,
                                       .bind = bind,
                                       .readers = readers,
                                       .forward = forward};
