/* delta_net.c - project, convolve, recur, project. */
#include "model/blocks.h"

#include "base/check.h"

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

void delta_net_forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct delta_weights *w = &l->delta;
    const struct op_delta a = {.layer = l->kind_index,
                               .conv = w->conv,
                               .decay = w->decay,
                               .dt_bias = w->dt_bias,
                               .norm = w->norm,
                               .in = step_act(PLACE_PROJ, w->in.out),
                               .conv_out = step_act(PLACE_CONV, shape_conv_channels(&s->shape)),
                               .gates = step_act(PLACE_GATES, 2 * c->value_heads),
                               .out = step_act(PLACE_MID, w->out.in),
                               .reader = &w->out};
    step_project(s, &w->in, step_normed(s), a.in);
    compute_convolve(s->compute, &a);
    compute_recur(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}
