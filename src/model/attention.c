/* attention.c - project, norm and rotate, append to the pages, attend, gate, project.
 *
 * The steps between projections go by spans, blocks of at most 16 tokens of one sequence. All of a step's
 * keys are in the pages before the first query reads: a chunk's tokens see each other there, exactly as they
 * would see them later. */
#include "model/attention.h"

#include "model/state_layout.h"

#include "base/check.h"

#include <math.h>

/* q, then k | v packed by themselves: `in` reads all of them. */
static int bind_apart(struct binder *b, const struct linear_source in[3], struct attention_weights *ret)
{
    int r = binder_projection(b, in, 1, &ret->in);
    if (r == 0)
        r = binder_projection(b, in + 1, 2, &ret->kv);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < ret->kv.part_count; i++)
        ret->in.parts[ret->in.part_count++] = ret->kv.parts[i];
    ret->in.out += ret->kv.out;
    ret->in.groups |= ret->kv.groups;
    return 0;
}

int attention_bind(struct binder *b, uint32_t layer, struct attention_form form,
                   struct attention_weights *ret)
{
    const struct config *c = b->config;
    char path[BINDER_PATH_MAX];
    struct linear_source in[3];
    uint64_t q_rows = (uint64_t)c->heads * c->head_dim, kv_rows = (uint64_t)c->kv_heads * c->head_dim;
    const struct binder_matrix out = {"self_attn.o_proj", c->hidden};
    ret->gated = form.gated;
    int r = binder_linear(b, binder_path(layer, "self_attn.q_proj", path), form.gated ? 2 * q_rows : q_rows,
                          c->hidden, &in[0]);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "self_attn.k_proj", path), kv_rows, c->hidden, &in[1]);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "self_attn.v_proj", path), kv_rows, c->hidden, &in[2]);
    if (r == 0)
        r = form.kv_apart ? bind_apart(b, in, ret) : binder_projection(b, in, 3, &ret->in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, q_rows, &ret->out);
    if (r == 0 && form.qk_norm)
        r = binder_norm(b, binder_path(layer, "self_attn.q_norm", path), c->head_dim, &ret->q_norm);
    if (r == 0 && form.qk_norm)
        r = binder_norm(b, binder_path(layer, "self_attn.k_norm", path), c->head_dim, &ret->k_norm);
    return r;
}

struct attention_stage {
    struct step *step;
    const struct layer *layer;
    uint32_t head_tiles; /* tiles that share a KV head's query heads */
    bool keys_only;
};

/* Floats from one query head to the next in p. */
static uint32_t q_stride(const struct config *c, const struct attention_weights *w)
{
    return w->gated ? 2 * c->head_dim : c->head_dim;
}

static struct kern_kv kv_of(const struct step *s, const struct layer *l, uint32_t seq, uint32_t kv_head)
{
    const struct config *c = s->config;
    size_t k = page_k_offset(c, l->kind_index, kv_head);
    return (struct kern_kv){.base = s->in->pages,
                            .page_bytes = page_bytes(c),
                            .pages = s->in->seqs[seq].pages,
                            .k_offset = k,
                            .v_offset = k + page_half_bytes(c),
                            .head_dim = c->head_dim,
                            .first = l->mtp ? 1 : 0};
}

static void norm_rope(const struct step *s, float *head, const float *norm, uint32_t column)
{
    const struct config *c = s->config;
    uint32_t half = s->rope.half;
    if (norm)
        s->ops->rmsnorm(head, head, norm, c->head_dim, c->eps);
    s->ops->rope(head, s->cosines + (size_t)column * half, s->sines + (size_t)column * half, half);
}

/* Tile: a span. Queries and keys normed and rotated in place, keys and values stored. */
static void prepare_span(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct step *s = st->step;
    const struct config *c = s->config;
    const struct attention_weights *w = &st->layer->attention;
    const struct step_span *span = &s->spans[tile];
    uint32_t stride = q_stride(c, w);
    (void)worker;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t column = span->column + i;
        float *q = s->proj + (size_t)column * s->wide;
        float *k = q + (size_t)c->heads * stride, *v = k + (size_t)c->kv_heads * c->head_dim;
        for (uint32_t head = 0; !st->keys_only && head < c->heads; head++)
            norm_rope(s, q + (size_t)head * stride, w->q_norm, column);
        for (uint32_t head = 0; head < c->kv_heads; head++) {
            struct kern_kv kv = kv_of(s, st->layer, span->seq, head);
            size_t at = (size_t)head * c->head_dim;
            norm_rope(s, k + at, w->k_norm, column);
            if (st->layer->mtp && span->position + i == 0) {
                /* No query reads it, but the values must be finite, and the same in every page. */
                memset(k + at, 0, c->head_dim * sizeof(float));
                memset(v + at, 0, c->head_dim * sizeof(float));
            }
            s->ops->kv_put(&kv, span->position + i, k + at, v + at);
        }
    }
}

/* Tile: a span, a KV head, some of its query heads. */
static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct attention_stage *st = arg;
    const struct step *s = st->step;
    const struct config *c = s->config;
    const struct attention_weights *w = &st->layer->attention;
    uint32_t group = c->heads / c->kv_heads, part = tile % st->head_tiles;
    uint32_t kv_head = tile / st->head_tiles % c->kv_heads;
    const struct step_span *span = &s->spans[tile / st->head_tiles / c->kv_heads];
    uint32_t from = kv_head * group + group * part / st->head_tiles;
    uint32_t to = kv_head * group + group * (part + 1) / st->head_tiles;
    struct kern_kv kv = kv_of(s, st->layer, span->seq, kv_head);
    struct kern_query *queries = s->queries + (size_t)worker * STEP_QUERIES_MAX;
    float *scratch = s->attention_scratch + (size_t)worker * KERN_ATTN_SCRATCH;
    float scale = (float)(1 / sqrt((double)c->head_dim));
    uint32_t stride = q_stride(c, w), count = 0;
    for (uint32_t i = 0; i < span->count; i++) {
        const float *p = s->proj + (size_t)(span->column + i) * s->wide;
        float *out = s->mid + (size_t)(span->column + i) * s->mid_wide;
        for (uint32_t head = from; head < to; head++) {
            queries[count++] = (struct kern_query){.q = p + (size_t)head * stride,
                                                   .out = out + (size_t)head * c->head_dim,
                                                   .kv_len = span->position + i + 1};
            if (count == STEP_QUERIES_MAX || (i + 1 == span->count && head + 1 == to)) {
                s->ops->attn(&kv, queries, count, scale, scratch);
                count = 0;
            }
        }
    }
    for (uint32_t i = 0; w->gated && i < span->count; i++) {
        const float *p = s->proj + (size_t)(span->column + i) * s->wide;
        float *out = s->mid + (size_t)(span->column + i) * s->mid_wide;
        for (uint32_t head = from; head < to; head++) {
            float *o = out + (size_t)head * c->head_dim;
            s->ops->sigmoid_mul(o, o, p + (size_t)head * stride + c->head_dim, c->head_dim);
        }
    }
}

static void sum_token(struct step *s, const void *arg, uint32_t t)
{
    const struct projection *out = arg;
    step_sums(s, out->groups, s->mid_sums + (size_t)t * step_sums_floats(out->in),
              s->mid + (size_t)t * s->mid_wide, out->in);
}

/* A KV head's query heads in one tile read its keys once. More tiles per KV head pay when workers would
 * idle. */
static uint32_t choose_head_tiles(const struct step *s)
{
    uint32_t group = s->config->heads / s->config->kv_heads, tiles = s->span_count * s->config->kv_heads;
    return MIN_OF(MAX_OF(workers_count(s->workers) / tiles, 1), group);
}

void attention_forward(struct step *s, const struct layer *l)
{
    const struct attention_weights *w = &l->attention;
    struct attention_stage st = {s, l, choose_head_tiles(s), false};
    step_project(s, &w->in, step_x(s), step_proj(s), s->tokens);
    step_run(s, prepare_span, &st, s->span_count);
    step_run(s, attend_tile, &st, s->span_count * s->config->kv_heads * st.head_tiles);
    if (w->out.groups)
        step_each_token(s, sum_token, &w->out, w->out.in);
    step_project(s, &w->out, step_mid(s, w->out.in), step_d(s), s->tokens);
    s->pending_residual = step_add_block_out;
}

void attention_put(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct attention_weights *w = &l->attention;
    struct attention_stage st = {s, l, 0, true};
    struct step_rows kv = step_proj(s);
    kv.data += (size_t)c->heads * q_stride(c, w);
    step_project(s, &w->kv, step_x(s), kv, s->tokens);
    step_run(s, prepare_span, &st, s->span_count);
}
