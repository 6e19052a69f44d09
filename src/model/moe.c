/* moe.c - route, compute the chosen experts and the shared one, leave their sum to the next norm. */
#include "model/blocks.h"
#include "model/family.h"

#include "base/check.h"

#include <errno.h>

/* ---- binding ---- */

/* Parts of each expert's up (gate | up) or down matrix, [experts][*count], in whichever form the checkpoint
 * has. */
static int expert_stacked(struct binder *b, uint32_t layer, enum tensor_role role, uint64_t out, uint64_t in,
                          uint32_t stride, struct linear_source *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source stack;
    uint32_t experts = b->config->experts;
    int r = binder_stack(b, binder_path(b, layer, role, path), experts, out, in, &stack);
    for (uint32_t e = 0; r == 0 && e < experts; e++)
        ret[e * stride] = binder_slice(&stack, e);
    return r;
}

static int expert_single(struct binder *b, uint32_t layer, enum tensor_role role, uint64_t out, uint64_t in,
                         uint32_t stride, struct linear_source *ret)
{
    char path[BINDER_PATH_MAX];
    int r = 0;
    for (uint32_t e = 0; r == 0 && e < b->config->experts; e++)
        r = binder_linear(b, binder_expert_path(b, layer, role, e, path), out, in, &ret[e * stride]);
    return r;
}

static bool has_stack(const struct binder *b, uint32_t layer, enum tensor_role role)
{
    char path[BINDER_PATH_MAX];
    return binder_has(b, binder_path(b, layer, role, path));
}

static int find_up(struct binder *b, uint32_t layer, struct linear_source *parts, uint32_t *count)
{
    uint64_t im = b->config->expert_intermediate, hidden = b->config->hidden;
    *count = 1;
    if (has_stack(b, layer, ROLE_EXPERTS_GATE_UP))
        return expert_stacked(b, layer, ROLE_EXPERTS_GATE_UP, 2 * im, hidden, 1, parts);
    *count = 2;
    if (has_stack(b, layer, ROLE_EXPERTS_GATE)) {
        int r = expert_stacked(b, layer, ROLE_EXPERTS_GATE, im, hidden, 2, parts);
        return r < 0 ? r : expert_stacked(b, layer, ROLE_EXPERTS_UP, im, hidden, 2, parts + 1);
    }
    int r = expert_single(b, layer, ROLE_EXPERT_GATE, im, hidden, 2, parts);
    return r < 0 ? r : expert_single(b, layer, ROLE_EXPERT_UP, im, hidden, 2, parts + 1);
}

static int find_down(struct binder *b, uint32_t layer, struct linear_source *parts)
{
    static const enum tensor_role stacks[] = {ROLE_EXPERTS_DOWN_FUSED, ROLE_EXPERTS_DOWN};
    uint64_t im = b->config->expert_intermediate, hidden = b->config->hidden;
    for (size_t i = 0; i < COUNT_OF(stacks); i++) {
        if (has_stack(b, layer, stacks[i]))
            return expert_stacked(b, layer, stacks[i], hidden, im, 1, parts);
    }
    return expert_single(b, layer, ROLE_EXPERT_DOWN, hidden, im, 1, parts);
}

static int bind_experts(struct binder *b, uint32_t layer, struct moe_weights *ret)
{
    uint32_t experts = b->config->experts, count;
    size_t mark = arena_mark(b->scratch);
    struct linear_source *parts = ARENA_ARRAY(b->scratch, struct linear_source, (size_t)experts * 2);
    int r = parts ? 0 : err_set(b->e, -ENOMEM, "no memory left for a table of %u experts", experts);
    if (r == 0)
        r = find_up(b, layer, parts, &count);
    if (r == 0)
        r = binder_experts(b, parts, experts, count, &ret->up);
    if (r == 0)
        r = find_down(b, layer, parts);
    if (r == 0)
        r = binder_experts(b, parts, experts, 1, &ret->down);
    arena_rewind(b->scratch, mark);
    return r;
}

/* The router, and what of the shared expert reads the same input. */
static int bind_in(struct binder *b, uint32_t layer, enum route_shared shared, struct moe_weights *ret)
{
    const struct config *c = b->config;
    struct binder_matrix in[4] = {{ROLE_ROUTER, c->experts}};
    uint32_t count = 1;
    if (shared == ROUTE_SHARED_GATED)
        in[count++] = (struct binder_matrix){ROLE_SHARED_SCALE, 1};
    if (shared != ROUTE_SHARED_NONE) {
        in[count++] = (struct binder_matrix){ROLE_SHARED_GATE, c->shared_intermediate};
        in[count++] = (struct binder_matrix){ROLE_SHARED_UP, c->shared_intermediate};
    }
    return binder_layer_projection(b, layer, in, count, c->hidden, &ret->in);
}

static enum route_shared shared_of(const struct config *c)
{
    return c->shared_intermediate > 0 ? c->family->experts->shared : ROUTE_SHARED_NONE;
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    struct moe_weights *ret = &l->moe;
    const struct binder_matrix out = {ROLE_SHARED_DOWN, c->hidden};
    ret->shared = shared_of(c);
    int r = bind_in(b, layer, ret->shared, ret);
    if (r == 0 && c->family->experts->correction)
        r = binder_vector(b, binder_path(b, layer, ROLE_ROUTER_CORRECTION, path), c->experts,
                          &ret->correction);
    if (r == 0 && ret->shared != ROUTE_SHARED_NONE)
        r = binder_layer_projection(b, layer, &out, 1, c->shared_intermediate, &ret->shared_out);
    return r == 0 ? bind_experts(b, layer, ret) : r;
}

static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "num_experts_per_tok"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "moe_intermediate_size"),
    CONFIG_KEY_END,
};

static void check(struct json_read *r, const struct config *c)
{
    if (c->top_k > c->experts)
        json_read_fail(r, -EINVAL, "num_experts_per_tok is %u, but there are %u experts", c->top_k,
                       c->experts);
    if (c->shared_intermediate > CONFIG_INTERMEDIATE_MAX)
        json_read_fail(r, -EINVAL, "%u shared experts are %u wide together, more than %u", c->shared_experts,
                       c->shared_intermediate, CONFIG_INTERMEDIATE_MAX);
    if (c->groups > 1 && (c->experts % c->groups != 0 || c->groups_top == 0 || c->groups_top > c->groups))
        json_read_fail(r, -EINVAL, "n_group %u does not divide %u experts, or topk_group %u is not in 1..%u",
                       c->groups, c->experts, c->groups_top, c->groups);
    else if (c->groups > 1 && c->top_k > c->experts / c->groups * c->groups_top)
        json_read_fail(r, -EINVAL, "num_experts_per_tok %u is more than the experts of topk_group %u groups",
                       c->top_k, c->groups_top);
}

static void places(const struct config *c, const struct layer_config *l,
                   struct place_spec places[STEP_PLACES])
{
    uint32_t shared = c->shared_intermediate, im = c->expert_intermediate;
    (void)l;
    place_raise(&places[PLACE_PROJ], c->experts + 1 + 2 * shared, 0);
    place_raise(&places[PLACE_MID], shared, shared);
    place_raise(&places[PLACE_PAIR_UP], 2 * im, im);
    place_raise(&places[PLACE_PAIR_OUT], c->hidden, 0);
}

/* ---- computing ---- */

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->moe.in;
    ret[1] = &l->moe.up;
}

static struct op_route route_of(const struct step *s, const struct moe_weights *w, struct act in,
                                struct act out)
{
    const struct config *c = s->config;
    const struct expert_form *f = c->family->experts;
    return (struct op_route){.score = f->score,
                             .shared = w->shared,
                             .normalise = f->normalise || c->normalise,
                             .normalise_eps = f->normalise_eps,
                             .scale = c->routed_scale,
                             .groups = c->groups,
                             .groups_top = c->groups_top,
                             .correction = w->correction,
                             .function = step_glu(s),
                             .in = in,
                             .out = out,
                             .reader = &w->shared_out};
}

static void forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct moe_weights *w = &l->moe;
    bool shared = w->shared != ROUTE_SHARED_NONE;
    const struct act in = step_act(PLACE_PROJ, w->in.out), mid = step_act(PLACE_MID, w->shared_out.in);
    const struct act up = step_act(PLACE_PAIR_UP, w->up.out), pair_mid = step_act(PLACE_PAIR_UP, w->down.in);
    const struct act pair_out = step_act(PLACE_PAIR_OUT, c->hidden);
    const struct op_route route = route_of(s, w, in, mid);
    step_project(s, &w->in, step_normed(s), in);
    compute_route(s->compute, &route);
    compute_project(
        s->compute,
        &(struct op_product){.w = &w->up, .x = step_normed(s), .y = up, .columns = COLUMNS_EXPERTS}, 1);
    compute_glu(s->compute,
                &(struct op_glu){.function = step_glu(s), .in = up, .out = pair_mid, .reader = &w->down});
    const struct op_product down[] = {
        {.w = &w->down, .x = pair_mid, .y = pair_out, .columns = COLUMNS_EXPERTS},
        {.w = &w->shared_out, .x = mid, .y = step_out(s)}};
    compute_project(s->compute, down, shared ? 2 : 1);
    /* The normed tokens are spent by now. */
    s->pending = (struct residual){.kind = RESIDUAL_EXPERTS,
                                   .out = shared ? step_out(s) : step_act(PLACE_OUT, 0),
                                   .pairs = pair_out,
                                   .sum = step_normed(s)};
}

const struct block block_experts = {
    .keys = keys, .check = check, .places = places, .bind = bind, .readers = readers, .forward = forward};
