/* vision_ops.c - the operations of each pass: the lists that a family's parts make, and the arrays that each
 * operation reads and writes. */
#include "model/vision_ops.h"

#include "model/family/vision_family.h"
#include "model/load/vision_weights.h"
#include "model/vision_encoder.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum op {
    OP_PIXELS,     /* mid = patches of pixels */
    OP_PIXEL_NORM, /* mid = norm of mid */
    OP_EMBED,      /* h = product of mid */
    OP_EMBED_NORM, /* h = norm of h */
    OP_POSITIONS,  /* h += bias and learned positions */
    OP_BIAS,       /* h += bias */
    OP_FIRST_NORM, /* h = norm of h */
    OP_NORM,       /* x = norm of h */
    OP_KEY_VALUE,  /* y = product of x */
    OP_KEY,        /* the first half of y = product of x */
    OP_VALUE,      /* the second half of y = product of x */
    OP_KEYS,       /* bias, norms, rotate, keep */
    OP_QUERY,      /* y = product of x */
    OP_QUERIES,    /* bias, norm, rotate */
    OP_ATTEND,     /* x = attention of y */
    OP_OUT,        /* y = product of x */
    OP_MIX_POST,   /* y = norm of y */
    OP_MIX,        /* h += y and bias; x = norm of h */
    OP_MLP_NORM,   /* x = norm of h */
    OP_UP,         /* mid = product of x, which has a gate in front */
    OP_GATE_ALONE, /* the first half of mid = product of x */
    OP_UP_ALONE,   /* the second half of mid = product of x */
    OP_ACT,        /* bias, activation */
    OP_DOWN,       /* y = product of mid */
    OP_MLP_POST,   /* y = norm of y */
    OP_ADD,        /* h += y and bias */
    OP_POOL,       /* squeezed = mean of patches, of merged or h */
    OP_STANDARD,   /* squeezed = (squeezed - bias) * scale */
    OP_POOL_NORM,  /* squeezed = norm of squeezed */
    OP_GATHER,     /* merged = norm of h, token by token: a token's patches lie side by side */
    OP_MERGE_NORM, /* merged = norm of merged, over a patch or the token */
    OP_SQUEEZE,    /* squeezed = product of merged */
    OP_SQUEEZED,   /* squeezed += bias */
    OP_PROJ,       /* merged = product of squeezed */
    OP_PROJ_NORM,  /* merged = norm of merged */
    OP_PROJ_GELU,  /* gelu of merged */
    OP_MERGE_UP,   /* merged_mid = product of merged or squeezed */
    OP_MERGE_GELU, /* bias, gelu */
    OP_MERGE_DOWN, /* features = product of merged_mid */
    OP_FEATURE,    /* bias */
    OP_IN_ROWS,    /* features = merged and bias, each at its position */
};

/* ---- lists ---- */

/* Before a product with bounds, or after it: clips its input, or its result. */
#define CLIPS_INPUT  64u
#define CLIPS_RESULT 128u
#define OP_MASK      63u

static void add(struct vision_op_list *l, unsigned op, bool wanted)
{
    if (!wanted)
        return;
    ASSERT(l->count < VISION_OPS_MAX);
    l->ops[l->count++] = (uint8_t)op;
}

static void add_product(struct vision_op_list *l, const struct vision_config *v, enum op op)
{
    add(l, op | CLIPS_INPUT, v->clipped);
    add(l, op, true);
    add(l, op | CLIPS_RESULT, v->clipped);
}

/* Products with bounds of their own have no other beside them, and change what they read. */
static void list_keys(const struct vision_config *v, struct vision_op_list *l)
{
    add(l, OP_NORM, true);
    add_product(l, v, v->clipped ? OP_KEY : OP_KEY_VALUE);
    if (v->clipped) {
        add(l, OP_NORM, true);
        add_product(l, v, OP_VALUE);
    }
    add(l, OP_KEYS, true);
}

static void list_mix(const struct vision_config *v, struct vision_op_list *l)
{
    const char *const *t = v->family->tensors;
    add(l, OP_NORM, true);
    add_product(l, v, OP_QUERY);
    add(l, OP_QUERIES, true);
    add(l, OP_ATTEND, true);
    add_product(l, v, OP_OUT);
    add(l, OP_MIX_POST, t[VISION_ROLE_MIX_POST]);
    add(l, OP_MIX, true);
    add_product(l, v, v->clipped && v->gated ? OP_GATE_ALONE : OP_UP);
    if (v->clipped && v->gated) {
        add(l, OP_MLP_NORM, true);
        add_product(l, v, OP_UP_ALONE);
    }
    add(l, OP_ACT, true);
    add_product(l, v, OP_DOWN);
    add(l, OP_MLP_POST, t[VISION_ROLE_MLP_POST]);
    add(l, OP_ADD, true);
}

static void list_merge(const struct vision_config *v, struct vision_op_list *l)
{
    const char *const *t = v->family->tensors;
    const bool pools = v->family->pools, up = t[VISION_ROLE_MERGE_UP];
    add(l, OP_GATHER, !pools || t[VISION_ROLE_LAST_NORM]);
    add(l, OP_MERGE_NORM, vision_norms_twice(v));
    add(l, OP_POOL, pools);
    add(l, OP_STANDARD, v->standardizes);
    add(l, OP_POOL_NORM, pools);
    add(l, OP_SQUEEZE, t[VISION_ROLE_MERGE_SQUEEZE]);
    for (unsigned op = OP_SQUEEZED; op <= OP_PROJ_GELU; op++)
        add(l, op, t[VISION_ROLE_MERGE_PROJ]);
    add(l, OP_MERGE_UP, up);
    add(l, OP_MERGE_GELU, up);
    add(l, OP_MERGE_DOWN, true);
    add(l, OP_FEATURE, v->window == 0);
    add(l, OP_IN_ROWS, v->window > 0);
}

void vision_ops_list(const struct vision_config *v, struct vision_op_list ret[ENCODER_SEQUENCES])
{
    const char *const *t = v->family->tensors;
    struct vision_op_list *embed = &ret[ENCODER_EMBED];
    memset(ret, 0, ENCODER_SEQUENCES * sizeof(*ret));
    add(embed, OP_PIXELS, true);
    add(embed, OP_PIXEL_NORM, t[VISION_ROLE_PIXEL_NORM]);
    add(embed, OP_EMBED, true);
    add(embed, OP_BIAS, v->grid == 0 || t[VISION_ROLE_EMBED_NORM]);
    add(embed, OP_EMBED_NORM, t[VISION_ROLE_EMBED_NORM]);
    add(embed, OP_POSITIONS, v->grid > 0);
    add(embed, OP_FIRST_NORM, t[VISION_ROLE_FIRST_NORM]);
    list_keys(v, &ret[ENCODER_KEYS]);
    list_mix(v, &ret[ENCODER_MIX]);
    list_merge(v, &ret[ENCODER_MERGE]);
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
    const bool added = e->config->family->tensors[VISION_ROLE_EMBED_NORM]; /* the bias is in the norm */
    struct op_encode a = of_rows(e, ENCODE_POSITIONS, e->config->hidden);
    a.y = stream_now(e);
    a.w = &e->weights->positions;
    a.bias = added ? DEV_NULL : e->weights->patches.bias;
    a.grid = e->config->grid;
    a.class_values = e->weights->class_values;
    return a;
}

/* A norm is over a patch's values, in DeepStack over the token's. */
static struct op_encode gathering(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    const struct vision_family *t = e->config->family;
    const bool last = t->tensors[VISION_ROLE_LAST_NORM], up = m->up.w.part_count > 0,
               main = m == &e->weights->merger;
    struct op_encode a = norming(e, of_tokens(e, ENCODE_NORM, vision_merged(e->config)),
                                 last ? &e->weights->last : &m->norm, tokens_now(e), e->a.merged,
                                 t->pools || (main && vision_norms_twice(e->config)) ? NULL
                                 : up                                                ? &m->up.w
                                                                                     : &m->down.w);
    a.norm_parts = main && (last || !t->token_norm) ? token_patches(e) : 1;
    a.rms |= !last && t->merge_plain;
    if (main && !last)
        a.eps = e->config->merge_eps;
    if (e->config->family->tensors[VISION_ROLE_MERGE_SQUEEZE]) {
        a.by_value = true;
        a.reader = &m->squeeze.w;
    }
    return a;
}

/* A norm of the token's patches together, each of which has had its own. */
static struct op_encode merge_norm(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    struct op_encode a = norming(e, of_tokens(e, ENCODE_NORM, vision_merged(e->config)), &m->norm,
                                 e->a.merged, e->a.merged, &m->up.w);
    a.norm_parts = e->config->family->token_norm ? 1 : token_patches(e);
    a.eps = e->config->merge_eps;
    return a;
}

static struct op_encode pool_norm(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    struct op_encode a = norming(e, of_tokens(e, ENCODE_NORM, e->config->hidden), &m->norm, e->a.squeezed,
                                 e->a.squeezed, &m->down.w);
    a.rms |= e->config->family->text_norm || e->config->family->merge_plain;
    a.eps = e->config->merge_eps;
    return a;
}

static struct op_encode pooling(const struct vision_encoder *e)
{
    const struct vision_family *f = e->config->family;
    struct op_encode a = of_tokens(e, ENCODE_POOL, e->config->hidden);
    a.norm_parts = token_patches(e);
    a.factor = f->pool_sqrt ? (float)sqrt((double)e->config->hidden) : 1;
    a.x = f->tensors[VISION_ROLE_LAST_NORM] ? e->a.merged : tokens_now(e);
    a.y = e->a.squeezed;
    return a;
}

/* Squeezed with the encoder's own means and deviations. */
static struct op_encode standardizing(const struct vision_encoder *e)
{
    struct op_encode a = of_tokens(e, ENCODE_STANDARD, e->config->hidden);
    a.x = e->a.squeezed;
    a.norm_weight = e->weights->standard.weight;
    a.norm_bias = e->weights->standard.bias;
    return a;
}

/* Keys, or queries, with the norms of their heads. */
static struct op_encode heading(const struct vision_encoder *e, struct op_encode a,
                                const struct vision_linear *l, dev_ptr norm)
{
    a = changing(a, e->a.y, l);
    a.norm_weight = norm;
    a.eps = e->config->eps;
    return a;
}

/* The rows from value `from` on of each. */
static struct encode_rows rows_from(struct encode_rows r, uint32_t from)
{
    r.at = dev_add(r.at, (uint64_t)from * sizeof(float));
    return r;
}

/* A product becomes the clip of what it reads, or of its result. */
static struct op_encode clipping(struct op_encode a, const struct vision_linear *l, bool result)
{
    const struct vision_clip *c = result ? &l->result : &l->input;
    a.kind = ENCODE_CLIP;
    a.width = (uint32_t)(result ? l->w.out : l->w.in);
    a.x = result ? a.y : a.x;
    a.clip_min = c->least;
    a.clip_max = c->most;
    a.w = NULL;
    return a;
}

struct op_encode vision_ops_tables(const struct vision_encoder *e)
{
    return of_rows(e, ENCODE_TABLES, 0);
}

/* The matrix of a product of a block. */
static const struct vision_linear *linear_of(const struct vision_block *b, enum op op)
{
    switch (op) {
    case OP_KEY:
    case OP_KEY_VALUE:
        return &b->key_value;
    case OP_VALUE:
        return &b->value;
    case OP_QUERY:
        return &b->query;
    case OP_OUT:
        return &b->out;
    case OP_GATE_ALONE:
    case OP_UP:
        return &b->up;
    case OP_UP_ALONE:
        return &b->up_alone;
    default:
        ASSERT(op == OP_DOWN);
        return &b->down;
    }
}

static struct op_encode op_of(const struct vision_encoder *e, enum op op)
{
    const struct vision_config *v = e->config;
    const struct vision_block *b = block_now(e);
    const struct vision_merger *m = merger_now(e);
    const struct vision_encoder_pass *pass = &e->passes[e->pass];
    const struct op_encode rows = of_rows(e, ENCODE_PROJECT, 0), tokens = of_tokens(e, ENCODE_PROJECT, 0);
    const bool squeezes = v->family->tensors[VISION_ROLE_MERGE_SQUEEZE] && m->proj.w.part_count == 0;
    struct op_encode a;
    switch (op) {
    case OP_PIXELS:
        a = of_rows(e, ENCODE_PIXELS, vision_patch_values(v));
        a.y = e->a.mid;
        a.reader = v->family->tensors[VISION_ROLE_PIXEL_NORM] ? NULL : &e->weights->patches.w;
        return a;
    case OP_PIXEL_NORM:
        return norming(e, of_rows(e, ENCODE_NORM, vision_patch_values(v)), &e->weights->pixels, e->a.mid,
                       e->a.mid, &e->weights->patches.w);
    case OP_EMBED_NORM:
        return norming(e, of_rows(e, ENCODE_NORM, v->hidden), &e->weights->embedded, stream_now(e),
                       stream_now(e), NULL);
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
    case OP_KEY:
    case OP_KEY_VALUE:
    case OP_QUERY:
    case OP_OUT:
        return product(rows, linear_of(b, op), e->a.x, e->a.y);
    case OP_VALUE:
        return product(rows, &b->value, e->a.x, rows_from(e->a.y, v->hidden));
    case OP_KEYS:
        a = heading(e, of_rows(e, ENCODE_KEYS, 2 * v->hidden), &b->key_value, b->key_norm);
        a.value_norm = b->value_norm;
        return a;
    case OP_QUERIES:
        return heading(e, of_rows(e, ENCODE_QUERIES, v->hidden), &b->query, b->query_norm);
    case OP_ATTEND:
        a = of_rows(e, ENCODE_ATTEND, v->hidden);
        a.x = e->a.y;
        a.y = e->a.x;
        a.reader = &b->out.w;
        a.in_windows = v->window > 0 && !vision_sees_all(v, pass->block);
        return a;
    case OP_MIX_POST:
    case OP_MLP_POST:
        return norming(e, of_rows(e, ENCODE_NORM, v->hidden), op == OP_MIX_POST ? &b->mix_post : &b->mlp_post,
                       e->a.y, e->a.y, NULL);
    case OP_MIX:
        return mixing(e, b);
    case OP_MLP_NORM:
        return norming(e, of_rows(e, ENCODE_NORM, v->hidden), &b->mlp, stream_now(e), e->a.x, &b->up_alone.w);
    case OP_UP:
    case OP_GATE_ALONE:
        return product(rows, &b->up, e->a.x, e->a.mid);
    case OP_UP_ALONE:
        return product(rows, &b->up_alone, e->a.x, rows_from(e->a.mid, v->intermediate));
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
        return pooling(e);
    case OP_STANDARD:
        return standardizing(e);
    case OP_MERGE_NORM:
        return merge_norm(e);
    case OP_POOL_NORM:
        return pool_norm(e);
    case OP_SQUEEZE:
        return product(tokens, &m->squeeze, e->a.merged, e->a.squeezed);
    case OP_SQUEEZED:
        return changing(of_tokens(e, ENCODE_BIAS, v->out), e->a.squeezed, &m->squeeze);
    case OP_PROJ:
        return product(tokens, &m->proj, e->a.squeezed, e->a.merged);
    case OP_PROJ_NORM:
        a = norming(e, of_tokens(e, ENCODE_NORM, v->out), &m->proj_norm, e->a.merged, e->a.merged, NULL);
        a.rms = false;
        a.eps = 1e-5f;
        return a;
    case OP_PROJ_GELU:
        a = of_tokens(e, ENCODE_ACT, v->out);
        a.x = e->a.merged;
        a.function = GLU_GELU_ERF;
        a.reader = &m->up.w;
        return a;
    case OP_MERGE_UP:
        return product(tokens, &m->up, squeezes ? e->a.squeezed : e->a.merged, e->a.merged_mid);
    case OP_MERGE_GELU:
        a = changing(of_tokens(e, ENCODE_ACT, v->merge_mid), e->a.merged_mid, &m->up);
        a.gated = v->family->tensors[VISION_ROLE_MERGE_GATE];
        a.function = a.gated ? v->function : GLU_GELU_ERF;
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

struct op_encode vision_ops_now(const struct vision_encoder *e)
{
    const unsigned entry = e->lists[e->passes[e->pass].sequence].ops[e->stage];
    const enum op op = (enum op)(entry & OP_MASK);
    struct op_encode a = op_of(e, op);
    /* A clip stands between an operation and the product. */
    if (e->config->clipped)
        a.reader = NULL;
    if ((entry & (CLIPS_INPUT | CLIPS_RESULT)) == 0)
        return a;
    return clipping(a, linear_of(block_now(e), op), entry & CLIPS_RESULT);
}
