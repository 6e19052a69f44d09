/* cpu_attention.c - queries and keys, their place in the pages, and attention.
 *
 * Tiles are spans, blocks of at most 16 tokens of one sequence. All of a step's keys are in the pages before
 * the first query reads: a chunk's tokens see each other there, exactly as they would see them later. Where
 * a sequence's tokens are one span, as in decode, the tile that attends has stored the keys itself.
 *
 * A step of few tokens has fewer KV heads than workers could take. Tiles then are ranges of a span's
 * segments. Each leaves the results of its segments, and the last of a head's ranges joins all in order. The
 * joined sums are those of one worker, so their bits depend on neither the ranges nor the workers. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"
#include "compute/shape.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

struct attention_stage {
    struct cpu *cpu;
    const struct op_attention *op;
    const struct kv_layer *kv;
    uint32_t q_stride;   /* floats from one query head to the next */
    uint32_t ranges;     /* tiles that share a span's segments */
    uint32_t head_tiles; /* tiles that share a KV head's query heads */
    bool append;         /* the tiles of attention store their keys first */
    unsigned sums;       /* that these tiles make */
    /* With more than one range. */
    uint32_t longest;    /* segments of a span, at most */
    uint32_t at, window; /* this run takes `window` of every span's segments, from number `at` on */
};

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

/* `count` query heads of `width` values, one every `stride` floats. */
static void grow_queries(float growth, uint32_t every, float *q, uint32_t count, uint32_t width,
                         uint32_t stride, uint32_t position)
{
    if (growth == 0)
        return;
    float factor = 1 + growth * logf((float)(1 + position / every));
    for (uint32_t head = 0; head < count; head++) {
        for (uint32_t i = 0; i < width; i++)
            q[(size_t)head * stride + i] *= factor;
    }
}

/* `count` query heads of a token, one every `stride` floats: normed and rotated in place. */
static void prepare_queries(const struct attention_stage *st, float *q, uint32_t count, uint32_t stride,
                            uint32_t column, uint32_t position)
{
    norm_rope(st, q, count, stride, st->op->q_norm, column);
    grow_queries(st->op->growth, st->op->growth_every, q, count, st->kv->k_width, stride, position);
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

/* Norms, rotates and stores a span's keys and values of the KV heads [from, to), in place. */
static void append_keys(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                        uint32_t to)
{
    const struct op_attention *op = st->op;
    uint32_t kv_heads = st->kv->heads, count = to - from;
    uint32_t k_width = st->kv->k_width, v_width = st->kv->v_width;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t column = span->column + i, position = span->position + i;
        float *k = cpu_row(st->cpu, op->qkv, column) + (size_t)op->heads * st->q_stride + from * k_width;
        float *v = k + (size_t)(kv_heads - from) * k_width + (size_t)from * v_width;
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

/* Norms and rotates a span's KV heads [from, to) with their query heads, in place, and stores keys and
 * values. */
static void append_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                         uint32_t to)
{
    const struct op_attention *op = st->op;
    uint32_t group = op->heads / st->kv->heads;
    for (uint32_t i = 0; !op->keys_only && i < span->count; i++) {
        uint32_t column = span->column + i;
        float *q = cpu_row(st->cpu, op->qkv, column) + (size_t)from * group * st->q_stride;
        prepare_queries(st, q, (to - from) * group, st->q_stride, column, span->position + i);
    }
    append_keys(st, span, from, to);
}

/* Tile: a span. */
static void append_span(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    (void)worker;
    append_heads(st, &st->cpu->spans[tile], 0, st->kv->heads);
}

/* The first token that a query at `position` sees. */
static uint32_t first_seen(const struct op_attention *op, uint32_t position)
{
    if (op->mtp)
        return 1;
    return op->window > 0 && position >= op->window ? position + 1 - op->window : 0;
}

/* The number of tokens before the first that the query of a column does not see; `end`: of the sequence so
 * far. */
static uint32_t end_seen(const struct attention_stage *st, uint32_t column, uint32_t position, uint32_t end)
{
    const struct op_attention *op = st->op;
    const uint32_t *ends = st->cpu->in->ends;
    if (!op->both_ways)
        return ends && op->image_ends ? ends[column] : position + 1;
    return op->window > 0 && op->window < end - position ? position + op->window : end;
}

/* Segments that a span's queries see. */
struct segments {
    uint32_t begin, count;
};

static struct segments span_segments(const struct attention_stage *st, const struct cpu_span *span)
{
    const struct batch_seq *seq = &st->cpu->in->seqs[span->seq];
    uint32_t begin = first_seen(st->op, span->position) / KERN_SEGMENT_TOKENS;
    uint32_t last = span->count - 1;
    uint32_t end = end_seen(st, span->column + last, span->position + last, seq->position + seq->count);
    return (struct segments){begin, DIV_UP(end, (uint32_t)KERN_SEGMENT_TOKENS) - begin};
}

/* Ranges of a span's segments, where spans have `tiles` heads in all. A long context has more of them, so
 * that workers wait less for the last one. Each keeps some segments, since a tile prefetches within its range
 * alone. */
static uint32_t ranges_wanted(const struct attention_stage *st, uint32_t tiles)
{
    uint32_t workers = workers_count(st->cpu->workers);
    uint32_t few = DIV_UP(CPU_ATTEND_TILES * workers, tiles), more = DIV_UP(CPU_ATTEND_MORE * workers, tiles);
    return MAX_OF(few, MIN_OF(more, st->longest / CPU_ATTEND_SEGMENTS));
}

/* A KV head's query heads in one tile read its keys once. Where the KV heads are too few for the workers, a
 * tile is a range of segments, and where those are too few as well, some of the query heads. Latent attention
 * turns a segment's values once for all query heads, so its segments stay with one worker. */
static void share_out(struct attention_stage *st)
{
    const struct cpu *c = st->cpu;
    uint32_t workers = workers_count(c->workers), tiles = c->span_count * st->kv->heads;
    uint32_t group = st->op->heads / st->kv->heads, wanted = CPU_ATTEND_TILES * workers;
    st->ranges = 1;
    if (tiles < wanted && workers > 1 && !st->kv->v_in_k) {
        for (uint32_t i = 0; i < c->span_count; i++)
            st->longest = MAX_OF(st->longest, span_segments(st, &c->spans[i]).count);
        st->window = CPU_ATTEND_PARTS * workers / (c->tokens * st->op->heads);
        st->ranges = MAX_OF(MIN_OF(MIN_OF(st->longest, st->window), ranges_wanted(st, tiles)), 1);
    }
    st->head_tiles = MIN_OF(MAX_OF(workers / (tiles * st->ranges), 1), group);
    ASSERT(st->ranges == 1 || tiles * st->head_tiles <= wanted);
}

static struct attention_stage stage_of(struct cpu *c, const struct op_attention *op)
{
    const struct kv_layer *kv = &c->shape->kv[op->layer];
    struct attention_stage st = {
        .cpu = c, .op = op, .kv = kv, .q_stride = op->gated ? 2 * kv->k_width : kv->k_width};
    share_out(&st);
    return st;
}

/* Whether a tile of attention reads no key of this step but its own. Several ranges norm their queries each
 * for itself, in a copy. */
static bool is_alone(const struct attention_stage *st)
{
    const struct cpu *c = st->cpu;
    uint32_t group = st->op->heads / st->kv->heads;
    for (uint32_t i = 0; st->ranges > 1 && i < c->span_count; i++) {
        if (c->spans[i].count * group > CPU_ATTEND_COPIES)
            return false;
    }
    return !st->op->norm_all && c->span_count == c->in->seq_count && st->head_tiles == 1;
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
        grow_queries(op->growth, op->growth_every, query, op->heads, st->kv->k_width, st->kv->k_width,
                     span->position + i);
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

/* Computes the sums that the reader needs beside the heads [from, to) of a span's results. */
static void sum_heads(const struct attention_stage *st, const struct cpu_span *span, uint32_t from,
                      uint32_t to)
{
    uint32_t width = st->kv->v_width;
    for (uint32_t t = span->column; st->sums && t < span->column + span->count; t++)
        cpu_sum_part(st->cpu, st->sums, st->op->out, t, from * width, to * width);
}

/* Query heads [from, to) of a span, of one KV head. Query n is that of token n / (to - from). */
struct span_heads {
    const struct cpu_span *span;
    uint32_t index, kv_head, from, to;
    const float *copies; /* copies of the queries; NULL: they are in their rows */
};

static struct span_heads heads_of(const struct attention_stage *st, uint32_t index)
{
    uint32_t kv_heads = st->kv->heads, group = st->op->heads / kv_heads, part = index % st->head_tiles;
    uint32_t kv_head = index / st->head_tiles % kv_heads, first = kv_head * group;
    return (struct span_heads){.span = &st->cpu->spans[index / st->head_tiles / kv_heads],
                               .index = index,
                               .kv_head = kv_head,
                               .from = first + group * part / st->head_tiles,
                               .to = first + group * (part + 1) / st->head_tiles};
}

static uint32_t query_count(const struct span_heads *h)
{
    return h->span->count * (h->to - h->from);
}

static struct kern_query query_of(const struct attention_stage *st, const struct span_heads *h, uint32_t n)
{
    const struct cpu *c = st->cpu;
    const struct batch_seq *seq = &c->in->seqs[h->span->seq];
    const float *sinks = cpu_floats(c, st->op->sinks);
    uint32_t heads = h->to - h->from, head = h->from + n % heads, i = n / heads;
    uint32_t column = h->span->column + i, position = h->span->position + i;
    return (struct kern_query){.q = h->copies ? h->copies + (size_t)n * st->kv->k_width
                                              : cpu_row(c, st->op->qkv, column) + (size_t)head * st->q_stride,
                               .out = cpu_row(c, st->op->out, column) + (size_t)head * st->kv->v_width,
                               .kv_first = first_seen(st->op, position),
                               .kv_len = end_seen(st, column, position, seq->position + seq->count),
                               .sink = sinks ? sinks + head : NULL};
}

/* Queries [n, return) of them, as many as one call takes. */
static uint32_t take_queries(const struct attention_stage *st, const struct span_heads *h, uint32_t n,
                             struct kern_query *ret)
{
    uint32_t end = MIN_OF(n + CPU_QUERIES_MAX, query_count(h));
    for (; n < end; n++)
        *ret++ = query_of(st, h, n);
    return end;
}

static void finish_heads(const struct attention_stage *st, const struct span_heads *h)
{
    if (st->op->gated)
        gate_heads(st, h->span, h->from, h->to);
    sum_heads(st, h->span, h->from, h->to);
}

/* Tile: a span, a KV head, some of its query heads. */
static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct span_heads h = heads_of(st, tile);
    const struct kern_kv kv = kv_of(st, h.span->seq, h.kv_head);
    struct kern_query *queries = c->queries + (size_t)worker * CPU_QUERIES_MAX;
    float *scratch = c->attention_scratch + (size_t)worker * c->attention_floats;
    if (st->append)
        append_heads(st, h.span, h.kv_head, h.kv_head + 1);
    for (uint32_t n = 0, end; n < query_count(&h); n = end) {
        end = take_queries(st, &h, n, queries);
        c->ops->attn(&kv, queries, end - n, st->op->scale, scratch);
    }
    finish_heads(st, &h);
}

/* ---- ranges of segments ---- */

/* From one query's parts to the next one's. */
static size_t parts_step(const struct attention_stage *st)
{
    return st->window * KERN_ATTN_PART(st->kv->v_width);
}

/* Returns the row of parts for the first of these heads; rows of one tile stand together. */
static size_t parts_row(const struct attention_stage *st, const struct span_heads *h)
{
    return (size_t)h->span->column * st->op->heads + h->from * h->span->count;
}

/* The run's segments of a span; a range has [begin, end) of them. */
struct segment_range {
    struct segments run;
    uint32_t begin, end;
    bool last; /* no run has later ones */
};

static struct segment_range range_of(const struct attention_stage *st, const struct cpu_span *span,
                                     uint32_t range)
{
    struct segments all = span_segments(st, span);
    uint32_t before = MIN_OF(st->at, all.count), count = MIN_OF(all.count - before, st->window);
    uint32_t first = all.begin + before;
    return (struct segment_range){.run = {first, count},
                                  .begin = first + count * range / st->ranges,
                                  .end = first + count * (range + 1) / st->ranges,
                                  .last = count > 0 && before + count == all.count};
}

/* The queries of `h`, normed and rotated in a copy. */
static const float *copy_queries(const struct attention_stage *st, const struct span_heads *h, float *ret)
{
    uint32_t heads = h->to - h->from, width = st->kv->k_width;
    float *to = ret;
    for (uint32_t i = 0; i < h->span->count; i++, to += (size_t)heads * width) {
        uint32_t column = h->span->column + i;
        const float *q = cpu_row(st->cpu, st->op->qkv, column) + (size_t)h->from * st->q_stride;
        for (uint32_t head = 0; head < heads; head++)
            memcpy(to + (size_t)head * width, q + (size_t)head * st->q_stride, width * sizeof(float));
        prepare_queries(st, to, heads, width, column, h->span->position + i);
    }
    return ret;
}

static void attend_segments(const struct attention_stage *st, struct span_heads *h,
                            const struct segment_range *range, uint32_t worker)
{
    const struct cpu *c = st->cpu;
    const struct kern_kv kv = kv_of(st, h->span->seq, h->kv_head);
    struct kern_query *queries = c->queries + (size_t)worker * CPU_QUERIES_MAX;
    float *scratch = c->attention_scratch + (size_t)worker * c->attention_floats;
    float *parts = c->attention_parts + parts_row(st, h) * parts_step(st) +
                   (range->begin - range->run.begin) * KERN_ATTN_PART(st->kv->v_width);
    if (st->append) {
        /* The keys of this step are in the last segment. */
        if (range->last && range->end == range->run.begin + range->run.count)
            append_keys(st, h->span, h->kv_head, h->kv_head + 1);
        h->copies = copy_queries(st, h, c->query_copies + (size_t)worker * c->query_copies_floats);
    }
    for (uint32_t n = 0, end; n < query_count(h); n = end) {
        end = take_queries(st, h, n, queries);
        c->ops->attn_apart(&kv, queries, end - n, range->begin * KERN_SEGMENT_TOKENS,
                           range->end * KERN_SEGMENT_TOKENS, st->op->scale, parts + n * parts_step(st),
                           parts_step(st), scratch);
    }
}

static void join_segments(const struct attention_stage *st, const struct span_heads *h,
                          const struct segment_range *range)
{
    const struct cpu *c = st->cpu;
    uint32_t begin = range->run.begin, end = begin + range->run.count;
    size_t row = parts_row(st, h);
    for (uint32_t n = 0; n < query_count(h); n++, row++) {
        const struct kern_query q = query_of(st, h, n);
        float *sums = c->attention_sums + 2 * row;
        c->ops->attn_join(&q, st->kv->v_width, begin * KERN_SEGMENT_TOKENS, end * KERN_SEGMENT_TOKENS,
                          c->attention_parts + row * parts_step(st), &sums[0], &sums[1]);
    }
    if (range->last)
        finish_heads(st, h);
}

/* Tile: a range of segments, a span, a KV head, some of its query heads. The last range to end joins them. */
static void attend_range(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    uint32_t heads = st->cpu->span_count * st->kv->heads * st->head_tiles;
    struct span_heads h = heads_of(st, tile % heads);
    const struct segment_range range = range_of(st, h.span, tile / heads);
    _Atomic uint32_t *ended = &st->cpu->ranges_ended[h.index];
    if (range.begin < range.end)
        attend_segments(st, &h, &range, worker);
    if (atomic_fetch_add_explicit(ended, 1, memory_order_acq_rel) + 1 == st->ranges) {
        atomic_store_explicit(ended, 0, memory_order_relaxed);
        join_segments(st, &h, &range);
    }
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
    st.append = c->append_due;
    c->append_due = false;
    uint32_t heads = st.head_tiles == 1 ? a->heads / st.kv->heads : 1;
    const bool whole = heads * st.kv->v_width % cpu_sums_largest(sums) == 0;
    st.sums = whole ? sums : 0;
    uint32_t tiles = c->span_count * st.kv->heads * st.head_tiles;
    if (st.ranges == 1)
        cpu_run(c, attend_tile, &st, tiles);
    for (; st.ranges > 1 && st.at < st.longest; st.at += st.window)
        cpu_run(c, attend_range, &st, tiles * st.ranges);
    if (sums && !whole)
        cpu_each_token(c, sum_token, a, a->out.width);
}
