/* vision_encoder.c - memory, and the order of the work.
 *
 * The memory is one range of units, laid out anew for each image. Arrays begin at its start, so units that
 * only a larger image needed can go one by one from the end. A still image comes as the same frame twice and
 * meets both halves of the patch embedding. Adding the halves' weights beforehand would save a thousandth of
 * the work and change the sums. */
#include "model/vision_encoder.h"

#include "model/config/config.h"
#include "model/load/vision_weights.h"

#include "base/check.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "memory/accounts.h"
#include "memory/domain.h"

#include <errno.h>
#include <string.h>

#define ALIGN ((uint64_t)64)
/* Given back in one call. */
#define RELAX_UNITS ((uint32_t)(UNIT_BYTES / UNIT_SMALL_BYTES))

enum op {
    OP_TABLES,
    OP_PIXELS,     /* mid = patches of pixels */
    OP_EMBED,      /* h = product of mid */
    OP_POSITIONS,  /* h += bias and learned positions */
    OP_NORM,       /* x = norm of h */
    OP_KEY_VALUE,  /* y = product of x */
    OP_KEYS,       /* bias, rotate, keep */
    OP_QUERY,      /* y = product of x */
    OP_QUERIES,    /* bias, rotate */
    OP_ATTEND,     /* x = attention of y */
    OP_OUT,        /* y = product of x */
    OP_MIX,        /* h += y and bias; x = norm of h */
    OP_UP,         /* mid = product of x */
    OP_GELU,       /* bias, gelu */
    OP_DOWN,       /* y = product of mid */
    OP_ADD,        /* h += y and bias */
    OP_GATHER,     /* merged = norm of h, token by token: a token's patches lie side by side */
    OP_MERGE_UP,   /* merged_mid = product of merged */
    OP_MERGE_GELU, /* bias, gelu */
    OP_MERGE_DOWN, /* features = product of merged_mid */
    OP_FEATURE,    /* bias */
};

static const uint8_t embed_ops[] = {OP_PIXELS, OP_EMBED, OP_POSITIONS};
static const uint8_t keys_ops[] = {OP_NORM, OP_KEY_VALUE, OP_KEYS};
static const uint8_t mix_ops[] = {OP_NORM, OP_QUERY, OP_QUERIES, OP_ATTEND, OP_OUT,
                                  OP_MIX,  OP_UP,    OP_GELU,    OP_DOWN,   OP_ADD};
static const uint8_t merge_ops[] = {OP_GATHER, OP_MERGE_UP, OP_MERGE_GELU, OP_MERGE_DOWN, OP_FEATURE};

static const struct {
    const uint8_t *ops;
    uint32_t count;
} sequences[] = {
    [ENCODER_EMBED] = {embed_ops, COUNT_OF(embed_ops)},
    [ENCODER_KEYS] = {keys_ops, COUNT_OF(keys_ops)},
    [ENCODER_MIX] = {mix_ops, COUNT_OF(mix_ops)},
    [ENCODER_MERGE] = {merge_ops, COUNT_OF(merge_ops)},
};

/* ---- memory ---- */

/* Slices hold whole tokens and pages, and no more patches than the image has. */
static uint32_t slice_patches(const struct backend *b, const struct vision_config *v, uint64_t patches)
{
    uint32_t unit = v->shape.merge * v->shape.merge * PAGE_TOKENS;
    uint64_t all = ROUND_UP(MAX_OF(patches, 1u), (uint64_t)unit);
    return (uint32_t)MIN_OF(MAX_OF(b->encode_patches / unit * unit, unit), all);
}

static struct encode_shape shape_of(const struct config *c)
{
    const struct vision_config *v = &c->vision;
    uint64_t most = DIV_UP(v->shape.pixels_max, (uint64_t)v->shape.patch * v->shape.patch);
    struct encode_shape s = {.hidden = v->hidden,
                             .heads = v->heads,
                             .head_dim = v->head_dim,
                             .patch = v->shape.patch,
                             .merge = v->shape.merge,
                             .slice_max = slice_patches(c->backend, v, most),
                             .read_max = MAX_OF(MAX_OF(v->hidden, v->intermediate), vision_patch_values(v)),
                             .mode = c->compute,
                             .theta = v->theta,
                             .sums = c->sums};
    memcpy(s.mean, v->mean, sizeof(s.mean));
    memcpy(s.std, v->std, sizeof(s.std));
    return s;
}

static uint64_t rows_bytes(const struct encode_rows *r, uint64_t count)
{
    return ROUND_UP(count * r->stride * sizeof(float), ALIGN);
}

/* The arrays of a slice at `base`, and the residual stream after them. Returns the end of a stream of
 * `patches` patches. */
static uint64_t lay_out(const struct backend *b, const struct vision_config *v, const struct encode_shape *s,
                        dev_ptr base, uint64_t patches, struct vision_encoder_arrays *a)
{
    uint64_t n = s->slice_max, tokens = n / (v->shape.merge * v->shape.merge), used = 0;
    a->x = b->encode_rows(dev_add(base, used), v->hidden, true, s->sums);
    a->merged = b->encode_rows(a->x.at, vision_merged(v), true, s->sums);
    used += MAX_OF(rows_bytes(&a->x, n), rows_bytes(&a->merged, tokens));
    a->y = b->encode_rows(dev_add(base, used), 2 * v->hidden, false, s->sums);
    used += rows_bytes(&a->y, n);
    a->mid =
        b->encode_rows(dev_add(base, used), MAX_OF(v->intermediate, vision_patch_values(v)), true, s->sums);
    a->merged_mid = b->encode_rows(a->mid.at, vision_merged(v), true, s->sums);
    used += MAX_OF(rows_bytes(&a->mid, n), rows_bytes(&a->merged_mid, tokens));
    a->h = (struct encode_rows){.at = dev_add(base, used), .stride = v->hidden};
    return used + rows_bytes(&a->h, patches);
}

static uint64_t image_bytes(const struct config *c, uint64_t patches, uint64_t edge)
{
    const struct encode_shape s = shape_of(c);
    struct vision_encoder_arrays a;
    return lay_out(c->backend, &c->vision, &s, DEV_NULL, patches, &a) +
           c->backend->encode_bytes(&s, patches, edge);
}

uint64_t model_encode_bytes(const struct model_shape *s, uint64_t pixels)
{
    const struct model_vision *v = &s->vision;
    if (!v->present)
        return 0;
    uint64_t patches = DIV_UP(pixels, (uint64_t)v->patch * v->patch);
    return ROUND_UP(v->encode_fixed_bytes + v->encode_patch_bytes * patches, (uint64_t)UNIT_BYTES);
}

void vision_encoder_cost(const struct config *c, struct model_vision *ret)
{
    const struct vision_config *v = &c->vision;
    const uint64_t patches = PAGE_TOKENS * ALIGN; /* enough that no array is rounded */
    uint64_t fixed = image_bytes(c, 0, 0);
    ret->encode_patch_bytes = DIV_UP(image_bytes(c, patches, patches) - fixed, patches);
    /* A last page that is not full, and the rounding of each array. */
    ret->encode_fixed_bytes = fixed + (uint64_t)PAGE_TOKENS * 2 * v->hidden * sizeof(float) + 8 * ALIGN;
}

/* Commits `bytes` of the encoder's memory. Errors are those of vision_encoder_begin(). */
static int commit(struct vision_encoder *e, uint64_t bytes)
{
    uint32_t had = units_committed(e->units), wanted = (uint32_t)DIV_UP(bytes, (uint64_t)UNIT_SMALL_BYTES);
    ASSERT(wanted <= units_max(e->units));
    if (had >= wanted)
        return 0;
    const uint64_t refused = units_refused(e->units);
    if (unit_commit(e->units, had) < 0)
        return units_refused(e->units) > refused ? -ENOBUFS : -ENOMEM;
    return had + 1 < wanted;
}

bool vision_encoder_trim(struct vision_encoder *e)
{
    ASSERT(!e->busy);
    uint32_t count = e->units ? units_committed(e->units) : 0;
    uint32_t end = count > RELAX_UNITS ? count - RELAX_UNITS : 0;
    while (count > end && unit_decommit(e->units, count - 1) == 0)
        count--;
    return count == end && count > 0;
}

/* ---- creation ---- */

static void add_pass(struct vision_encoder *e, enum vision_encoder_sequence s, uint32_t block,
                     uint32_t feature)
{
    ASSERT(e->pass_count < ENCODER_PASSES_MAX);
    e->passes[e->pass_count++] = (struct vision_encoder_pass){(uint8_t)s, (uint8_t)feature, (uint16_t)block};
}

static void list_passes(struct vision_encoder *e)
{
    const struct vision_config *v = e->config;
    uint32_t deep = 0;
    add_pass(e, ENCODER_EMBED, 0, 0);
    for (uint32_t b = 0; b < v->depth; b++) {
        add_pass(e, ENCODER_KEYS, b, 0);
        add_pass(e, ENCODER_MIX, b, 0);
        if (deep < v->deepstack_count && v->deepstack[deep] == b)
            add_pass(e, ENCODER_MERGE, b, ++deep);
    }
    add_pass(e, ENCODER_MERGE, 0, 0);
}

/* Without an account of the caller's: one that counts for nobody. */
static int open_uncounted(struct vision_encoder *e, const struct domain *domain, struct account **ret)
{
    int r = ledger_create(ACCOUNT_NO_LIMIT, &e->uncounted);
    if (r == 0 && domain != domain_machine())
        r = ledger_open_root(e->uncounted, domain, ACCOUNT_NO_LIMIT, &e->uncounted_root);
    if (r == 0)
        *ret = ledger_root_of(e->uncounted, domain);
    return r;
}

static int open_memory(struct vision_encoder *e, const struct config *c, const struct domain *domain,
                       struct account *parent)
{
    struct model_shape shape = {.vision = c->vision.shape};
    vision_encoder_cost(c, &shape.vision);
    uint64_t bytes = model_encode_bytes(&shape, shape.vision.pixels_max);
    int r = parent ? 0 : open_uncounted(e, domain, &parent);
    if (r == 0)
        r = accounts_open(parent, ACCOUNT_VISION, ACCOUNT_NO_LIMIT, &e->account);
    if (r < 0)
        return r;
    account_set_planned(e->account, bytes);
    return units_create(e->account, UNIT_SMALL_BYTES, (uint32_t)(bytes / UNIT_SMALL_BYTES), &e->units);
}

int vision_encoder_init(struct vision_encoder *e, const struct config *c, const struct vision_weights *t,
                        struct compute *compute, const struct domain *domain, struct account *parent)
{
    e->backend = c->backend;
    e->config = &c->vision;
    e->weights = t;
    e->compute = compute;
    e->shape = shape_of(c);
    list_passes(e);
    return open_memory(e, c, domain, parent);
}

void vision_encoder_done(struct vision_encoder *e)
{
    if (e->units && units_free(e->units) < 0)
        units_abandon(e->units);
    account_close(e->account);
    account_close(e->uncounted_root);
    ledger_free(e->uncounted);
    *e = (struct vision_encoder){0};
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
    a.by_token = true;
    a.from /= token_patches(e);
    a.count /= token_patches(e);
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

static struct op_encode norming(struct op_encode a, const struct vision_norm *n, struct encode_rows x,
                                struct encode_rows y, const struct projection *reader)
{
    a.reader = reader;
    a.norm_weight = n->weight;
    a.norm_bias = n->bias;
    a.x = x;
    a.y = y;
    return a;
}

/* h += y and bias; x = norm of h. */
static struct op_encode mixing(const struct vision_encoder *e, const struct vision_block *b)
{
    struct op_encode a = changing(of_rows(e, ENCODE_ADD_NORM, e->config->hidden), e->a.y, &b->out);
    a.norm_weight = b->mlp.weight;
    a.norm_bias = b->mlp.bias;
    a.y = stream_now(e);
    a.z = e->a.x;
    a.reader = &b->up.w;
    return a;
}

static struct op_encode placing(const struct vision_encoder *e)
{
    struct op_encode a = of_rows(e, ENCODE_POSITIONS, e->config->hidden);
    a.y = stream_now(e);
    a.w = &e->weights->positions;
    a.bias = e->weights->patches.bias;
    a.grid = e->config->grid;
    return a;
}

/* A norm is over a patch's values, in DeepStack over the token's. */
static struct op_encode gathering(const struct vision_encoder *e)
{
    const struct vision_merger *m = merger_now(e);
    struct op_encode a = norming(of_tokens(e, ENCODE_NORM, vision_merged(e->config)), &m->norm, tokens_now(e),
                                 e->a.merged, &m->up.w);
    a.norm_parts = m == &e->weights->merger ? token_patches(e) : 1;
    return a;
}

static struct op_encode op_of(const struct vision_encoder *e, enum op op)
{
    const struct vision_config *v = e->config;
    const struct vision_block *b = block_now(e);
    const struct vision_merger *m = merger_now(e);
    const struct vision_encoder_pass *pass = &e->passes[e->pass];
    const struct op_encode rows = of_rows(e, ENCODE_PROJECT, 0), tokens = of_tokens(e, ENCODE_PROJECT, 0);
    struct op_encode a;
    switch (op) {
    case OP_TABLES:
        return of_rows(e, ENCODE_TABLES, 0);
    case OP_PIXELS:
        a = of_rows(e, ENCODE_PIXELS, vision_patch_values(v));
        a.y = e->a.mid;
        a.reader = &e->weights->patches.w;
        return a;
    case OP_EMBED:
        return product(rows, &e->weights->patches, e->a.mid, stream_now(e));
    case OP_POSITIONS:
        return placing(e);
    case OP_NORM:
        return norming(of_rows(e, ENCODE_NORM, v->hidden), &b->mix, stream_now(e), e->a.x,
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
        return a;
    case OP_OUT:
        return product(rows, &b->out, e->a.x, e->a.y);
    case OP_MIX:
        return mixing(e, b);
    case OP_UP:
        return product(rows, &b->up, e->a.x, e->a.mid);
    case OP_GELU:
        a = changing(of_rows(e, ENCODE_GELU, v->intermediate), e->a.mid, &b->up);
        a.reader = &b->down.w;
        return a;
    case OP_DOWN:
        return product(rows, &b->down, e->a.mid, e->a.y);
    case OP_ADD:
        a = changing(of_rows(e, ENCODE_ADD, v->hidden), e->a.y, &b->down);
        a.y = stream_now(e);
        return a;
    case OP_GATHER:
        return gathering(e);
    case OP_MERGE_UP:
        return product(tokens, &m->up, e->a.merged, e->a.merged_mid);
    case OP_MERGE_GELU:
        a = changing(of_tokens(e, ENCODE_GELU_ERF, vision_merged(v)), e->a.merged_mid, &m->up);
        a.reader = &m->down.w;
        return a;
    case OP_MERGE_DOWN:
        return product(tokens, &m->down, e->a.merged_mid, features_now(e));
    case OP_FEATURE:
        return changing(of_tokens(e, ENCODE_BIAS, v->out), features_now(e), &m->down);
    }
    ASSERT(false);
    return rows;
}

/* ---- an image ---- */

int vision_encoder_begin(struct vision_encoder *e, const struct model_image *p)
{
    const struct model_vision *s = &e->config->shape;
    uint32_t cell = s->patch * s->merge, rows = p->height / s->patch, columns = p->width / s->patch;
    ASSERT(!e->busy && p->width > 0 && p->height > 0 && p->width % cell == 0 && p->height % cell == 0 &&
           (uint64_t)p->width * p->height <= s->pixels_max);
    struct vision_encoder_arrays a;
    const dev_ptr base = units_base(e->units);
    uint64_t patches = (uint64_t)rows * columns;
    e->shape.slice_max = slice_patches(e->backend, e->config, patches);
    uint64_t own_at = lay_out(e->backend, e->config, &e->shape, base, patches, &a);
    int r = commit(e, own_at + e->backend->encode_bytes(&e->shape, patches, MAX_OF(rows, columns)));
    if (r != 0)
        return r;
    e->shape.channels_last = e->weights->channels_last;
    e->a = a;
    e->features = p->features;
    e->image = (struct encode_image){.shape = &e->shape,
                                     .frames = {p->frames[0], p->frames[1]},
                                     .width = p->width,
                                     .rows = rows,
                                     .columns = columns,
                                     .own = dev_add(base, own_at)};
    e->patches = rows * columns;
    e->slices = DIV_UP(e->patches, e->shape.slice_max);
    e->pass = e->slice = e->stage = e->at = 0;
    e->busy = true;
    const struct op_encode tables = op_of(e, OP_TABLES);
    uint32_t at = 0;
    while (!compute_encode(e->compute, &tables, &at))
        continue;
    return 0;
}

void vision_encoder_stop(struct vision_encoder *e)
{
    e->busy = false;
}

/* To the next operation, slice, pass; false at the end. */
static bool advance(struct vision_encoder *e)
{
    e->at = 0;
    if (++e->stage < sequences[e->passes[e->pass].sequence].count)
        return true;
    e->stage = 0;
    if (++e->slice < e->slices)
        return true;
    e->slice = 0;
    return ++e->pass < e->pass_count;
}

/* True: that was the last one. */
static bool run_piece(struct vision_encoder *e)
{
    const struct op_encode op = op_of(e, (enum op)sequences[e->passes[e->pass].sequence].ops[e->stage]);
    return compute_encode(e->compute, &op, &e->at) && !advance(e);
}

bool vision_encoder_run(struct vision_encoder *e, uint64_t deadline_ns)
{
    ASSERT(e->busy);
    do {
        if (run_piece(e)) {
            e->busy = false;
            return true;
        }
    } while (clock_now_ns() < deadline_ns);
    return false;
}
