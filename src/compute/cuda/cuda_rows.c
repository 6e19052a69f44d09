/* cuda_rows.c - operations that go row by row. */
#include "compute/cuda/cuda_step.h"
#include "compute/layout.h"
#include "compute/rope.h"

#include <string.h>

/* ---- arguments ---- */

struct cuda_norm cuda_norm_of(const struct cuda *c, const struct norm *n)
{
    return (struct cuda_norm){.weight = cuda_pointer(n->weight),
                              .bias = cuda_pointer(n->bias),
                              .eps = n->eps > 0 ? n->eps : c->shape->eps,
                              .layer_norm = c->shape->layer_norm};
}

struct cuda_residual cuda_residual_of(const struct cuda *c, const struct residual *r)
{
    _Static_assert((int)CUDA_RESIDUAL_ADD == (int)RESIDUAL_ADD &&
                       (int)CUDA_RESIDUAL_EXPERTS == (int)RESIDUAL_EXPERTS,
                   "kinds are alike");
    if (r->kind == RESIDUAL_NONE)
        return (struct cuda_residual){0};
    struct cuda_residual a = {.kind = (uint32_t)r->kind,
                              .norm = cuda_norm_of(c, &r->norm),
                              .norm_pairs = cuda_pointer(r->norm_pairs),
                              .layer_scale = cuda_pointer(r->layer_scale),
                              .scale = r->scale,
                              .eps = c->shape->eps};
    a.out = cuda_rows(c, r->out);
    if (r->kind == RESIDUAL_EXPERTS) {
        a.pairs = cuda_rows(c, r->pairs);
        a.sum = cuda_rows(c, r->sum);
    }
    return a;
}

static void fill_ropes(const struct rope_tables *t, struct cuda_ropes *ret)
{
    *ret = (struct cuda_ropes){.count = t->count};
    for (uint32_t i = 0; i < t->count; i++) {
        struct cuda_rope *r = &ret->table[i];
        r->half = t->table[i].half;
        r->magnitude = t->table[i].magnitude;
        memcpy(r->axis, t->table[i].axis, sizeof(r->axis));
        memcpy(r->inv_freq, t->table[i].inv_freq, sizeof(r->inv_freq));
    }
}

const struct cuda_ropes *cuda_ropes_of(struct cuda *c, const struct rope_tables *t)
{
    struct cuda_device *d = c->device;
    if (c->ropes_of == t)
        return c->ropes;
    fill_ropes(t, &c->host_ropes);
    bool ok = cuda_done(
        c, d->driver->put((uintptr_t)c->ropes, &c->host_ropes, sizeof(c->host_ropes), d->stream), "ropes");
    c->ropes_of = ok ? t : NULL;
    return c->ropes;
}

/* From one pending token's hidden state to the next. */
static uint64_t hidden_step(const struct compute_shape *s)
{
    return state_hidden_offset(s, 1) - state_hidden_offset(s, 0);
}

/* ---- operations ---- */

void cuda_embed(struct compute *compute, const struct op_embed *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_embed k = {.table = cuda_matrix(a->table),
                                 .positions = cuda_matrix(a->positions),
                                 .types = cuda_matrix(a->types),
                                 .h = cuda_rows(c, a->h),
                                 .angles = cuda_rows(c, a->angles),
                                 .ropes = cuda_ropes_of(c, a->ropes),
                                 .scale = a->scale};
    struct cuda_grid grid = cuda_by_row(c->step.tokens);
    grid.y = DIV_UP(a->h.width, CUDA_THREADS) + 1;
    cuda_run_step(c, CUDA_KERNEL_embed, grid, &k);
}

void cuda_layer_inputs(struct compute *compute, const struct op_layer_inputs *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_layer_inputs k = {.table = cuda_matrix(a->table),
                                        .x = cuda_rows(c, a->x),
                                        .width = a->width,
                                        .norm = cuda_pointer(a->norm),
                                        .input_scale = a->input_scale,
                                        .row_scale = a->row_scale,
                                        .scale = a->scale,
                                        .eps = c->shape->eps};
    cuda_run_step(c, CUDA_KERNEL_layer_inputs, cuda_by_row(c->step.tokens), &k);
}

/* Whether the next product can compute it: of one token. */
static bool may_wait(const struct cuda *c, const struct cuda_norm_op *k)
{
    return c->step.tokens == 1 && k->rounded.at && k->add.kind == CUDA_RESIDUAL_NONE && !k->stream &&
           k->keep.width == 0 && k->h.width % CUDA_UNIT == 0 &&
           cuda_norm_is_usual(&k->add, &k->norm, &k->h, &k->y);
}

void cuda_norm(struct compute *compute, const struct op_norm *a)
{
    struct cuda *c = cuda_of(compute);
    bool added = cuda_add_of_held(c, &a->add, a->h);
    c->shared_of.width = 0;
    const struct cuda_norm_op k = {.add = added ? (struct cuda_residual){0} : cuda_residual_of(c, &a->add),
                                   .h = cuda_rows(c, a->h),
                                   .y = cuda_rows(c, a->y),
                                   .keep = cuda_rows(c, a->keep),
                                   .norm = cuda_norm_of(c, &a->norm),
                                   .rounded = cuda_rounded_for(c, a->y),
                                   .stream = a->stream,
                                   .hidden_offset = state_hidden_offset(c->shape, 0),
                                   .hidden_step = hidden_step(c->shape)};
    if (may_wait(c, &k)) {
        cuda_flush(c);
        c->norm = (struct cuda_norm_held){true, a->y, k};
    } else if (!added || a->y.width > 0 || a->keep.width > 0) {
        cuda_run_step(c, CUDA_KERNEL_norm, cuda_by_row(c->step.tokens), &k);
    }
    cuda_has_rounded(c, k.rounded, a->y);
}

void cuda_add_features(struct compute *compute, const struct op_features *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_features k = {
        .add = cuda_residual_of(c, &a->add), .h = cuda_rows(c, a->h), .from = a->from};
    cuda_run_step(c, CUDA_KERNEL_features, cuda_by_row(c->step.tokens), &k);
}

void cuda_scale(struct compute *compute, const struct op_scale *a)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_scale k = {.x = cuda_rows(c, a->x), .count = a->count};
    _Static_assert(CUDA_SCALES_MAX == OP_SCALE_PARTS_MAX, "parts are alike");
    ASSERT(a->count <= OP_SCALE_PARTS_MAX);
    for (uint32_t i = 0; i < a->count; i++) {
        k.width[i] = a->parts[i].width;
        k.factor[i] = a->parts[i].factor;
    }
    cuda_run(c, CUDA_KERNEL_scale, cuda_by_row(c->step.tokens), &k);
}

void cuda_head_gate(struct compute *compute, const struct op_head_gate *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_head_gate k = {.gate = cuda_rows(c, a->gate),
                                     .out = cuda_rows(c, a->out),
                                     .each = a->out.width / a->gate.width,
                                     .softplus = a->function == HEAD_GATE_SOFTPLUS,
                                     .rounded = cuda_rounded_whole(c, a->out)};
    struct cuda_grid grid = cuda_by_row(c->step.tokens);
    grid.y = DIV_UP(a->out.width, 4 * CUDA_THREADS);
    cuda_run(c, CUDA_KERNEL_head_gate, grid, &k);
    cuda_has_rounded(c, k.rounded, a->out);
}

void cuda_glu(struct compute *compute, const struct op_glu *a)
{
    struct cuda *c = cuda_of(compute);
    _Static_assert((int)CUDA_SWIGLU_CLIP == (int)GLU_SWIGLU_CLIP, "functions are alike");
    bool pairs = c->arrays[a->out.array].rows == ROWS_PAIRS;
    if (cuda_glu_of_held(c, a))
        return;
    struct cuda_glu k = {.function = (uint32_t)a->function,
                         .has_up = !a->plain,
                         .alpha = a->clip.alpha,
                         .limit = a->clip.limit,
                         .in = cuda_rows(c, a->in),
                         .up = cuda_rows(c, a->up),
                         .out = cuda_rows(c, a->out),
                         .rounded = cuda_rounded_whole(c, a->out)};
    struct cuda_grid grid = cuda_by_row(c->step.tokens * (pairs ? c->shape->top_k : 1));
    if (a->up.width == 0)
        k.up = (struct cuda_rows){k.in.at + a->out.width, k.in.stride, a->out.width};
    grid.y = DIV_UP(a->out.width, 4 * CUDA_THREADS);
    cuda_run(c, CUDA_KERNEL_glu, grid, &k);
    cuda_has_rounded(c, k.rounded, a->out);
}

void cuda_gather(struct compute *compute, const struct op_gather *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_gather k = {.add = cuda_residual_of(c, &a->add),
                                  .h = cuda_rows(c, a->h),
                                  .y = cuda_rows(c, a->y),
                                  .norm = cuda_norm_of(c, &a->norm),
                                  .rounded = cuda_rounded_for(c, a->y)};
    cuda_run_step(c, CUDA_KERNEL_gather, cuda_by_row(c->step.logits + c->step.values), &k);
    cuda_has_rounded(c, k.rounded, a->y);
}

void cuda_pair(struct compute *compute, const struct op_pair *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_pair k = {.add = cuda_residual_of(c, &a->add),
                                .table = cuda_matrix(a->table),
                                .h = cuda_rows(c, a->h),
                                .pair = cuda_rows(c, a->pair),
                                .angles = cuda_rows(c, a->angles),
                                .ropes = cuda_ropes_of(c, a->ropes),
                                .final_norm = cuda_pointer(a->final_norm),
                                .norm_embedding = cuda_pointer(a->norm_embedding),
                                .norm_hidden = cuda_pointer(a->norm_hidden),
                                .eps = c->shape->eps,
                                .draft = a->draft,
                                .from_states = a->from_states,
                                .hidden_offset = state_hidden_offset(c->shape, 0),
                                .hidden_step = hidden_step(c->shape)};
    cuda_run_step(c, CUDA_KERNEL_pair, cuda_by_row(c->step.tokens), &k);
}

void cuda_copy_row(struct compute *compute, const struct op_copy_row *a)
{
    const struct cuda_copy_row k = {cuda_matrix(a->to), cuda_matrix(a->from), a->to_row, a->from_row};
    cuda_run(cuda_of(compute),
             a->from->form == CUDA_FRAGMENTS ? CUDA_KERNEL_copy_fragments : CUDA_KERNEL_copy_row,
             cuda_by_row(1), &k);
}
