/* vision_ops.c - the operations of each pass: the lists that a family's parts make, and the arrays that each
 * operation reads and writes. */
#include "model/vision_ops.h"

#include "model/family/vision_family.h"
#include "model/load/vision_weights.h"
#include "model/vision_encoder.h"

#include "base/check.h"

#include <string.h>

enum op {
    OP_PIXELS,     /* mid = patches of pixels */
    OP_EMBED,      /* h = product of mid */
    OP_POSITIONS,  /* h += bias and learned positions */
    OP_BIAS,       /* h += bias */
    OP_FIRST_NORM, /* h = norm of h */
    OP_NORM,       /* x = norm of h */
    OP_KEY_VALUE,  /* y = product of x */
    OP_KEYS,       /* bias, rotate, keep */
    OP_QUERY,      /* y = product of x */
    OP_QUERIES,    /* bias, rotate */
    OP_ATTEND,     /* x = attention of y */
    OP_OUT,        /* y = product of x */
    OP_MIX,        /* h += y and bias; x = norm of h */
    OP_UP,         /* mid = product of x, which has a gate in front */
    OP_ACT,        /* bias, activation */
    OP_DOWN,       /* y = product of mid */
    OP_ADD,        /* h += y and bias */
    OP_POOL,       /* squeezed = mean of merged's patches */
    OP_POOL_NORM,  /* squeezed = norm of squeezed */
    OP_GATHER,     /* merged = norm of h, token by token: a token's patches lie side by side */
    OP_SQUEEZE,    /* squeezed = product of merged */
    OP_MERGE_UP,   /* merged_mid = product of merged or squeezed */
    OP_MERGE_GELU, /* bias, gelu */
    OP_MERGE_DOWN, /* features = product of merged_mid */
    OP_FEATURE,    /* bias */
    OP_IN_ROWS,    /* features = merged and bias, each at its position */
};

/* ---- lists ---- */

static void add(struct vision_op_list *l, enum op op, bool wanted)
{
    if (!wanted)
        return;
    ASSERT(l->count < VISION_OPS_MAX);
    l->ops[l->count++] = (uint8_t)op;
}

void vision_ops_list(const struct vision_config *v, struct vision_op_list ret[ENCODER_SEQUENCES])
{
    static const uint8_t keys[] = {OP_NORM, OP_KEY_VALUE, OP_KEYS};
    static const uint8_t mix[] = {OP_NORM, OP_QUERY, OP_QUERIES, OP_ATTEND, OP_OUT,
                                  OP_MIX,  OP_UP,    OP_ACT,     OP_DOWN,   OP_ADD};
    const struct vision_family *t = v->family;
    struct vision_op_list *embed = &ret[ENCODER_EMBED], *merge = &ret[ENCODER_MERGE];
    memset(ret, 0, ENCODER_SEQUENCES * sizeof(*ret));
    add(embed, OP_PIXELS, true);
    add(embed, OP_EMBED, true);
    add(embed, OP_POSITIONS, v->grid > 0);
    add(embed, OP_BIAS, v->grid == 0);
    add(embed, OP_FIRST_NORM, t->tensors[VISION_ROLE_FIRST_NORM]);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        add(&ret[ENCODER_KEYS], (enum op)keys[i], true);
    for (size_t i = 0; i < COUNT_OF(mix); i++)
        add(&ret[ENCODER_MIX], (enum op)mix[i], true);
    const bool pools = t->pools, up = t->tensors[VISION_ROLE_MERGE_UP];
    add(merge, OP_GATHER, true);
    add(merge, OP_POOL, pools);
    add(merge, OP_POOL_NORM, pools);
    add(merge, OP_SQUEEZE, t->tensors[VISION_ROLE_MERGE_SQUEEZE]);
    add(merge, OP_MERGE_UP, up);
    add(merge, OP_MERGE_GELU, up);
    add(merge, OP_MERGE_DOWN, true);
    add(merge, OP_FEATURE, v->window == 0);
    add(merge, OP_IN_ROWS, v->window > 0);
}

/* ---- operations ---- */

static const struct vision_block *block_now(const struct vision_encoder *e)
{
    return &e->weights->blocks[e->passes[e->pass].block];
}

static const struct vision_merger *merger_now(const struct vision_encoder *e)
{
    uint32_t feature = e->passes[e->pass].feature;
    return feature == 0 ? &e->weights->merger : &e->weights->deepstack[feature - 1];
}

static uint32_t token_patches(const struct vision_encoder *e)
{
    return e->config->shape.merge * e->config->shape.merge;
}

/* The residual stream from the slice on. */
static struct encode_rows stream_now(const struct vision_encoder *e)
{
    struct encode_rows h = e->a.h;
    h.at = dev_add(h.at, (uint64_t)e->slice * e->shape.slice_max * h.stride * sizeof(float));
    return h;
}

/* The residual stream from the slice on, a row for the patches of each token. */
static struct encode_rows tokens_now(const struct vision_encoder *e)
{
    struct encode_rows h = stream_now(e);
    h.stride *= token_patches(e);
    return h;
}

static struct encode_rows features_now(const struct vision_encoder *e)
{
    uint64_t first = (uint64_t)e->slice * e->shape.slice_max / token_patches(e);
    uint32_t floats = e->config->shape.feature_floats;
    uint64_t at = first * floats + (uint64_t)e->passes[e->pass].feature * e->config->out;
    return (struct encode_rows){.at = dev_add(e->features, at * sizeof(float)), .stride = floats};
}

static struct op_encode of_rows(const struct vision_encoder *e, enum encode_kind kind, uint32_t width)
{
    uint32_t from = e->slice * e->shape.slice_max;
    return (struct op_encode){.kind = kind,
                              .image = &e->image,
                              .from = from,
                              .count = MIN_OF(e->patches - from, e->shape.slice_max),
                              .width = width};
}

static struct op_encode of_tokens(const struct vision_encoder *e, enum encode_kind kind, uint32_t width)
{
    struct op_encode a = of_rows(e, kind, width);
    const uint32_t patches = e->image.rows * e->image.columns, to = MIN_OF(a.from + a.count, patches);
    a.by_token = true;
    a.count = (to > a.from ? to - a.from : 0) / token_patches(e);
    a.from /= token_patches(e);
    return a;
}

static struct op_encode changing(struct op_encode a, struct encode_rows x, const struct vision_linear *l)
{
    a.x = x;
    a.bias = l->bias;
    return a;
}

static struct op_encode product(struct op_encode a, const struct vision_linear *l, struct encode_rows x,
                                struct encode_rows y)
{
    a.w = &l->w;
    a.x = x;
    a.y = y;
    return a;
}

static struct op_encode norming(const struct vision_encoder *e, struct op_encode a,
                                const struct vision_norm *n, struct encode_rows x, struct encode_rows y,
                                const struct projection *reader)
{
    a.reader = reader;
    a.rms = e->config->family->rms;
    a.eps = e->config->eps;
    a.norm_weight = n->weight;
    a.norm_bias = n->bias;
    a.x = x;
    a.y = y;
    return a;
}

/* h += y and bias; x = norm of h. */
static struct op_encode mixing(const struct vision_encoder *e, const struct vision_block *b)
{
    struct op_encode a =
        norming(e, of_rows(e, ENCODE_ADD_NORM, e->config->hidden), &b->mlp, e->a.y, stream_now(e), &b->up.w);
    a.bias = b->out.bias;
    a.factors = b->mix_factors;
    a.z = e->a.x;
    return a;
}

static struct op_encode placing(const struct vision_encoder *e)
{
    struct op_encode a = of_rows(e, ENCODE_POSITIONS, e->config->hidden);
    a.y = stream_now(e);
    a.w = &e->weights->positions;
    a.bias = e->weights->patches.bias;
    a.grid = e->config->grid;
    a.class_values = e->weights->class_values;
    return a;
}

/* A norm is over a patch's values, in DeepStack over the token's. */
static struct op_encode gathering(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    const struct vision_family *t = e->config->family;
    const bool last = t->tensors[VISION_ROLE_LAST_NORM], main = m == &e->weights->merger;
    struct op_encode a = norming(e, of_tokens(e, ENCODE_NORM, vision_merged(e->config)),
                                 last ? &e->weights->last : &m->norm, tokens_now(e), e->a.merged,
                                 t->pools             ? NULL
                                 : m->up.w.part_count ? &m->up.w
                                                      : &m->down.w);
    a.norm_parts = main && !t->token_norm ? token_patches(e) : 1;
    if (main && !last)
        a.eps = e->config->merge_eps;
    if (e->config->family->tensors[VISION_ROLE_MERGE_SQUEEZE]) {
        a.by_value = true;
        a.reader = &m->squeeze.w;
    }
    return a;
}

static struct op_encode pool_norm(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    struct op_encode a = norming(e, of_tokens(e, ENCODE_NORM, e->config->hidden), &m->norm, e->a.squeezed,
                                 e->a.squeezed, &m->down.w);
    a.rms |= e->config->family->text_norm;
    a.eps = e->config->merge_eps;
    return a;
}

struct op_encode vision_ops_tables(const struct vision_encoder *e)
{
    return of_rows(e, ENCODE_TABLES, 0);
}

struct op_encode vision_ops_now(const struct vision_encoder *e)
{
    const enum op op = (enum op)e->lists[e->passes[e->pass].sequence].ops[e->stage];
    const struct vision_config *v = e->config;
    const struct vision_block *b = block_now(e);
    const struct vision_merger *m = merger_now(e);
    const struct vision_encoder_pass *pass = &e->passes[e->pass];
    const struct op_encode rows = of_rows(e, ENCODE_PROJECT, 0), tokens = of_tokens(e, ENCODE_PROJECT, 0);
    const bool squeezes = v->family->tensors[VISION_ROLE_MERGE_SQUEEZE] != NULL;
    struct op_encode a;
    switch (op) {
    case OP_PIXELS:
        a = of_rows(e, ENCODE_PIXELS, vision_patch_values(v));
        a.y = e->a.mid;
        a.reader = &e->weights->patches.w;
        return a;
    case OP_EMBED:
        return product(rows, &e->weights->patches, e->a.mid, stream_now(e));
    case OP_POSITIONS:
        return placing(e);
    case OP_BIAS:
        return changing(of_rows(e, ENCODE_BIAS, v->hidden), stream_now(e), &e->weights->patches);
    case OP_FIRST_NORM:
        return norming(e, of_rows(e, ENCODE_NORM, v->hidden), &e->weights->first, stream_now(e),
                       stream_now(e), NULL);
    case OP_NORM:
        return norming(e, of_rows(e, ENCODE_NORM, v->hidden), &b->mix, stream_now(e), e->a.x,
                       pass->sequence == ENCODER_KEYS ? &b->key_value.w : &b->query.w);
    case OP_KEY_VALUE:
        return product(rows, &b->key_value, e->a.x, e->a.y);
    case OP_KEYS:
        return changing(of_rows(e, ENCODE_KEYS, 2 * v->hidden), e->a.y, &b->key_value);
    case OP_QUERY:
        return product(rows, &b->query, e->a.x, e->a.y);
    case OP_QUERIES:
        return changing(of_rows(e, ENCODE_QUERIES, v->hidden), e->a.y, &b->query);
    case OP_ATTEND:
        a = of_rows(e, ENCODE_ATTEND, v->hidden);
        a.x = e->a.y;
        a.y = e->a.x;
        a.reader = &b->out.w;
        a.in_windows = v->window > 0 && !vision_sees_all(v, pass->block);
        return a;
    case OP_OUT:
        return product(rows, &b->out, e->a.x, e->a.y);
    case OP_MIX:
        return mixing(e, b);
    case OP_UP:
        return product(rows, &b->up, e->a.x, e->a.mid);
    case OP_ACT:
        a = changing(of_rows(e, ENCODE_ACT, v->intermediate), e->a.mid, &b->up);
        a.function = v->function;
        a.gated = v->gated;
        a.reader = &b->down.w;
        return a;
    case OP_DOWN:
        return product(rows, &b->down, e->a.mid, e->a.y);
    case OP_ADD:
        a = changing(of_rows(e, ENCODE_ADD, v->hidden), e->a.y, &b->down);
        a.y = stream_now(e);
        a.factors = b->mlp_factors;
        return a;
    case OP_GATHER:
        return gathering(e);
    case OP_POOL:
        a = of_tokens(e, ENCODE_POOL, v->hidden);
        a.norm_parts = token_patches(e);
        a.x = e->a.merged;
        a.y = e->a.squeezed;
        return a;
    case OP_POOL_NORM:
        return pool_norm(e);
    case OP_SQUEEZE:
        return product(tokens, &m->squeeze, e->a.merged, e->a.squeezed);
    case OP_MERGE_UP:
        return product(tokens, &m->up, squeezes ? e->a.squeezed : e->a.merged, e->a.merged_mid);
    case OP_MERGE_GELU:
        a = changing(of_tokens(e, ENCODE_ACT, m->up.w.out), e->a.merged_mid, &m->up);
        a.function = GLU_GELU_ERF;
        a.reader = &m->down.w;
        return a;
    case OP_MERGE_DOWN:
        return product(tokens, &m->down,
                       m->up.w.part_count ? e->a.merged_mid
                       : v->family->pools ? e->a.squeezed
                                          : e->a.merged,
                       v->window > 0 ? e->a.merged : features_now(e));
    case OP_IN_ROWS:
        a = changing(of_tokens(e, ENCODE_IN_ROWS, v->out), e->a.merged, &m->down);
        a.y = (struct encode_rows){.at = e->features, .stride = v->shape.feature_floats};
        return a;
    case OP_FEATURE:
        return changing(of_tokens(e, ENCODE_BIAS, v->out), features_now(e), &m->down);
    }
    ASSERT(false);
    return rows;
}
