/* mlp.c - two projections and the activation between them. */
#include "model/mlp.h"

int mlp_bind(struct binder *b, uint32_t layer, struct mlp_weights *ret)
{
    const struct config *c = b->config;
    const struct binder_matrix in[] = {{"mlp.gate_proj", c->intermediate}, {"mlp.up_proj", c->intermediate}};
    const struct binder_matrix out = {"mlp.down_proj", c->hidden};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, c->intermediate, &ret->out) : r;
}

static void activate(struct step *s, const void *arg, uint32_t t, uint32_t from, uint32_t to)
{
    const struct projection *out = arg;
    const float *gate = s->proj + (size_t)t * s->wide, *up = gate + out->in;
    float *y = s->mid + (size_t)t * s->mid_wide;
    s->ops->silu_mul(y + from, gate + from, up + from, to - from);
    step_sums_part(s, out->groups, s->mid_sums + (size_t)t * step_sums_floats(out->in), y, out->in, from, to);
}

void mlp_forward(struct step *s, const struct layer *l)
{
    const struct mlp_weights *w = &l->mlp;
    step_project(s, &w->in, step_x(s), step_proj(s), s->tokens);
    step_each_part(s, activate, &w->out, w->out.in);
    step_project(s, &w->out, step_mid(s, w->out.in), step_d(s), s->tokens);
    s->pending_residual = step_add_block_out;
}
