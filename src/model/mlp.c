/* mlp.c - two projections and the activation between them. */
#include "model/blocks.h"

int mlp_bind(struct binder *b, uint32_t layer, struct mlp_weights *ret)
{
    const struct config *c = b->config;
    const struct binder_matrix in[] = {{"mlp.gate_proj", c->intermediate}, {"mlp.up_proj", c->intermediate}};
    const struct binder_matrix out = {"mlp.down_proj", c->hidden};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, c->intermediate, &ret->out) : r;
}

void mlp_forward(struct step *s, const struct layer *l)
{
    const struct mlp_weights *w = &l->mlp;
    struct act in = step_act(PLACE_PROJ, w->in.out), mid = step_act(PLACE_MID, w->out.in);
    step_project(s, &w->in, step_normed(s), in);
    compute_glu(s->compute, &(struct op_glu){.in = in, .out = mid, .reader = &w->out});
    step_project(s, &w->out, mid, step_out(s));
    step_leave_out(s);
}
