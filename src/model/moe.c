/* moe.c - route, compute the chosen experts and the shared one, leave their sum to the next norm. */
#include "model/blocks.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

/* ---- binding ---- */

/* Parts of each expert's up (gate | up) or down matrix, [experts][*count], in whichever form the checkpoint
 * has. */
static int expert_stacked(struct binder *b, const char *path, uint64_t out, uint64_t in, uint32_t stride,
                          struct linear_source *ret)
{
    struct linear_source stack;
    uint32_t experts = b->config->experts;
    int r = binder_stack(b, path, experts, out, in, &stack);
    for (uint32_t e = 0; r == 0 && e < experts; e++)
        ret[e * stride] = binder_slice(&stack, e);
    return r;
}

static int expert_single(struct binder *b, uint32_t layer, const char *name, uint64_t out, uint64_t in,
                         uint32_t stride, struct linear_source *ret)
{
    char path[BINDER_PATH_MAX], tail[64];
    int r = 0;
    for (uint32_t e = 0; r == 0 && e < b->config->experts; e++) {
        snprintf(tail, sizeof(tail), "mlp.experts.%u.%s", e, name);
        r = binder_linear(b, binder_path(layer, tail, path), out, in, &ret[e * stride]);
    }
    return r;
}

static int find_up(struct binder *b, uint32_t layer, struct linear_source *parts, uint32_t *count)
{
    char path[BINDER_PATH_MAX];
    uint64_t im = b->config->expert_intermediate, hidden = b->config->hidden;
    *count = 1;
    if (binder_has(b, binder_path(layer, "mlp.experts.gate_up_proj", path)))
        return expert_stacked(b, path, 2 * im, hidden, 1, parts);
    *count = 2;
    if (binder_has(b, binder_path(layer, "mlp.switch_mlp.gate_proj", path))) {
        int r = expert_stacked(b, path, im, hidden, 2, parts);
        return r < 0 ? r
                     : expert_stacked(b, binder_path(layer, "mlp.switch_mlp.up_proj", path), im, hidden, 2,
                                      parts + 1);
    }
    int r = expert_single(b, layer, "gate_proj", im, hidden, 2, parts);
    return r < 0 ? r : expert_single(b, layer, "up_proj", im, hidden, 2, parts + 1);
}

static int find_down(struct binder *b, uint32_t layer, struct linear_source *parts)
{
    char path[BINDER_PATH_MAX];
    uint64_t im = b->config->expert_intermediate, hidden = b->config->hidden;
    if (binder_has(b, binder_path(layer, "mlp.experts.down_proj", path)))
        return expert_stacked(b, path, hidden, im, 1, parts);
    if (binder_has(b, binder_path(layer, "mlp.switch_mlp.down_proj", path)))
        return expert_stacked(b, path, hidden, im, 1, parts);
    return expert_single(b, layer, "down_proj", hidden, im, 1, parts);
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

int moe_bind(struct binder *b, uint32_t layer, struct moe_weights *ret)
{
    const struct config *c = b->config;
    const struct binder_matrix in[] = {{"mlp.gate", c->experts},
                                       {"mlp.shared_expert_gate", 1},
                                       {"mlp.shared_expert.gate_proj", c->shared_intermediate},
                                       {"mlp.shared_expert.up_proj", c->shared_intermediate}};
    const struct binder_matrix out = {"mlp.shared_expert.down_proj", c->hidden};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, c->shared_intermediate, &ret->shared_out);
    return r == 0 ? bind_experts(b, layer, ret) : r;
}

/* ---- computing ---- */

void moe_forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct moe_weights *w = &l->moe;
    const struct act in = step_act(PLACE_PROJ, w->in.out), mid = step_act(PLACE_MID, w->shared_out.in);
    const struct act up = step_act(PLACE_PAIR_UP, w->up.out), pair_mid = step_act(PLACE_PAIR_UP, w->down.in);
    const struct act pair_out = step_act(PLACE_PAIR_OUT, c->hidden);
    step_project(s, &w->in, step_normed(s), in);
    compute_route(s->compute, &(struct op_route){.in = in, .out = mid, .reader = &w->shared_out});
    compute_project(
        s->compute,
        &(struct op_product){.w = &w->up, .x = step_normed(s), .y = up, .columns = COLUMNS_EXPERTS}, 1);
    compute_glu(s->compute, &(struct op_glu){.in = up, .out = pair_mid, .reader = &w->down});
    const struct op_product down[] = {
        {.w = &w->shared_out, .x = mid, .y = step_out(s)},
        {.w = &w->down, .x = pair_mid, .y = pair_out, .columns = COLUMNS_EXPERTS}};
    compute_project(s->compute, down, COUNT_OF(down));
    /* The normed tokens are spent by now. */
    s->pending = (struct residual){
        .kind = RESIDUAL_EXPERTS, .out = step_out(s), .pairs = pair_out, .sum = step_normed(s)};
}
