/* cpu_rows.c - operations that go row by row: embedding, norms, activation, gathering. */
#include "compute/cpu/cpu.h"

#include <string.h>

/* ---- the residual stream ---- */

static void add_experts(const struct cpu *c, const struct residual *r, float *h, uint32_t t)
{
    uint32_t width = r->out.width, top_k = c->shape->top_k;
    float *sum = cpu_row(c, r->sum, t);
    memset(sum, 0, width * sizeof(*sum));
    for (size_t pair = (size_t)t * top_k; pair < (size_t)(t + 1) * top_k; pair++)
        c->ops->add_scaled(sum, cpu_row(c, r->pairs, pair), c->pair_weight[pair], width);
    c->ops->add_scaled(sum, cpu_row(c, r->out, t), c->shared_gate[t], width);
    c->ops->add(h, sum, width);
}

void cpu_add_residual(const struct cpu *c, const struct residual *r, struct act h, uint32_t t)
{
    if (r->kind == RESIDUAL_ADD)
        c->ops->add(cpu_row(c, h, t), cpu_row(c, r->out, t), h.width);
    else if (r->kind == RESIDUAL_EXPERTS)
        add_experts(c, r, cpu_row(c, h, t), t);
}

static void embed_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_embed *a = arg;
    float *h = cpu_row(c, a->h, t), *angles = cpu_row(c, a->angles, t);
    const struct matrix table = cpu_matrix(c, a->table);
    if (dev_is_null(c->in->features[t]))
        matrix_row(&table, c->in->ids[t], h);
    else
        memcpy(h, cpu_floats(c, c->in->features[t]), a->h.width * sizeof(*h));
    rope_tables_at(a->ropes, c->in->positions[t], angles);
}

void cpu_embed(struct compute *compute, const struct op_embed *a)
{
    cpu_each_token(cpu_of(compute), embed_token, a, 4 * (a->h.width + 8 * a->angles.width));
}

static void add_features(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_features *a = arg;
    cpu_add_residual(c, &a->add, a->h, t);
    if (!dev_is_null(c->in->features[t]))
        c->ops->add(cpu_row(c, a->h, t), cpu_floats(c, c->in->features[t]) + a->from, a->h.width);
}

void cpu_add_features(struct compute *compute, const struct op_features *a)
{
    cpu_each_token(cpu_of(compute), add_features, a, 2 * a->h.width);
}

/* ---- norms ---- */

/* By now every sequence has read its state_in. */
static void keep_hidden(const struct cpu *c, struct act h, uint32_t t)
{
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    uint32_t index = t - seq->first;
    if (!seq->keep_pending && index + 1 < seq->count)
        return;
    memcpy(cpu_state_hidden(c, seq->state_out, seq->keep_pending ? index : 0), cpu_row(c, h, t),
           h.width * sizeof(float));
}

static void norm_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_norm *a = arg;
    cpu_add_residual(c, &a->add, a->h, t);
    if (a->keep.width)
        keep_hidden(c, a->keep, t);
    c->ops->rmsnorm(cpu_row(c, a->y, t), cpu_row(c, a->h, t), cpu_floats(c, a->weight), a->h.width,
                    c->shape->eps);
    unsigned sums = 0;
    for (uint32_t i = 0; i < OP_READERS_MAX; i++)
        sums |= a->readers[i] ? a->readers[i]->sums : 0;
    cpu_sum(c, sums, a->y, t);
}

void cpu_norm(struct compute *compute, const struct op_norm *a)
{
    cpu_each_token(cpu_of(compute), norm_token, a, 4 * a->h.width);
}

static void gather_row(struct cpu *c, const void *arg, uint32_t i)
{
    const struct op_gather *a = arg;
    uint32_t t = c->in->logit_columns[i];
    float *y = cpu_row(c, a->y, i);
    cpu_add_residual(c, &a->add, a->h, t);
    if (dev_is_null(a->weight))
        memcpy(y, cpu_row(c, a->h, t), a->h.width * sizeof(*y));
    else
        c->ops->rmsnorm(y, cpu_row(c, a->h, t), cpu_floats(c, a->weight), a->h.width, c->shape->eps);
    cpu_sum(c, a->reader->sums, a->y, i);
}

void cpu_gather(struct compute *compute, const struct op_gather *a)
{
    struct cpu *c = cpu_of(compute);
    cpu_each(c, gather_row, a, c->in->logit_count + c->in->value_count, 4 * a->h.width);
}

void cpu_values(struct compute *compute, const struct op_values *a)
{
    const struct cpu *c = cpu_of(compute);
    const struct batch *b = c->in;
    for (uint32_t i = 0; i < b->value_count; i++)
        memcpy(b->values + (size_t)i * a->x.width, cpu_row(c, a->x, b->logit_count + i),
               a->x.width * sizeof(float));
}

/* ---- activation ---- */

static void glu_part(struct cpu *c, const void *arg, uint32_t t, uint32_t from, uint32_t to)
{
    const struct op_glu *a = arg;
    const float *gate = cpu_row(c, a->in, t), *up = gate + a->out.width;
    float *y = cpu_row(c, a->out, t);
    c->ops->silu_mul(y + from, gate + from, up + from, to - from);
    cpu_sum_part(c, a->reader->sums, a->out, t, from, to);
}

static void glu_pairs(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_glu *a = arg;
    uint32_t top_k = c->shape->top_k;
    for (uint32_t pair = t * top_k; pair < (t + 1) * top_k; pair++)
        glu_part(c, a, pair, 0, a->out.width);
}

void cpu_glu(struct compute *compute, const struct op_glu *a)
{
    struct cpu *c = cpu_of(compute);
    if (c->places[a->out.place].rows == ROWS_PAIRS)
        cpu_each_token(c, glu_pairs, a, 10 * c->shape->top_k * a->out.width);
    else
        cpu_each_part(c, glu_part, a, a->out.width);
}

/* ---- rows of weights ---- */

void cpu_copy_row(struct compute *compute, const struct op_copy_row *a)
{
    const struct cpu *c = cpu_of(compute);
    const struct matrix to = cpu_matrix(c, a->to), from = cpu_matrix(c, a->from);
    matrix_copy_row(&to, a->to_row, &from, a->from_row);
}
