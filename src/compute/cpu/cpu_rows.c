/* cpu_rows.c - operations that go row by row: embedding, norms, activation, gathering. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/rope.h"
#include "compute/shape.h"

#include <math.h>
#include <string.h>

/* ---- the residual stream ---- */

static float *sum_experts(const struct cpu *c, const struct residual *r, uint32_t t)
{
    uint32_t width = r->sum.width, top_k = c->shape->top_k;
    float *sum = cpu_row(c, r->sum, t);
    memset(sum, 0, width * sizeof(*sum));
    for (size_t pair = (size_t)t * top_k; pair < (size_t)(t + 1) * top_k; pair++)
        c->ops->add_scaled(sum, cpu_row(c, r->pairs, pair), c->pair_weight[pair], width);
    if (!dev_is_null(r->norm_pairs))
        c->ops->rmsnorm(sum, sum, cpu_floats(c, r->norm_pairs), width, c->shape->eps);
    if (r->out.width > 0)
        c->ops->add_scaled(sum, cpu_row(c, r->out, t), c->shared_gate[t], width);
    return sum;
}

static void scale_row(float *x, float scale, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale;
}

void cpu_norm_row(const struct cpu *c, const struct norm *norm, float *y, const float *x, uint32_t n)
{
    float eps = norm->eps > 0 ? norm->eps : c->shape->eps;
    if (c->shape->layer_norm)
        c->ops->layernorm(y, x, cpu_floats(c, norm->weight), cpu_floats(c, norm->bias), n, eps);
    else
        c->ops->rmsnorm(y, x, cpu_floats(c, norm->weight), n, eps);
}

void cpu_add_residual(const struct cpu *c, const struct residual *r, struct act h, uint32_t t)
{
    if (r->kind == RESIDUAL_NONE)
        return;
    float *y = cpu_row(c, h, t), *x = r->kind == RESIDUAL_ADD ? cpu_row(c, r->out, t) : sum_experts(c, r, t);
    if (!dev_is_null(r->norm.weight))
        cpu_norm_row(c, &r->norm, x, x, h.width);
    if (r->scale != 0)
        c->ops->add_scaled(y, x, r->scale, h.width);
    else
        c->ops->add(y, x, h.width);
    if (!dev_is_null(r->layer_scale))
        scale_row(y, *cpu_floats(c, r->layer_scale), h.width);
}

static void scale_parts(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_scale *a = arg;
    float *x = cpu_row(c, a->x, t);
    for (uint32_t i = 0; i < a->count; x += a->parts[i++].width)
        scale_row(x, a->parts[i].factor, a->parts[i].width);
}

void cpu_scale(struct compute *compute, const struct op_scale *a)
{
    uint32_t values = 0;
    for (uint32_t i = 0; i < a->count; i++)
        values += a->parts[i].width;
    ASSERT(a->count <= OP_SCALE_PARTS_MAX && values <= a->x.width);
    cpu_each_token(cpu_of(compute), scale_parts, a, 2 * values);
}

static void gate_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_head_gate *a = arg;
    const float *gate = cpu_row(c, a->gate, t);
    float *out = cpu_row(c, a->out, t);
    const uint32_t each = a->out.width / a->gate.width;
    for (uint32_t i = 0; i < a->gate.width; i++) {
        float g = a->function == HEAD_GATE_SOFTPLUS ? cpu_softplus(gate[i]) : cpu_sigmoid(gate[i]);
        scale_row(out + (size_t)i * each, g, each);
    }
    cpu_sum(c, a->reader->sums, a->out, t);
}

void cpu_head_gate(struct compute *compute, const struct op_head_gate *a)
{
    ASSERT(a->out.width % a->heads == 0 && (a->gate.width == a->heads || a->gate.width == a->out.width));
    cpu_each_token(cpu_of(compute), gate_token, a, a->out.width + 20 * a->gate.width);
}

static void add_row(const struct cpu *c, const struct op_embed *a, const struct weight *table, uint32_t index,
                    uint32_t t)
{
    const struct matrix rows = cpu_matrix(c, table);
    float *row = cpu_row(c, a->row, t);
    ASSERT(index < table->n);
    matrix_row(&rows, index, row);
    c->ops->add(cpu_row(c, a->h, t), row, a->h.width);
}

static uint32_t type_of(const struct batch *b, uint32_t t)
{
    const struct batch_seq *seq = &b->seqs[b->token_seq[t]];
    return seq->position + (t - seq->first) >= seq->second;
}

static void embed_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_embed *a = arg;
    float *h = cpu_row(c, a->h, t), *angles = cpu_row(c, a->angles, t);
    const struct matrix table = cpu_matrix(c, a->table);
    if (dev_is_null(c->in->features[t]))
        matrix_row(&table, c->in->ids[t], h);
    if (dev_is_null(c->in->features[t]) && a->scale != 0)
        scale_row(h, a->scale, a->h.width);
    if (!dev_is_null(c->in->features[t]))
        memcpy(h, cpu_floats(c, c->in->features[t]), a->h.width * sizeof(*h));
    if (a->positions)
        add_row(c, a, a->positions, c->in->positions[t].axis[0], t);
    if (a->types)
        add_row(c, a, a->types, type_of(c->in, t), t);
    rope_tables_at(a->ropes, c->in->positions[t], angles);
}

void cpu_embed(struct compute *compute, const struct op_embed *a)
{
    cpu_each_token(cpu_of(compute), embed_token, a, 4 * (a->h.width + 8 * a->angles.width));
}

static void layer_inputs_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_layer_inputs *a = arg;
    const struct matrix table = cpu_matrix(c, a->table);
    const float *norm = cpu_floats(c, a->norm);
    float *row = cpu_row(c, a->row, t), *x = cpu_row(c, a->x, t);
    matrix_row(&table, c->in->ids[t], row);
    scale_row(x, a->input_scale, a->x.width);
    for (uint32_t i = 0; i < a->x.width; i += a->width)
        c->ops->rmsnorm(x + i, x + i, norm, a->width, c->shape->eps);
    c->ops->add_scaled(x, row, a->row_scale, a->x.width);
    scale_row(x, a->scale, a->x.width);
}

void cpu_layer_inputs(struct compute *compute, const struct op_layer_inputs *a)
{
    cpu_each_token(cpu_of(compute), layer_inputs_token, a, 8 * a->x.width);
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

/* Keeps the hidden state if the token is one of the last of its sequence or of its page. */
static void keep_in_page(const struct cpu *c, const struct batch_seq *seq, struct act h, uint32_t t)
{
    uint32_t position = seq->position + t - seq->first;
    uint32_t end = MIN_OF(seq->position + seq->count, ROUND_UP(position + 1, PAGE_TOKENS));
    if (position + 1 + c->shape->drafts_max >= end)
        memcpy(cpu_page_hidden(c, seq, position), cpu_row(c, h, t), h.width * sizeof(float));
}

/* By now every sequence has read its state_in. */
static void keep_hidden(const struct cpu *c, struct act h, uint32_t t)
{
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    uint32_t index = t - seq->first;
    if (c->shape->page_hidden > 0) {
        keep_in_page(c, seq, h, t);
        return;
    }
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
    if (a->y.width == 0)
        return;
    const bool in_place = a->y.array == a->h.array && a->y.from == a->h.from;
    if (dev_is_null(a->norm.weight) && !in_place)
        memcpy(cpu_row(c, a->y, t), cpu_row(c, a->h, t), a->h.width * sizeof(float));
    else if (!dev_is_null(a->norm.weight))
        cpu_norm_row(c, &a->norm, cpu_row(c, a->y, t), cpu_row(c, a->h, t), a->h.width);
    if (a->stream)
        memcpy(cpu_row(c, a->h, t), cpu_row(c, a->y, t), a->h.width * sizeof(float));
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
    if (dev_is_null(a->norm.weight))
        memcpy(y, cpu_row(c, a->h, t), a->h.width * sizeof(*y));
    else
        cpu_norm_row(c, &a->norm, y, cpu_row(c, a->h, t), a->h.width);
    cpu_sum(c, a->reader->sums, a->y, i);
}

void cpu_gather(struct compute *compute, const struct op_gather *a)
{
    struct cpu *c = cpu_of(compute);
    cpu_each(c, gather_row, a, c->in->logit_count + c->in->value_count, 4 * a->h.width);
}

static void finish_row(struct cpu *c, const void *arg, uint32_t i)
{
    const struct op_finish *a = arg;
    uint32_t vocab = c->shape->vocab;
    float *x = c->in->logits + (size_t)i * vocab;
    if (a->scale != 0)
        scale_row(x, a->scale, vocab);
    for (uint32_t k = 0; a->cap > 0 && k < vocab; k++)
        x[k] = a->cap * tanhf(x[k] / a->cap);
}

void cpu_finish(struct compute *compute, const struct op_finish *a)
{
    struct cpu *c = cpu_of(compute);
    cpu_each(c, finish_row, a, c->in->logit_count, (a->cap > 0 ? 10 : 1) * c->shape->vocab);
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

void cpu_glu_values(const struct cpu *c, enum glu_function f, struct glu_clip clip, float *out,
                    const float *gate, const float *up, uint32_t n)
{
    if (f == GLU_SILU && up)
        c->ops->silu_mul(out, gate, up, n);
    else if (f == GLU_SWIGLU_CLIP)
        c->ops->swiglu_clip(out, gate, up, n, clip.alpha, clip.limit);
    else if (f == GLU_SILU_CLIP)
        c->ops->silu_clip(out, gate, up, n, clip.limit);
    else if (f == GLU_XIELU)
        c->ops->xielu(out, gate, n, cpu_floats(c, clip.xielu));
    else if (f == GLU_SILU)
        c->ops->sigmoid_mul(out, gate, gate, n);
    else if (f == GLU_GELU_TANH)
        c->ops->gelu_tanh(out, gate, n);
    else if (f == GLU_GELU_ERF)
        c->ops->gelu_erf(out, gate, n);
    else
        c->ops->relu_square(out, gate, n);
    const bool taken = f == GLU_SILU || f == GLU_SWIGLU_CLIP || f == GLU_SILU_CLIP;
    for (uint32_t i = 0; up && !taken && i < n; i++)
        out[i] *= up[i];
}

void cpu_glu_part(const struct cpu *c, const struct op_glu *a, uint32_t t, uint32_t from, uint32_t to)
{
    const float *gate = cpu_row(c, a->in, t);
    const float *up = a->plain ? NULL : (a->up.width > 0 ? cpu_row(c, a->up, t) : gate + a->out.width) + from;
    float *y = cpu_row(c, a->out, t);
    cpu_glu_values(c, a->function, a->clip, y + from, gate + from, up, to - from);
    cpu_sum_part(c, a->reader->sums, a->out, t, from, to);
}

static void glu_part(struct cpu *c, const void *arg, uint32_t t, uint32_t from, uint32_t to)
{
    cpu_glu_part(c, arg, t, from, to);
}

static void glu_pairs(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_glu *a = arg;
    uint32_t top_k = c->shape->top_k;
    for (uint32_t pair = t * top_k; pair < (t + 1) * top_k; pair++)
        cpu_glu_part(c, a, pair, 0, a->out.width);
}

void cpu_glu(struct compute *compute, const struct op_glu *a)
{
    struct cpu *c = cpu_of(compute);
    if (c->arrays[a->out.array].rows == ROWS_PAIRS)
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
