/* mlp_beside.c - experts beside a dense MLP (contract 10.7): both results are normed, then added.
 *
 * The router and the experts read the residual stream through norms of their own, so the place of the normed
 * tokens is filled three times. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include <errno.h>
#include <math.h>

static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "top_k_experts", "num_experts_per_tok"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "moe_intermediate_size"),
    CONFIG_KEY_END,
};

static void check(struct json_read *r, const struct config *c)
{
    block_mlp.check(r, c);
    if (c->top_k > c->experts)
        json_read_fail(r, -EINVAL, "top_k_experts is %u, but there are %u experts", c->top_k, c->experts);
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    block_mlp.arrays(c, l, arrays);
    block_experts.arrays(c, l, arrays);
}

static int bind_vectors(struct binder *b, uint32_t layer, struct beside_weights *w)
{
    char path[BINDER_PATH_MAX];
    uint32_t hidden = b->config->hidden;
    const struct {
        enum tensor_role role;
        dev_ptr *ret;
    } norms[] = {{ROLE_MLP_RESULT_NORM, &w->norm_mlp},
                 {ROLE_EXPERTS_NORM, &w->norm_experts},
                 {ROLE_EXPERTS_NORM_AFTER, &w->norm_sum}};
    int r = binder_vector_times(b, binder_path(b, layer, ROLE_ROUTER_NORM, path), hidden,
                                (float)(1 / sqrt((double)hidden)), &w->norm_router);
    if (r == 0)
        r = binder_vector(b, binder_path(b, layer, ROLE_EXPERT_SCALE, path), b->config->experts,
                          &w->moe.expert_scale);
    for (size_t i = 0; r == 0 && i < sizeof(norms) / sizeof(norms[0]); i++)
        r = binder_norm(b, binder_path(b, layer, norms[i].role, path), hidden, norms[i].ret);
    return r;
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    struct beside_weights *w = &l->beside;
    const struct binder_matrix router = {ROLE_ROUTER, b->config->experts};
    int r = block_mlp.bind(b, layer, l);
    w->moe.shared = ROUTE_SHARED_NONE;
    if (r == 0)
        r = binder_layer_projection(b, layer, &router, 1, b->config->hidden, &w->moe.in);
    if (r == 0)
        r = moe_bind_experts(b, layer, &w->moe);
    return r == 0 ? bind_vectors(b, layer, w) : r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->beside.mlp.in;
}

/* y = norm of x, for a projection that reads it next. */
static void norm(struct step *s, struct act x, struct act y, dev_ptr weight, const struct projection *reader)
{
    compute_norm(s->compute,
                 &(struct op_norm){.h = x, .y = y, .norm = {.weight = weight}, .readers = {reader}});
}

static void forward(struct step *s, const struct layer *l)
{
    const struct beside_weights *w = &l->beside;
    const struct act logits = step_act(ARRAY_PROJ, w->moe.in.out), none = step_act(ARRAY_MID, 0);
    block_mlp.forward(s, l);
    norm(s, step_out(s), step_out(s), w->norm_mlp, NULL);
    norm(s, step_residual(s), step_normed(s), w->norm_router, &w->moe.in);
    step_project(s, &w->moe.in, step_normed(s), logits);
    moe_route(s, &w->moe, logits, none);
    norm(s, step_residual(s), step_normed(s), w->norm_experts, w->moe.machine ? NULL : &w->moe.up);
    moe_compute(s, &w->moe, none);
    s->pending = (struct residual){.kind = RESIDUAL_EXPERTS,
                                   .out = step_out(s),
                                   .pairs = step_act(ARRAY_PAIR_OUT, s->config->hidden),
                                   .sum = step_normed(s),
                                   .norm_pairs = w->norm_sum};
}

const struct block block_experts_beside = {
    .keys = keys, .check = check, .arrays = arrays, .bind = bind, .readers = readers, .forward = forward};
