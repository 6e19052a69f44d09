/* moe.c - route, gather by expert, compute, sum in router order.
 *
 * An expert's matrices are read once per step for all tokens that chose it. Results are kept per (token,
 * rank) and summed in the order of ranks, so a token's result does not depend on other tokens of the same
 * experts. */
#include "model/moe.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
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
        r = binder_experts(b, parts, experts, count, &ret->up, &ret->up_groups);
    if (r == 0)
        r = find_down(b, layer, parts);
    if (r == 0)
        r = binder_experts(b, parts, experts, 1, &ret->down, &ret->down_groups);
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

/* ---- routing ---- */

static void softmax(float *x, uint32_t n)
{
    float max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - max);
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* The largest k of p, largest first, the lower index on ties, and their weights, which sum to 1. Spoils p. */
static void choose(float *p, uint32_t n, uint32_t k, uint32_t *experts, float *weights)
{
    float sum = 0;
    for (uint32_t r = 0; r < k; r++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            best = p[i] > p[best] ? i : best;
        experts[r] = best;
        weights[r] = p[best];
        sum += p[best];
        p[best] = -1;
    }
    for (uint32_t r = 0; r < k; r++)
        weights[r] /= sum;
}

/* Work of a token between the first products and the experts: chooses experts, activates the shared
 * expert. */
static void route(struct step *s, const void *arg, uint32_t t)
{
    const struct moe_weights *w = arg;
    const struct config *c = s->config;
    uint32_t n = w->shared_out.in;
    float *router = s->proj + (size_t)t * s->wide;
    const float *shared = router + c->experts;
    softmax(router, c->experts);
    choose(router, c->experts, c->top_k, s->pair_expert + (size_t)t * c->top_k,
           s->pair_weight + (size_t)t * c->top_k);
    s->shared_gate[t] = 1 / (1 + expf(-shared[0]));
    float *y = s->mid + (size_t)t * s->mid_wide;
    s->ops->silu_mul(y, shared + 1, shared + 1 + n, n);
    step_sums(s, w->shared_out.groups, s->mid_sums + (size_t)t * step_sums_floats(n), y, n);
}

/* Pairs in the order of their experts: a counting sort. */
static void sort_pairs(struct step *s)
{
    const struct config *c = s->config;
    uint32_t pairs = s->tokens * c->top_k;
    memset(s->expert_begin, 0, (c->experts + 1) * sizeof(s->expert_begin[0]));
    for (uint32_t i = 0; i < pairs; i++)
        s->expert_begin[s->pair_expert[i] + 1]++;
    for (uint32_t e = 0; e < c->experts; e++)
        s->expert_begin[e + 1] += s->expert_begin[e];
    /* Filling moves each begin to the next one's place; moving them back restores it. */
    for (uint32_t i = 0; i < pairs; i++)
        s->pair_order[s->expert_begin[s->pair_expert[i]]++] = i;
    memmove(s->expert_begin + 1, s->expert_begin, c->experts * sizeof(s->expert_begin[0]));
    s->expert_begin[0] = 0;
}

/* Lists the columns of the experts' products, in the order of the sort. */
static void point_pairs(struct step *s, const struct moe_weights *w)
{
    const struct config *c = s->config;
    uint32_t im = c->expert_intermediate, pairs = s->tokens * c->top_k;
    for (uint32_t i = 0; i < pairs; i++) {
        size_t pair = s->pair_order[i], t = pair / c->top_k;
        s->pair_x[i] = s->normed + t * s->normed_wide;
        s->pair_xsum[i] =
            s->normed_sums + t * step_sums_floats(c->hidden) + step_sums_offset(c->hidden, w->up.group);
        s->pair_up_y[i] = s->pair_up + pair * 2 * im;
        s->pair_mid[i] = s->pair_up_y[i];
        s->pair_mid_sum[i] =
            s->pair_up_sums + pair * step_sums_floats(im) + step_sums_offset(im, w->down.group);
        s->pair_out_y[i] = s->pair_out + pair * c->hidden;
    }
}

/* ---- computing ---- */

/* Adds a product for every expert that a token chose. */
static uint32_t add_experts(struct step *s, uint32_t count, const struct matrix *stack,
                            const struct kern_columns *all)
{
    for (uint32_t e = 0; e < s->config->experts; e++) {
        uint32_t from = s->expert_begin[e], to = s->expert_begin[e + 1];
        if (from == to)
            continue;
        struct matrix m = matrix_expert(stack, e);
        struct kern_columns c = {
            .count = to - from, .x = all->x + from, .xsum = all->xsum + from, .y = all->y + from};
        count = step_product_add(s, count, &m, &c);
    }
    return count;
}

static void activate_pairs(struct step *s, const void *arg, uint32_t t)
{
    const struct moe_weights *w = arg;
    uint32_t im = s->config->expert_intermediate, k = s->config->top_k;
    for (size_t pair = (size_t)t * k; pair < (size_t)(t + 1) * k; pair++) {
        float *gate = s->pair_up + pair * 2 * im;
        s->ops->silu_mul(gate, gate, gate + im, im);
        step_sums(s, w->down_groups, s->pair_up_sums + pair * step_sums_floats(im), gate, im);
    }
}

/* residual += sum over ranks of weight * expert, then the shared expert by its gate. normed serves as the
 * sum: it is spent. */
static void add_pair_out(struct step *s, uint32_t t)
{
    const struct config *c = s->config;
    uint32_t hidden = c->hidden;
    float *sum = s->normed + (size_t)t * s->normed_wide;
    memset(sum, 0, hidden * sizeof(*sum));
    for (size_t pair = (size_t)t * c->top_k; pair < (size_t)(t + 1) * c->top_k; pair++)
        s->ops->add_scaled(sum, s->pair_out + pair * hidden, s->pair_weight[pair], hidden);
    s->ops->add_scaled(sum, s->block_out + (size_t)t * hidden, s->shared_gate[t], hidden);
    s->ops->add(s->residual + (size_t)t * hidden, sum, hidden);
}

void moe_forward(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct moe_weights *w = &l->moe;
    step_project(s, &w->in, step_x(s), step_proj(s), s->tokens);
    step_each_token(s, route, w, 10 * (c->experts + c->shared_intermediate));
    sort_pairs(s);
    point_pairs(s, w);
    struct kern_columns up = {.x = s->pair_x, .xsum = s->pair_xsum, .y = s->pair_up_y};
    step_products(s, add_experts(s, 0, &w->up, &up));
    step_each_token(s, activate_pairs, w, 10 * c->top_k * c->expert_intermediate);
    struct kern_columns down = {.x = s->pair_mid, .xsum = s->pair_mid_sum, .y = s->pair_out_y};
    uint32_t count =
        step_project_add(s, 0, &w->shared_out, step_mid(s, w->shared_out.in), step_d(s), s->tokens);
    step_products(s, add_experts(s, count, &w->down, &down));
    s->pending_residual = add_pair_out;
}
