/* vision_encoder.c - memory, and the order of the work.
 *
 * The memory is one range of units, laid out anew for each image. Arrays begin at its start, so units that
 * only a larger image needed can go one by one from the end. A still image comes as the same frame twice and
 * meets both halves of the patch embedding. Adding the halves' weights beforehand would save a thousandth of
 * the work and change the sums. */
#include "model/vision_encoder.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>

#define ALIGN 64u
/* Given back in one call. */
#define RELAX_UNITS ((uint32_t)(UNIT_BYTES / UNIT_SMALL_BYTES))
/* Patches whose intermediate values stay in the second cache, and enough to read weights for. */
#define SLICE_WISH 256u
/* Multiply-adds of one worker in one piece: 0.2 ms with AVX-512, 0.6 ms with AVX2. */
#define PIECE_COST ((uint64_t)16 << 20)

static const uint8_t embed_ops[] = {OP_PIXELS, OP_EMBED, OP_PLACE};
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

/* Slices hold whole tokens and whole pages. */
static uint32_t slice_of_config(const struct vision_config *v)
{
    uint32_t unit = v->shape.merge * v->shape.merge * PAGE_TOKENS;
    return MAX_OF(SLICE_WISH / unit * unit, unit);
}

static void set_strides(struct vision_encoder *e, const struct vision_config *v)
{
    uint32_t mid = MAX_OF(v->intermediate, vision_patch_values(v));
    e->config = v;
    e->slice_max = slice_of_config(v);
    e->x_stride = cpu_row_stride(v->hidden);
    e->y_stride = cpu_row_stride(2 * v->hidden);
    e->mid_stride = cpu_row_stride(mid);
    e->merged_stride = cpu_row_stride(vision_merged(v));
    e->sums_stride = cpu_sums_floats(MAX_OF(mid, vision_merged(v)));
}

struct room {
    char *base; /* NULL while measuring */
    uint64_t used;
};

static void *take(struct room *r, uint64_t bytes)
{
    void *at = r->base ? r->base + r->used : NULL;
    r->used += ROUND_UP(bytes, (uint64_t)ALIGN);
    return at;
}

static float *take_floats(struct room *r, uint64_t count)
{
    return take(r, count * sizeof(float));
}

/* Memory of an image with this many patches and this longer edge. */
static void lay_out_image(const struct vision_encoder *e, struct room *r, uint64_t patches, uint64_t edge,
                          struct vision_encoder_arrays *a)
{
    const struct vision_config *v = e->config;
    uint64_t pages = DIV_UP(patches, (uint64_t)PAGE_TOKENS);
    a->h = take_floats(r, patches * v->hidden);
    a->kv = take(r, pages * PAGE_TOKENS * 2 * v->hidden * sizeof(float));
    a->pages = take(r, pages * sizeof(uint32_t));
    a->cosines = take_floats(r, edge * (v->head_dim / 4));
    a->sines = take_floats(r, edge * (v->head_dim / 4));
}

static void lay_out_slice(const struct vision_encoder *e, struct room *r, struct vision_encoder_arrays *a)
{
    const struct vision_config *v = e->config;
    uint64_t n = e->slice_max, tokens = n / (v->shape.merge * v->shape.merge);
    a->levels = take_floats(r, VISION_CHANNELS * 256);
    a->x = take_floats(r, MAX_OF(n * e->x_stride, tokens * e->merged_stride));
    a->y = take_floats(r, n * e->y_stride);
    a->mid = take_floats(r, MAX_OF(n * e->mid_stride, tokens * e->merged_stride));
    a->max = take_floats(r, n * v->heads);
    a->sum = take_floats(r, n * v->heads);
    a->sums = take_floats(r, n * e->sums_stride);
    a->column_x = take(r, n * sizeof(float *));
    a->column_sums = take(r, n * sizeof(float *));
    a->column_y = take(r, n * sizeof(float *));
}

uint64_t model_encode_bytes(const struct model_shape *s, uint64_t pixels)
{
    const struct model_vision *v = &s->vision;
    if (!v->present)
        return 0;
    uint64_t patches = DIV_UP(pixels, (uint64_t)v->patch * v->patch);
    return ROUND_UP(v->encode_fixed_bytes + v->encode_patch_bytes * patches, (uint64_t)UNIT_BYTES);
}

uint64_t model_encode_products(const struct model_shape *s, uint64_t pixels)
{
    const struct model_vision *v = &s->vision;
    uint64_t patches = v->present ? pixels / ((uint64_t)v->patch * v->patch) : 0;
    return patches * v->patch_products + patches * patches * v->pair_products;
}

/* Per patch; a merger's product is a token's, so that of a patch is its part. */
static uint64_t patch_products(const struct vision_config *v)
{
    uint64_t n = v->hidden, merged = vision_merged(v);
    uint64_t merger = (merged * merged + merged * v->out) / (v->shape.merge * v->shape.merge);
    return vision_patch_values(v) * n + v->depth * (4 * n * n + 2 * n * v->intermediate) +
           (1 + v->deepstack_count) * merger;
}

void vision_encoder_cost(const struct vision_config *v, struct model_vision *ret)
{
    struct vision_encoder e = {0};
    struct vision_encoder_arrays a;
    struct room fixed = {0}, large = {0};
    const uint64_t patches = PAGE_TOKENS * ALIGN; /* enough that no array is rounded */
    set_strides(&e, v);
    lay_out_slice(&e, &fixed, &a);
    lay_out_image(&e, &large, patches, patches, &a);
    ret->patch_products = patch_products(v);
    ret->pair_products = (uint64_t)2 * v->depth * v->hidden;
    ret->encode_patch_bytes = DIV_UP(large.used, patches);
    /* A last page that is not full, and the rounding of each array. */
    ret->encode_fixed_bytes = fixed.used + (uint64_t)PAGE_TOKENS * 2 * v->hidden * sizeof(float) + 8 * ALIGN;
}

/* As model_encode_begin(). */
static int commit(struct vision_encoder *e, uint64_t bytes)
{
    uint32_t had = units_committed(e->units), wanted = (uint32_t)DIV_UP(bytes, (uint64_t)UNIT_SMALL_BYTES);
    ASSERT(wanted <= units_max(e->units));
    if (had >= wanted)
        return 0;
    if (unit_commit(e->units, had) < 0)
        return -ENOMEM;
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

static int open_memory(struct vision_encoder *e, struct account *parent)
{
    struct model_shape shape = {.vision = e->config->shape};
    vision_encoder_cost(e->config, &shape.vision);
    uint64_t bytes = model_encode_bytes(&shape, shape.vision.pixels_max);
    int r = parent ? 0 : ledger_create(ACCOUNT_NO_LIMIT, &e->uncounted);
    if (r == 0)
        r = account_open(parent ? parent : ledger_root(e->uncounted), "vision", ACCOUNT_ANON,
                         ACCOUNT_NO_LIMIT, &e->account);
    if (r < 0)
        return r;
    account_set_planned(e->account, bytes);
    return units_create_small(e->account, (uint32_t)(bytes / UNIT_SMALL_BYTES), &e->units);
}

int vision_encoder_init(struct vision_encoder *e, const struct config *c, const struct vision_weights *t,
                        struct compute *compute, struct account *parent)
{
    set_strides(e, &c->vision);
    e->weights = t;
    e->cpu = cpu_of(compute);
    list_passes(e);
    return open_memory(e, parent);
}

void vision_encoder_done(struct vision_encoder *e)
{
    if (e->units && units_free(e->units) < 0)
        units_abandon(e->units);
    account_close(e->account);
    ledger_free(e->uncounted);
    *e = (struct vision_encoder){0};
}

/* ---- an image ---- */

/* Angles of whole numbers: rows use the first half of a head's frequencies, columns the second, which are the
 * same. */
static void fill_angles(struct vision_encoder *e, uint32_t edge)
{
    uint32_t n = e->config->head_dim / 4;
    for (uint32_t j = 0; j < n; j++) {
        float inv = (float)pow(e->config->theta, -(double)j / n);
        for (uint32_t i = 0; i < edge; i++) {
            e->a.cosines[(size_t)i * n + j] = (float)cos((double)i * inv);
            e->a.sines[(size_t)i * n + j] = (float)sin((double)i * inv);
        }
    }
}

static void fill_levels(struct vision_encoder *e)
{
    for (uint32_t c = 0; c < VISION_CHANNELS; c++) {
        for (uint32_t i = 0; i < 256; i++)
            e->a.levels[c * 256 + i] = (float)((i / 255.0 - e->config->mean[c]) / e->config->std[c]);
    }
}

int vision_encoder_begin(struct vision_encoder *e, const struct model_image *p)
{
    const struct model_vision *s = &e->config->shape;
    uint32_t cell = s->patch * s->merge, rows = p->height / s->patch, columns = p->width / s->patch;
    ASSERT(!e->busy && p->width > 0 && p->height > 0 && p->width % cell == 0 && p->height % cell == 0 &&
           (uint64_t)p->width * p->height <= s->pixels_max);
    struct room room = {.base = units_base(e->units)};
    struct vision_encoder_arrays a;
    lay_out_slice(e, &room, &a);
    lay_out_image(e, &room, (uint64_t)rows * columns, MAX_OF(rows, columns), &a);
    int r = commit(e, room.used);
    if (r != 0)
        return r;
    e->a = a;
    e->image = *p;
    e->rows = rows;
    e->columns = columns;
    e->patches = rows * columns;
    e->slices = DIV_UP(e->patches, e->slice_max);
    e->page_count = DIV_UP(e->patches, PAGE_TOKENS);
    e->pass = e->slice = e->stage = e->range = e->tile = 0;
    e->busy = true;
    for (uint32_t i = 0; i < e->page_count; i++)
        a.pages[i] = i;
    fill_angles(e, MAX_OF(rows, columns));
    fill_levels(e);
    return 0;
}

void vision_encoder_stop(struct vision_encoder *e)
{
    e->busy = false;
}

void vision_encoder_progress(const struct vision_encoder *e, uint64_t *done, uint64_t *all)
{
    *done = e->busy ? (uint64_t)e->pass * e->slices + e->slice : 0;
    *all = e->busy ? (uint64_t)e->pass_count * e->slices : 0;
}

static enum vision_encoder_op op_now(const struct vision_encoder *e)
{
    return (enum vision_encoder_op)sequences[e->passes[e->pass].sequence].ops[e->stage];
}

/* To the next stage, slice, pass; false at the end. */
static bool advance(struct vision_encoder *e)
{
    e->tile = 0;
    if (op_now(e) == OP_ATTEND && ++e->range < vision_encoder_ranges(e))
        return true;
    e->range = 0;
    if (++e->stage < sequences[e->passes[e->pass].sequence].count)
        return true;
    e->stage = 0;
    if (++e->slice < e->slices)
        return true;
    e->slice = 0;
    return ++e->pass < e->pass_count;
}

struct piece {
    struct vision_encoder *e;
    workers_fn *fn;
};

static void piece_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct piece *p = arg;
    p->fn(p->e, p->e->tile + tile, worker);
}

/* True: that was the last one. */
static bool run_piece(struct vision_encoder *e)
{
    struct vision_encoder_stage s = vision_encoder_stage(e, op_now(e));
    struct piece p = {e, s.fn};
    uint64_t each = MAX_OF(PIECE_COST / MAX_OF(s.tile_cost, 1), 1);
    uint32_t tiles = (uint32_t)MIN_OF(each * workers_count(e->cpu->workers), s.tiles - e->tile);
    cpu_run(e->cpu, piece_tile, &p, tiles);
    e->tile += tiles;
    return e->tile == s.tiles && !advance(e);
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
