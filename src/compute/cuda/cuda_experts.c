/* cuda_experts.c - routes, and products with the matrices of the chosen experts.
 *
 * A step of one token has a column for each of its experts. With more tokens an expert has several columns. A
 * kernel sorts the pairs of tokens and experts by expert. A block takes a group of an expert's columns, and
 * reads the weights once for all of them. An output has the same bits either way (kernels/bf16.cu). */
#include "compute/cuda/cuda_step.h"

/* ---- sorted pairs ---- */

/* Sorts the step's pairs into groups of at most `columns`, unless an earlier product did. */
static struct cuda_sorted sort_pairs(struct cuda *c, uint32_t columns)
{
    const struct cuda_sort k = {.expert = c->expert,
                                .pairs = c->step.tokens * c->shape->top_k,
                                .experts = c->shape->experts,
                                .columns = columns,
                                .order = c->order,
                                .groups = c->groups,
                                .group_count = c->group_count};
    if (c->sorted_by != columns)
        cuda_run_product(
            c, CUDA_KERNEL_sort,
            (struct cuda_grid){1, 1, 1, CUDA_SORT_THREADS, 2 * k.experts * (uint32_t)sizeof(uint32_t)}, &k);
    c->sorted_by = columns;
    return (struct cuda_sorted){c->order, c->groups, c->group_count};
}

/* ---- products ---- */

/* The outputs of a part follow the outputs of the part before. */
void cuda_multiply_experts(struct cuda *c, const struct op_product *a)
{
    bool by_pair = c->places[a->x.place].rows == ROWS_PAIRS;
    struct cuda_product k = {.x = cuda_rows(c, a->x),
                             .y = cuda_rows(c, a->y),
                             .bias = cuda_pointer(a->w->bias),
                             .count = c->step.tokens * c->shape->top_k,
                             .x_div = by_pair ? 1 : c->shape->top_k,
                             .bias_step = a->w->out,
                             .expert = c->expert,
                             .rounded = cuda_rounded_of(c, a->x)};
    for (uint32_t i = 0; i < a->w->part_count; i++) {
        const struct weight *w = &a->w->parts[i];
        k.w = cuda_matrix(w);
        uint32_t columns = w->form == CUDA_FRAGMENTS ? cuda_expert_columns(c, w, k.count) : 1;
        if (columns > 1)
            k.sorted = sort_pairs(c, columns);
        if (w->form == CUDA_FRAGMENTS)
            cuda_multiply_fragments(c, w, &k);
        else
            cuda_run(c, CUDA_KERNEL_product_experts,
                     (struct cuda_grid){DIV_UP(w->n, CUDA_PANEL), k.count, 1, CUDA_THREADS, 0}, &k);
        k.y.at += w->n;
        k.bias = k.bias ? k.bias + w->n : NULL;
    }
}

/* ---- routes ---- */

/* The shared expert's activation. A row has the router's logits, the shared expert's gate, then gate | up. */
static void activate_shared(struct cuda *c, const struct op_route *a)
{
    uint32_t n = a->out.width, at = c->shape->experts + (a->shared == ROUTE_SHARED_GATED);
    const struct cuda_rows in = cuda_rows(c, act_part(a->in, at, n));
    const struct cuda_glu k = {.function = (uint32_t)a->function,
                               .has_up = !a->plain,
                               .alpha = a->clip.alpha,
                               .limit = a->clip.limit,
                               .in = in,
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
                                 .correction = cuda_pointer(a->correction),
                                 .expert_scale = cuda_pointer(a->expert_scale),
                                 .in = cuda_rows(c, a->in),
                                 .pair_expert = c->expert,
                                 .pair_weight = c->pair_weight,
                                 .shared_gate = c->shared_gate};
    cuda_flush(c);
    const struct act rounded = c->rounded_of;
    c->sorted_by = 0;
    cuda_run_step(c, CUDA_KERNEL_route, cuda_by_row(c->step.tokens), &k);
    cuda_keep_rounded(c, rounded, a->in);
    if (a->shared == ROUTE_SHARED_NONE)
        return;
    activate_shared(c, a);
    cuda_keep_rounded(c, rounded, a->out);
}
