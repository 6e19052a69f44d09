/* cpu_attention.c - queries and keys, their place in the pages, and attention.
 *
 * Tiles are spans, blocks of at most 16 tokens of one sequence. All of a step's keys are in the pages before
 * the first query reads: a chunk's tokens see each other there, exactly as they would see them later. Where
 * a sequence's tokens are one span, as in decode, the tile that attends has stored the keys itself. */
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct attention_stage {
    struct cpu *cpu;
    const struct op_attention *op;
    const struct kv_layer *kv;
    uint32_t q_stride;   /* floats from one query head to the next */
    uint32_t head_tiles; /* tiles that share a KV head's query heads */
    bool append;         /* the tiles of attention store their keys first */
    unsigned sums;       /* that these tiles make */
};

static struct attention_stage stage_of(struct cpu *c, const struct op_attention *op)
{
    const struct kv_layer *kv = &c->shape->kv[op->layer];
    return (struct attention_stage){
        .cpu = c, .op = op, .kv = kv, .q_stride = op->gated ? 2 * kv->k_width : kv->k_width};
}

static struct kern_kv layer_kv(const struct cpu *c, const struct kv_layer *l, uint32_t seq, uint32_t kv_head)
{
    size_t k = page_k_offset(l, kv_head);
    uint32_t group = l->group;
    return (struct kern_kv){.base = cpu_memory(c, c->in->pages[group]),
                            .page_bytes = c->shape->groups[group].page_bytes,
                            .pages = c->in->seqs[seq].pages[group],
                            .form = l->form,
                            .k_offset = k,
                            .v_offset = k + page_k_bytes(l),
                            .k_width = l->k_width,
                            .v_width = l->v_width,
                            .v_in_k = l->v_in_k};
}

static struct kern_kv kv_of(const struct attention_stage *st, uint32_t seq, uint32_t kv_head)
{
    struct kern_kv kv = layer_kv(st->cpu, st->kv, seq, kv_head);
    kv.cap = st->op->cap;
    return kv;
}

/* Pairs (2 j, 2 j + 1), in place. */
static void rotate_adjacent(float *x, const float *cosines, const float *sines, uint32_t half)
{
    for (uint32_t j = 0; j < half; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        x[2 * j] = a * cosines[j] - b * sines[j];
        x[2 * j + 1] = b * cosines[j] + a * sines[j];
    }
}

static void rotate_by(const struct cpu *c, struct act all, bool adjacent, float *head, uint32_t column)
{
    uint32_t half = all.width / 2;
    if (half == 0)
        return;
    const float *angles = cpu_row(c, all, column);
    if (adjacent)
        rotate_adjacent(head, angles, angles + half, half);
    else
        c->ops->rope(head, angles, angles + half, half);
}

static void rotate(const struct attention_stage *st, float *head, uint32_t column)
{
    rotate_by(st->cpu, st->op->angles, st->op->adjacent, head, column);
}

/* `count` heads of queries or keys, one every `stride` floats. */
static void norm_rope(const struct attention_stage *st, float *heads, uint32_t count, uint32_t stride,
                      dev_ptr norm, uint32_t column)
{
    const struct cpu *c = st->cpu;
    const float *w = cpu_floats(c, norm);
    uint32_t width = st->kv->k_width;
    if (w && st->op->norm_all)
        c->ops->rmsnorm(heads, heads, w, count * width, c->shape->eps);
    for (uint32_t i = 0; i < count; i++) {
        float *head = heads + (size_t)i * stride;
        if (w && !st->op->norm_all && !st->op->norm_rotated)
            c->ops->rmsnorm(head, head, w, width, c->shape->eps);
        rotate(st, head, column);
        if (w && st->op->norm_rotated)
            c->ops->rmsnorm(head, head, w, width, c->shape->eps);
    }
}

static void grow_queries(const struct attention_stage *st, float *q, uint32_t count, uint32_t position)
{
    const struct op_attention *op = st->op;
    if (op->growth == 0)
        return;
    float factor = 1 + op->growth * logf((float)(1 + position / op->growth_every));
    for (uint32_t head = 0; head < count; head++) {
        for (uint32_t i = 0; i < st->kv->k_width; i++)
            q[(size_t)head * st->q_stride + i] *= factor;
    }
}

static void norm_values(const struct attention_stage *st, float *v, uint32_t count)
{
    const struct cpu *c = st->cpu;
    const float *w = cpu_floats(c, st->op->v_norm);
    uint32_t width = st->kv->v_width;
    for (uint32_t i = 0; w && i < count; i++, v += width)
        c->ops->rmsnorm(v, v, w, width, c->shape->eps);
}

static void store_head(const struct attention_stage *st, const struct cpu_span *span, uint32_t position,
                       uint32_t head, float *k, float *v)
{
    const struct kern_kv kv = kv_of(st, span->seq, head);
    if (st->op->mtp && position == 0) {
        /* No query reads it, but the values must be finite, and the same in every page. */
        memset(k, 0, st->kv->k_width * sizeof(float));
        memset(v, 0, st->kv->v_width * sizeof(float));
    }
    st->cpu->ops->kv_put(&kv, position, k, v);
}

/* Of a span, the KV heads [from, to) with their query heads: normed and rotated in place, keys and values
 * stored. */
static void append_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                         uint32_t to)
{
    const struct op_attention *op = st->op;
    uint32_t kv_heads = st->kv->heads, group = op->heads / kv_heads, count = to - from;
    uint32_t k_width = st->kv->k_width, v_width = st->kv->v_width;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t column = span->column + i, position = span->position + i;
        float *row = cpu_row(st->cpu, op->qkv, column), *q = row + (size_t)from * group * st->q_stride;
        float *k = row + (size_t)op->heads * st->q_stride + (size_t)from * k_width;
        float *v = k + (size_t)(kv_heads - from) * k_width + (size_t)from * v_width;
        if (!op->keys_only) {
            norm_rope(st, q, count * group, st->q_stride, op->q_norm, column);
            grow_queries(st, q, count * group, position);
        }
        if (op->queries_only)
            continue;
        if (op->v_is_k)
            memcpy(v, k, (size_t)count * v_width * sizeof(float));
        norm_rope(st, k, count, k_width, op->k_norm, column);
        norm_values(st, v, count);
        for (uint32_t head = 0; head < count; head++)
            store_head(st, span, position, from + head, k + (size_t)head * k_width,
                       v + (size_t)head * v_width);
    }
}

/* Tile: a span. */
static void append_span(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    (void)worker;
    append_heads(st, &st->cpu->spans[tile], 0, st->kv->heads);
}

/* A KV head's query heads in one tile read its keys once. More tiles per KV head pay when workers would
 * idle. */
static uint32_t choose_head_tiles(const struct attention_stage *st)
{
    uint32_t group = st->op->heads / st->kv->heads, tiles = st->cpu->span_count * st->kv->heads;
    return MIN_OF(MAX_OF(workers_count(st->cpu->workers) / tiles, 1), group);
}

/* Whether a tile of attention reads no key of this step but its own. */
static bool is_alone(const struct attention_stage *st)
{
    const struct cpu *c = st->cpu;
    return !st->op->norm_all && c->span_count == c->in->seq_count && choose_head_tiles(st) == 1;
}

void cpu_append(struct compute *compute, const struct op_attention *a)
{
    struct cpu *c = cpu_of(compute);
    struct attention_stage st = stage_of(c, a);
    c->append_due = !a->keys_only && is_alone(&st);
    if (!c->append_due)
        cpu_run(c, append_span, &st, c->span_count);
}

/* ---- latent attention ---- */

struct latent_stage {
    struct cpu *cpu;
    const struct op_latent *op;
    const struct kv_layer *kv;
};

/* Tile: a span. */
static void latent_span(void *arg, uint32_t tile, uint32_t worker)
{
    const struct latent_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct op_latent *op = st->op;
    const struct cpu_span *span = &c->spans[tile];
    const struct kern_kv kv = layer_kv(c, st->kv, span->seq, 0);
    uint32_t rank = st->kv->v_width, rotating = st->kv->k_width - rank, q_step = op->q.width / op->heads;
    (void)worker;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t column = span->column + i;
        float *key = cpu_row(c, op->in, column), *query = cpu_row(c, op->query, column);
        const float *q = cpu_row(c, op->q, column);
        cpu_norm_row(c, &op->norm, key, key, rank);
        rotate_by(c, op->angles, op->adjacent, key + rank, column);
        c->ops->kv_put(&kv, span->position + i, key, NULL);
        for (uint32_t head = 0; head < op->heads; head++) {
            float *to = query + (size_t)head * st->kv->k_width + rank;
            memcpy(to, q + (size_t)(head + 1) * q_step - rotating, rotating * sizeof(*to));
            rotate_by(c, op->angles, op->adjacent, to, column);
        }
    }
}

void cpu_latent(struct compute *compute, const struct op_latent *a)
{
    struct cpu *c = cpu_of(compute);
    struct latent_stage st = {c, a, &c->shape->kv[a->layer]};
    ASSERT(st.kv->v_in_k && st.kv->heads == 1 && a->in.width == st.kv->k_width);
    cpu_run(c, latent_span, &st, c->span_count);
}

/* ---- attending ---- */

/* out *= sigmoid(gate), for the query heads [from, to) of a span. */
static void gate_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                       uint32_t to)
{
    const struct cpu *c = st->cpu;
    uint32_t width = st->kv->v_width;
    for (uint32_t i = 0; i < span->count; i++) {
        const float *q = cpu_row(c, st->op->qkv, span->column + i);
        float *out = cpu_row(c, st->op->out, span->column + i);
        for (uint32_t head = from; head < to; head++) {
            float *o = out + (size_t)head * width;
            c->ops->sigmoid_mul(o, o, q + (size_t)head * st->q_stride + st->kv->k_width, width);
        }
    }
}

/* The first token that a query at `position` sees. */
static uint32_t first_seen(const struct op_attention *op, uint32_t position)
{
    if (op->mtp)
        return 1;
    return op->window > 0 && position >= op->window ? position + 1 - op->window : 0;
}

/* The number of tokens before the first that it does not see; `end`: of the sequence so far. */
static uint32_t end_seen(const struct op_attention *op, uint32_t position, uint32_t end)
{
    if (!op->both_ways)
        return position + 1;
    return op->window > 0 && op->window < end - position ? position + op->window : end;
}

/* What the reader needs beside the heads [from, to) of a span's results. */
static void sum_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                      uint32_t to)
{
    uint32_t width = st->kv->v_width;
    for (uint32_t t = span->column; st->sums && t < span->column + span->count; t++)
        cpu_sum_part(st->cpu, st->sums, st->op->out, t, from * width, to * width);
}

/* Tile: a span, a KV head, some of its query heads. */
static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct cpu *c = st->cpu;
    uint32_t kv_heads = st->kv->heads;
    uint32_t group = st->op->heads / kv_heads, part = tile % st->head_tiles;
    uint32_t kv_head = tile / st->head_tiles % kv_heads;
    const struct cpu_span *span = &c->spans[tile / st->head_tiles / kv_heads];
    uint32_t from = kv_head * group + group * part / st->head_tiles;
    uint32_t to = kv_head * group + group * (part + 1) / st->head_tiles;
    struct kern_kv kv = kv_of(st, span->seq, kv_head);
    struct kern_query *queries = c->queries + (size_t)worker * CPU_QUERIES_MAX;
    float *scratch = c->attention_scratch + (size_t)worker * c->attention_floats;
    const float *sinks = cpu_floats(c, st->op->sinks);
    const struct batch_seq *seq = &c->in->seqs[span->seq];
    uint32_t count = 0;
    if (st->append)
        append_heads(st, span, kv_head, kv_head + 1);
    for (uint32_t i = 0; i < span->count; i++) {
        const float *q = cpu_row(c, st->op->qkv, span->column + i);
        float *out = cpu_row(c, st->op->out, span->column + i);
        for (uint32_t head = from; head < to; head++) {
            queries[count++] = (struct kern_query){
                .q = q + (size_t)head * st->q_stride,
                .out = out + (size_t)head * st->kv->v_width,
                .kv_first = first_seen(st->op, span->position + i),
                .kv_len = end_seen(st->op, span->position + i, seq->position + seq->count),
                .sink = sinks ? sinks + head : NULL};
            if (count == CPU_QUERIES_MAX || (i + 1 == span->count && head + 1 == to)) {
                c->ops->attn(&kv, queries, count, st->op->scale, scratch);
                count = 0;
            }
        }
    }
    if (st->op->gated)
        gate_heads(st, span, from, to);
    sum_heads(st, span, from, to);
}

static void sum_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_attention *a = arg;
    cpu_sum(c, a->reader->sums, a->out, t);
}

void cpu_attend(struct compute *compute, const struct op_attention *a)
{
    struct cpu *c = cpu_of(compute);
    struct attention_stage st = stage_of(c, a);
    const unsigned sums = a->reader ? a->reader->sums : 0;
    st.head_tiles = choose_head_tiles(&st);
    st.append = c->append_due;
    c->append_due = false;
    uint32_t heads = st.head_tiles == 1 ? a->heads / st.kv->heads : 1;
    const bool whole = heads * st.kv->v_width % cpu_sums_largest(sums) == 0;
    st.sums = whole ? sums : 0;
    cpu_run(c, attend_tile, &st, c->span_count * st.kv->heads * st.head_tiles);
    if (sums && !whole)
        cpu_each_token(c, sum_token, a, a->out.width);
}
