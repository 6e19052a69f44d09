/* moe.c - route, compute the chosen experts and the shared one, leave their sum to the next norm. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "tensor/tensor.h"

#include <errno.h>
#include <stdio.h>

/* ---- binding ---- */

/* Parts of each expert's up (gate | up) or down matrix, [experts][*count], in whichever form the checkpoint
 * has. */
static void slice_experts(const struct linear_source *stack, uint32_t stride, struct linear_source *ret)
{
    for (uint32_t e = 0; e < stack->experts; e++)
        ret[e * stride] = binder_slice(stack, e);
}

static int expert_stacked(struct binder *b, uint32_t layer, enum tensor_role role, uint64_t out, uint64_t in,
                          uint32_t stride, struct linear_source *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source stack;
    int r = binder_stack(b, binder_path(b, layer, role, path), b->config->experts, out, in, &stack);
    if (r == 0)
        r = binder_check_bias(b, layer, role, stack.has_bias);
    if (r == 0)
        slice_experts(&stack, stride, ret);
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

static bool stack_is_shaped(const struct binder *b, uint32_t layer, enum tensor_role role, uint64_t rows,
                            uint64_t columns)
{
    char path[BINDER_PATH_MAX];
    const uint64_t shape[3] = {b->config->experts, rows, columns};
    return binder_is_shaped(b, binder_path(b, layer, role, path), 3, shape);
}

/* Returns whether a layer's fused stacks are [experts, in, out]; stacks of GGUF files never are. Where both
 * occur, their shapes decide: one of the two is not a square. */
static bool is_transposed(const struct binder *b, uint32_t layer)
{
    uint64_t im = b->config->expert_intermediate, hidden = b->config->hidden;
    enum stack_order order = b->config->family->experts->order;
    if (order != STACK_ANY || b->config->naming)
        return order != STACK_ROWS && !b->config->naming;
    return stack_is_shaped(b, layer, ROLE_EXPERTS_GATE_UP, hidden, 2 * im) &&
           stack_is_shaped(b, layer, ROLE_EXPERTS_DOWN_FUSED, im, hidden);
}

/* A stack as transformers keeps it. */
static int expert_fused(struct binder *b, uint32_t layer, enum tensor_role role, uint64_t out, uint64_t in,
                        struct linear_source *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source stack = {0};
    if (!is_transposed(b, layer))
        return expert_stacked(b, layer, role, out, in, 1, ret);
    int r =
        binder_stack_transposed(b, binder_path(b, layer, role, path), b->config->experts, out, in, &stack);
    if (role == ROLE_EXPERTS_GATE_UP && b->config->family->experts->order == STACK_COLUMNS_INTERLEAVED) {
        stack.interleaved = stack.transposed;
        if (!stack.transposed)
            stack.row_order = (struct tensor_reorder){.rows = 2, .columns = out / 2, .size = 1};
    }
    if (r == 0)
        r = binder_check_bias(b, layer, role, stack.has_bias);
    if (r == 0)
        slice_experts(&stack, 1, ret);
    return r;
}

static uint32_t expert_width(const struct config *c)
{
    return c->expert_latent > 0 ? c->expert_latent : c->hidden;
}

static int find_up(struct binder *b, uint32_t layer, struct linear_source *parts, uint32_t *count)
{
    uint64_t im = b->config->expert_intermediate, width = expert_width(b->config);
    int r;
    *count = 1;
    if (b->config->family->experts->plain)
        return has_stack(b, layer, ROLE_EXPERTS_UP)
                   ? expert_stacked(b, layer, ROLE_EXPERTS_UP, im, width, 1, parts)
                   : expert_single(b, layer, ROLE_EXPERT_UP, im, width, 1, parts);
    if (has_stack(b, layer, ROLE_EXPERTS_GATE_UP))
        return expert_fused(b, layer, ROLE_EXPERTS_GATE_UP, 2 * im, width, parts);
    *count = 2;
    if (has_stack(b, layer, ROLE_EXPERTS_GATE)) {
        r = expert_stacked(b, layer, ROLE_EXPERTS_GATE, im, width, 2, parts);
        return r < 0 ? r : expert_stacked(b, layer, ROLE_EXPERTS_UP, im, width, 2, parts + 1);
    }
    r = expert_single(b, layer, ROLE_EXPERT_GATE, im, width, 2, parts);
    return r < 0 ? r : expert_single(b, layer, ROLE_EXPERT_UP, im, width, 2, parts + 1);
}

/* The fused stacks stand together; a family may have one name for theirs and for the other. */
static int find_down(struct binder *b, uint32_t layer, struct linear_source *parts)
{
    uint64_t im = b->config->expert_intermediate, width = expert_width(b->config);
    if (has_stack(b, layer, ROLE_EXPERTS_GATE_UP) && has_stack(b, layer, ROLE_EXPERTS_DOWN_FUSED))
        return expert_fused(b, layer, ROLE_EXPERTS_DOWN_FUSED, width, im, parts);
    if (has_stack(b, layer, ROLE_EXPERTS_DOWN))
        return expert_stacked(b, layer, ROLE_EXPERTS_DOWN, width, im, 1, parts);
    return expert_single(b, layer, ROLE_EXPERT_DOWN, width, im, 1, parts);
}

int moe_bind_experts(struct binder *b, uint32_t layer, struct moe_weights *ret)
{
    uint32_t experts = b->config->experts, count;
    size_t mark = arena_mark(b->scratch);
    ret->machine = binder_enter_machine(b, layer);
    const uint64_t used = b->used;
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
    b->experts_bytes += b->used - used;
    if (ret->machine)
        binder_leave_machine(b);
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
    if (shared != ROUTE_SHARED_NONE && has_stack(b, layer, ROLE_SHARED_GATE_UP)) {
        in[count++] = (struct binder_matrix){ROLE_SHARED_GATE_UP, 2 * c->shared_intermediate};
    } else if (shared != ROUTE_SHARED_NONE) {
        if (!c->family->experts->plain)
            in[count++] = (struct binder_matrix){ROLE_SHARED_GATE, c->shared_intermediate};
        in[count++] = (struct binder_matrix){ROLE_SHARED_UP, c->shared_intermediate};
    }
    return binder_layer_projection(b, layer, in, count, c->hidden, &ret->in);
}

static enum route_shared shared_of(const struct config *c)
{
    return c->shared_intermediate > 0 ? c->family->experts->shared : ROUTE_SHARED_NONE;
}

static int bind_latent(struct binder *b, uint32_t layer, struct moe_weights *ret)
{
    const struct config *c = b->config;
    const struct binder_matrix in = {ROLE_EXPERTS_LATENT_IN, c->expert_latent},
                               out = {ROLE_EXPERTS_LATENT_OUT, c->hidden};
    int r = binder_layer_projection(b, layer, &in, 1, c->hidden, &ret->latent_in);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, c->expert_latent, &ret->latent_out) : r;
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    struct moe_weights *ret = &l->moe;
    const struct binder_matrix out = {ROLE_SHARED_DOWN, c->hidden};
    ret->shared = shared_of(c);
    ret->limit = l->config->expert_limit;
    ret->shared_limit = l->config->mlp_limit;
    int r = bind_in(b, layer, ret->shared, ret);
    bool corrected = c->use_expert_bias && c->topk_method == TOPK_CORRECTED;
    if (r == 0 && c->family->experts->correction && corrected)
        r = binder_vector(b, binder_path(b, layer, ROLE_ROUTER_CORRECTION, path), c->experts,
                          &ret->correction);
    if (r == 0 && ret->shared != ROUTE_SHARED_NONE)
        r = binder_layer_projection(b, layer, &out, 1, c->shared_intermediate, &ret->shared_out);
    if (r == 0 && c->expert_latent > 0)
        r = bind_latent(b, layer, ret);
    return r == 0 ? moe_bind_experts(b, layer, ret) : r;
}

static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "num_experts_per_tok"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "moe_intermediate_size"),
    CONFIG_KEY_END,
};

static void check(struct json_read *r, const struct config *c)
{
    if (c->experts == 0)
        json_read_fail(r, -EINVAL, "n_routed_experts is missing");
    if (c->expert_latent > 0 && c->naming)
        json_read_fail(r, -ENOTSUP, "moe_latent_size %u is not supported in GGUF files", c->expert_latent);
    if (c->expert_latent > c->hidden)
        json_read_fail(r, -ENOTSUP, "moe_latent_size %u above hidden_size %u is not supported",
                       c->expert_latent, c->hidden);
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

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    uint32_t shared = c->shared_intermediate, im = c->expert_intermediate;
    (void)l;
    array_raise(&arrays[ARRAY_PROJ], c->experts + 1 + 2 * shared, 0);
    array_raise(&arrays[ARRAY_MID], shared, shared);
    array_raise(&arrays[ARRAY_PAIR_UP], 2 * im, im);
    array_raise(&arrays[ARRAY_PAIR_OUT], expert_width(c), 0);
    array_raise(&arrays[ARRAY_EXPERT_LATENT], c->expert_latent, 0);
    array_raise(&arrays[ARRAY_MID], c->expert_latent, c->expert_latent);
}

/* ---- computing ---- */

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->moe.in;
    ret[1] = l->moe.latent_in.out > 0 ? &l->moe.latent_in : l->moe.machine ? NULL : &l->moe.up;
}

void moe_route(struct step *s, const struct moe_weights *w, struct act in, struct act out)
{
    const struct config *c = s->config;
    const struct expert_form *f = c->family->experts;
    compute_route(s->compute, &(struct op_route){.score = c->route_score,
                                                 .shared = w->shared,
                                                 .normalise = f->normalise || c->normalise,
                                                 .normalise_eps = f->normalise_eps,
                                                 .scale = c->routed_scale,
                                                 .jitter = c->route_jitter,
                                                 .groups = c->topk_method == TOPK_GREEDY ? 1 : c->groups,
                                                 .group_max = c->topk_method == TOPK_GROUP_MAX,
                                                 .groups_top = c->groups_top,
                                                 .correction = w->correction,
                                                 .expert_scale = w->expert_scale,
                                                 .function = step_glu_within(s, w->shared_limit),
                                                 .plain = f->plain,
                                                 .clip = step_clip(s, w->shared_limit),
                                                 .in = in,
                                                 .out = out,
                                                 .reader = &w->shared_out});
}

/* The chosen experts' results of x. */
static void compute_experts_of(struct step *s, const struct moe_weights *w, struct act x)
{
    compute_experts(s->compute, &(struct op_experts){.up = &w->up,
                                                     .down = &w->down,
                                                     .function = step_glu_within(s, w->limit),
                                                     .clip = step_clip(s, w->limit),
                                                     .plain = s->config->family->experts->plain,
                                                     .machine = w->machine,
                                                     .x = x,
                                                     .rows = step_act(ARRAY_PAIR_UP, w->up.out),
                                                     .mid = step_act(ARRAY_PAIR_UP, w->down.in),
                                                     .out = step_act(ARRAY_PAIR_OUT, w->down.out)});
}

void moe_compute(struct step *s, const struct moe_weights *w, struct act mid)
{
    /* The shared expert's, beside the route on a GPU. */
    if (w->shared != ROUTE_SHARED_NONE)
        step_project(s, &w->shared_out, mid, step_out(s));
    compute_experts_of(s, w, step_normed(s));
}

/* Experts in a narrower space than the residual stream. The shared one's result is added first: the sum of
 * the others is the input of a projection. */
static void forward_latent(struct step *s, const struct moe_weights *w, struct act mid)
{
    const uint32_t width = w->latent_in.out;
    const struct act latent = step_act(ARRAY_EXPERT_LATENT, width), x = step_act(ARRAY_NORMED, width),
                     sum = step_act(ARRAY_MID, width);
    step_project(s, &w->latent_in, step_normed(s), latent);
    if (w->shared != ROUTE_SHARED_NONE) {
        step_project(s, &w->shared_out, mid, step_out(s));
        step_leave_out(s);
        s->pending.scale = s->config->residual_scale;
        step_add(s);
    }
    compute_norm(s->compute, &(struct op_norm){.h = latent, .y = x, .readers = {w->machine ? NULL : &w->up}});
    compute_experts_of(s, w, x);
    compute_scale(s->compute, &(struct op_scale){.x = latent, .count = 1, .parts = {{width, 0}}});
    compute_norm(s->compute, &(struct op_norm){.add = {.kind = RESIDUAL_EXPERTS,
                                                       .out = step_act(ARRAY_OUT, 0),
                                                       .pairs = step_act(ARRAY_PAIR_OUT, width),
                                                       .sum = x},
                                               .h = latent,
                                               .y = sum,
                                               .readers = {&w->latent_out}});
    step_project(s, &w->latent_out, sum, step_out(s));
    step_leave_out(s);
}

static void forward(struct step *s, const struct layer *l)
{
    const struct moe_weights *w = &l->moe;
    bool shared = w->shared != ROUTE_SHARED_NONE;
    const struct act in = step_act(ARRAY_PROJ, w->in.out), mid = step_act(ARRAY_MID, w->shared_out.in);
    step_project(s, &w->in, step_normed(s), in);
    moe_route(s, w, in, mid);
    if (w->latent_in.out > 0) {
        forward_latent(s, w, mid);
        return;
    }
    moe_compute(s, w, mid);
    /* The normed tokens are spent by now. */
    s->pending = (struct residual){.kind = RESIDUAL_EXPERTS,
                                   .out = shared ? step_out(s) : step_act(ARRAY_OUT, 0),
                                   .pairs = step_act(ARRAY_PAIR_OUT, s->config->hidden),
                                   .sum = step_normed(s)};
}

const struct block block_experts = {
    .keys = keys, .check = check, .arrays = arrays, .bind = bind, .readers = readers, .forward = forward};
