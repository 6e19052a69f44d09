/* mlp.c - two projections and the activation between them. */
#include "model/blocks.h"

#include "base/check.h"

#include <errno.h>

static void check(struct json_read *r, const struct config *c)
{
    if (c->intermediate == 0)
        json_read_fail(r, -EINVAL, "intermediate_size is missing");
}

static void places(const struct config *c, const struct layer_config *l,
                   struct place_spec places[STEP_PLACES])
{
    (void)c;
    place_raise(&places[PLACE_PROJ], 2 * l->intermediate, 0);
    place_raise(&places[PLACE_MID], l->intermediate, l->intermediate);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    uint32_t hidden = b->config->hidden, width = l->config->intermediate;
    const struct binder_matrix in[] = {{ROLE_GATE, width}, {ROLE_UP, width}};
    const struct binder_matrix out = {ROLE_DOWN, hidden};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), hidden, &l->mlp.in);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, width, &l->mlp.out) : r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->mlp.in;
}

static void forward(struct step *s, const struct layer *l)
{
    const struct mlp_weights *w = &l->mlp;
    struct act in = step_act(PLACE_PROJ, w->in.out), mid = step_act(PLACE_MID, w->out.in);
    step_project(s, &w->in, step_normed(s), in);
    compute_glu(s->compute,
                &(struct op_glu){.function = step_glu(s), .in = in, .out = mid, .reader = &w->out});
    step_project(s, &w->out, mid, step_out(s));
    step_leave_out(s);
}

const struct block block_mlp = {
    .check = check, .places = places, .bind = bind, .readers = readers, .forward = forward};
