/* cpu_attention.c - queries and keys, their place in the pages, and attention.
 *
 * Tiles are spans, blocks of at most 16 tokens of one sequence. All of a step's keys are in the pages before
 * the first query reads: a chunk's tokens see each other there, exactly as they would see them later. */
#include "compute/cpu/cpu.h"

#include <string.h>

struct attention_stage {
    struct cpu *cpu;
    const struct op_attention *op;
    const struct kv_layer *kv;
    uint32_t q_stride;   /* floats from one query head to the next */
    uint32_t head_tiles; /* tiles that share a KV head's query heads */
};

static struct attention_stage stage_of(struct cpu *c, const struct op_attention *op)
{
    const struct kv_layer *kv = &c->shape->kv[op->layer];
    return (struct attention_stage){
        .cpu = c, .op = op, .kv = kv, .q_stride = op->gated ? 2 * kv->head_dim : kv->head_dim};
}

static struct kern_kv kv_of(const struct attention_stage *st, uint32_t seq, uint32_t kv_head)
{
    const struct cpu *c = st->cpu;
    size_t k = page_k_offset(st->kv, kv_head);
    return (struct kern_kv){.base = cpu_memory(c, c->in->pages),
                            .page_bytes = c->shape->page_bytes,
                            .pages = c->in->seqs[seq].pages,
                            .k_offset = k,
                            .v_offset = k + page_half_bytes(st->kv),
                            .head_dim = st->kv->head_dim,
                            .first = st->op->mtp ? 1 : 0};
}

static void norm_rope(const struct attention_stage *st, float *head, dev_ptr norm, uint32_t column)
{
    const struct cpu *c = st->cpu;
    uint32_t half = st->op->angles.width / 2;
    if (!dev_is_null(norm))
        c->ops->rmsnorm(head, head, cpu_floats(c, norm), st->kv->head_dim, c->shape->eps);
    if (half > 0) {
        const float *angles = cpu_row(c, st->op->angles, column);
        c->ops->rope(head, angles, angles + half, half);
    }
}

/* Tile: a span. Queries and keys normed and rotated in place, keys and values stored. */
static void append_span(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct cpu_span *span = &c->spans[tile];
    uint32_t heads = st->op->heads, kv_heads = st->kv->heads, head_dim = st->kv->head_dim;
    (void)worker;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t column = span->column + i;
        float *q = cpu_row(c, st->op->qkv, column);
        float *k = q + (size_t)heads * st->q_stride, *v = k + (size_t)kv_heads * head_dim;
        for (uint32_t head = 0; !st->op->keys_only && head < heads; head++)
            norm_rope(st, q + (size_t)head * st->q_stride, st->op->q_norm, column);
        for (uint32_t head = 0; head < kv_heads; head++) {
            struct kern_kv kv = kv_of(st, span->seq, head);
            size_t at = (size_t)head * head_dim;
            norm_rope(st, k + at, st->op->k_norm, column);
            if (st->op->mtp && span->position + i == 0) {
                /* No query reads it, but the values must be finite, and the same in every page. */
                memset(k + at, 0, head_dim * sizeof(float));
                memset(v + at, 0, head_dim * sizeof(float));
            }
            c->ops->kv_put(&kv, span->position + i, k + at, v + at);
        }
    }
}

void cpu_append(struct compute *compute, const struct op_attention *a)
{
    struct cpu *c = cpu_of(compute);
    struct attention_stage st = stage_of(c, a);
    cpu_run(c, append_span, &st, c->span_count);
}

/* out *= sigmoid(gate), for the query heads [from, to) of a span. */
static void gate_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                       uint32_t to)
{
    const struct cpu *c = st->cpu;
    uint32_t head_dim = st->kv->head_dim;
    for (uint32_t i = 0; i < span->count; i++) {
        const float *q = cpu_row(c, st->op->qkv, span->column + i);
        float *out = cpu_row(c, st->op->out, span->column + i);
        for (uint32_t head = from; head < to; head++) {
            float *o = out + (size_t)head * head_dim;
            c->ops->sigmoid_mul(o, o, q + (size_t)head * st->q_stride + head_dim, head_dim);
        }
    }
}

/* Tile: a span, a KV head, some of its query heads. */
static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct cpu *c = st->cpu;
    uint32_t kv_heads = st->kv->heads, head_dim = st->kv->head_dim;
    uint32_t group = st->op->heads / kv_heads, part = tile % st->head_tiles;
    uint32_t kv_head = tile / st->head_tiles % kv_heads;
    const struct cpu_span *span = &c->spans[tile / st->head_tiles / kv_heads];
    uint32_t from = kv_head * group + group * part / st->head_tiles;
    uint32_t to = kv_head * group + group * (part + 1) / st->head_tiles;
    struct kern_kv kv = kv_of(st, span->seq, kv_head);
    struct kern_query *queries = c->queries + (size_t)worker * CPU_QUERIES_MAX;
    float *scratch = c->attention_scratch + (size_t)worker * KERN_ATTN_SCRATCH;
    uint32_t count = 0;
    for (uint32_t i = 0; i < span->count; i++) {
        const float *q = cpu_row(c, st->op->qkv, span->column + i);
        float *out = cpu_row(c, st->op->out, span->column + i);
        for (uint32_t head = from; head < to; head++) {
            queries[count++] = (struct kern_query){.q = q + (size_t)head * st->q_stride,
                                                   .out = out + (size_t)head * head_dim,
                                                   .kv_len = span->position + i + 1};
            if (count == CPU_QUERIES_MAX || (i + 1 == span->count && head + 1 == to)) {
                c->ops->attn(&kv, queries, count, st->op->scale, scratch);
                count = 0;
            }
        }
    }
    if (st->op->gated)
        gate_heads(st, span, from, to);
}

static void sum_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_attention *a = arg;
    cpu_sum(c, a->reader->sums, a->out, t);
}

/* A KV head's query heads in one tile read its keys once. More tiles per KV head pay when workers would
 * idle. */
static uint32_t choose_head_tiles(const struct attention_stage *st)
{
    uint32_t group = st->op->heads / st->kv->heads, tiles = st->cpu->span_count * st->kv->heads;
    return MIN_OF(MAX_OF(workers_count(st->cpu->workers) / tiles, 1), group);
}

void cpu_attend(struct compute *compute, const struct op_attention *a)
{
    struct cpu *c = cpu_of(compute);
    struct attention_stage st = stage_of(c, a);
    st.head_tiles = choose_head_tiles(&st);
    cpu_run(c, attend_tile, &st, c->span_count * st.kv->heads * st.head_tiles);
    if (a->reader->sums)
        cpu_each_token(c, sum_token, a, a->out.width);
}
