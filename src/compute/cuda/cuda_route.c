/* cuda_route.c - a token's experts, their weights, and the shared expert's activation. */
#include "compute/cuda/cuda_step.h"

/* A row has the router's logits, the shared expert's gate, then gate | up. */
static struct act shared_in(const struct cuda *c, const struct op_route *a)
{
    uint32_t at = c->shape->experts + (a->shared == ROUTE_SHARED_GATED);
    return act_part(a->in, at, a->in.width - at);
}

/* The shared expert's activation becomes a part of its product, which waits. False: it does not. */
static bool shared_in_product(struct cuda *c, const struct op_route *a)
{
    const struct op_glu glu = {.function = a->function,
                               .plain = a->plain,
                               .clip = a->clip,
                               .in = shared_in(c, a),
                               .out = a->out,
                               .reader = a->reader};
    return a->shared != ROUTE_SHARED_NONE && cuda_shared_glu_of_held(c, &glu);
}

static void activate_shared(struct cuda *c, const struct op_route *a)
{
    const uint32_t n = a->out.width;
    const struct cuda_rows in = cuda_rows(c, shared_in(c, a));
    const struct cuda_glu k = {.function = (uint32_t)a->function,
                               .has_up = !a->plain,
                               .alpha = a->clip.alpha,
                               .limit = a->clip.limit,
                               .in = {in.at, in.stride, n},
                               .up = {in.at + n, in.stride, n},
                               .out = cuda_rows(c, a->out)};
    cuda_run(c, CUDA_KERNEL_glu, cuda_by_row(c->step.tokens), &k);
}

void cuda_route(struct compute *compute, const struct op_route *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_route k = {.score = (uint32_t)a->score,
                                 .shared = (uint32_t)a->shared,
                                 .normalise = a->normalise,
                                 .groups = a->groups,
                                 .groups_top = a->groups_top,
                                 .group_max = a->group_max,
                                 .normalise_eps = a->normalise_eps,
                                 .scale = a->scale,
                                 .jitter = a->jitter,
                                 .correction = cuda_pointer(a->correction),
                                 .expert_scale = cuda_pointer(a->expert_scale),
                                 .in = cuda_rows(c, a->in),
                                 .pair_expert = c->expert,
                                 .pair_weight = c->pair_weight,
                                 .shared_gate = c->shared_gate};
    c->shared_of.width = 0;
    const bool activated = shared_in_product(c, a);
    cuda_flush(c);
    const struct act rounded = c->rounded_of;
    c->sorted_by = 0;
    ASSERT(a->score != ROUTE_SPARSEMIXER || c->shape->top_k == 2);
    cuda_run_step(c, a->score == ROUTE_SPARSEMIXER ? CUDA_KERNEL_route_mixed : CUDA_KERNEL_route,
                  (struct cuda_grid){c->step.tokens, 1, 1, CUDA_ROUTE_THREADS, 0}, &k);
    cuda_keep_rounded(c, rounded, a->in);
    if (a->shared == ROUTE_SHARED_NONE || activated)
        return;
    activate_shared(c, a);
    cuda_keep_rounded(c, rounded, a->out);
}
