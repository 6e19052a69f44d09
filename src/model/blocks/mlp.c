/* mlp.c - two projections and the activation between them, with a gate or without. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/json_read.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void check(struct json_read *r, const struct config *c)
{
    if (c->intermediate == 0)
        json_read_fail(r, -EINVAL, "intermediate_size is missing");
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    (void)c;
    array_raise(&arrays[ARRAY_PROJ], 2 * l->intermediate, 0);
    array_raise(&arrays[ARRAY_MID], l->intermediate, l->intermediate);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    uint32_t hidden = b->config->hidden, width = l->config->intermediate;
    const struct binder_matrix in[] = {{ROLE_GATE, width}, {ROLE_UP, width}},
                               fused = {ROLE_GATE_UP, 2 * width};
    const struct binder_matrix out = {ROLE_DOWN, hidden};
    bool one = binder_layer_has(b, layer, ROLE_GATE_UP);
    l->mlp.limit = l->config->mlp_limit;
    int r = binder_layer_projection(b, layer, one ? &fused : in, one ? 1 : COUNT_OF(in), hidden, &l->mlp.in);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, width, &l->mlp.out) : r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->mlp.in;
}

static void activate(struct step *s, const struct layer *l, bool plain)
{
    const struct mlp_weights *w = &l->mlp;
    struct act in = step_act(ARRAY_PROJ, w->in.out), mid = step_act(ARRAY_MID, w->out.in);
    const struct op_product up = {.w = &w->in, .x = step_normed(s), .y = in};
    struct glu_clip clip = step_clip(s, w->limit);
    clip.xielu = w->xielu;
    const struct op_glu glu = {.function = step_glu_within(s, w->limit),
                               .clip = clip,
                               .plain = plain,
                               .in = in,
                               .out = mid,
                               .reader = &w->out};
    const float scale = s->config->mlp_scales[0];
    if (scale != 0) {
        compute_project(s->compute, &up, 1);
        compute_scale(s->compute, &(struct op_scale){.x = in, .count = 1, .parts = {{w->out.in, scale}}});
        compute_glu(s->compute, &glu);
    } else {
        compute_project_glu(s->compute, &up, &glu);
    }
    step_project(s, &w->out, mid, step_out(s));
    step_leave_out(s);
}

static void forward(struct step *s, const struct layer *l)
{
    activate(s, l, false);
}

const struct block block_mlp = {
    .check = check, .arrays = arrays, .bind = bind, .readers = readers, .forward = forward};

/* ---- without a gate ---- */

static void arrays_plain(const struct config *c, const struct layer_config *l,
                         struct array_spec arrays[STEP_ARRAYS])
{
    (void)c;
    array_raise(&arrays[ARRAY_PROJ], l->intermediate, 0);
    array_raise(&arrays[ARRAY_MID], l->intermediate, l->intermediate);
}

/* xIELU's largest argument of expm1, which is about 0: kern_xielu_fn has 0. */
#define XIELU_EPS_LEAST (-1e-4f)

/* The numbers of xIELU: softplus(alpha_p) | softplus(alpha_n) + beta | beta. */
static int bind_xielu(struct binder *b, uint32_t layer, dev_ptr *ret)
{
    static const enum tensor_role roles[] = {ROLE_XIELU_ABOVE, ROLE_XIELU_BELOW, ROLE_XIELU_BETA,
                                             ROLE_XIELU_EPS};
    char path[BINDER_PATH_MAX];
    float values[COUNT_OF(roles)] = {0, 0, 0.5f, 0};
    int r = 0;
    if (b->config->naming)
        memcpy(values, b->config->layer[layer].xielu, sizeof(values));
    for (size_t i = 0; r == 0 && !b->config->naming && i < COUNT_OF(roles); i++) {
        if (i < 2 || binder_layer_has(b, layer, roles[i]))
            r = binder_number(b, binder_path(b, layer, roles[i], path), &values[i]);
    }
    if (r == 0 && !(values[3] <= 0 && values[3] >= XIELU_EPS_LEAST))
        r = err_set(b->e, -ENOTSUP, "eps %g of layer %u's xIELU is not supported: about 0 is",
                    (double)values[3], layer);
    for (size_t i = 0; i < 2; i++)
        values[i] = values[i] > 20 ? values[i] : log1pf(expf(values[i]));
    values[1] += values[2];
    return r == 0 ? binder_numbers(b, values, 3, ret) : r;
}

static int bind_plain(struct binder *b, uint32_t layer, struct layer *l)
{
    uint32_t hidden = b->config->hidden, width = l->config->intermediate;
    const struct binder_matrix up = {ROLE_UP, width}, down = {ROLE_DOWN, hidden};
    int r = binder_layer_projection(b, layer, &up, 1, hidden, &l->mlp.in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &down, 1, width, &l->mlp.out);
    return r == 0 && b->config->activation == ACTIVATION_XIELU ? bind_xielu(b, layer, &l->mlp.xielu) : r;
}

static void forward_plain(struct step *s, const struct layer *l)
{
    activate(s, l, true);
}

const struct block block_mlp_plain = {
    .check = check, .arrays = arrays_plain, .bind = bind_plain, .readers = readers, .forward = forward_plain};
