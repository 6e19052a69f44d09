/* mlp.c - two projections and the activation between them. */
#include "model/mlp.h"

int mlp_bind(struct binder *b, uint32_t layer, struct mlp_weights *ret)
{
    const struct config *c = b->config;
    char path[BINDER_PATH_MAX];
    struct linear_source in[2], out;
    int r = binder_linear(b, binder_path(layer, "mlp.gate_proj", path), c->intermediate, c->hidden, &in[0]);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "mlp.up_proj", path), c->intermediate, c->hidden, &in[1]);
    if (r == 0)
        r = binder_projection(b, in, 2, &ret->in);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "mlp.down_proj", path), c->hidden, c->intermediate, &out);
    return r == 0 ? binder_projection(b, &out, 1, &ret->out) : r;
}

static void activate(struct step *s, const void *arg, uint32_t t, uint32_t from, uint32_t to)
{
    const struct projection *out = arg;
    const float *gate = s->p + (size_t)t * s->wide, *up = gate + out->in;
    float *y = s->mid + (size_t)t * s->mid_wide;
    s->ops->silu_mul(y + from, gate + from, up + from, to - from);
    step_sums_part(s, out->groups, s->mid_sums + (size_t)t * step_sums_floats(out->in), y, out->in, from, to);
}

void mlp_forward(struct step *s, const struct layer *l)
{
    const struct mlp_weights *w = &l->mlp;
    step_project(s, &w->in, step_x(s), step_p(s), s->tokens);
    step_each_part(s, activate, &w->out, w->out.in);
    step_project(s, &w->out, step_mid(s, w->out.in), step_d(s), s->tokens);
    s->settle = step_settle_d;
}
