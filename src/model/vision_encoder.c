/* vision_encoder.c - memory, and the order of the work.
 *
 * The memory is one range of units, laid out anew for each image. Arrays begin at its start, so units that
 * only a larger image needed can go one by one from the end. A still image comes as the same frame twice and
 * meets both halves of the patch embedding. Adding the halves' weights beforehand would save a thousandth of
 * the work and change the sums. */
#include "model/vision_encoder.h"

#include "model/config/config.h"
#include "model/family/vision_family.h"
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
    const bool class_row = v->family->tensors[VISION_ROLE_CLASS] != NULL;
    uint64_t most = DIV_UP(v->shape.pixels_max, (uint64_t)v->shape.patch * v->shape.patch) + class_row;
    struct encode_shape s = {.hidden = v->hidden,
                             .heads = v->depth > 0 ? v->heads : 0,
                             .head_dim = v->head_dim,
                             .patch = v->shape.patch,
                             .merge = v->shape.merge,
                             .frames = v->frames,
                             .window = v->window,
                             .class_row = class_row,
                             .rotation = v->family->rotation,
                             .positions = v->family->positions,
                             .plain_scores = v->family->plain_scores,
                             .slice_max = slice_patches(c->backend, v, most),
                             .read_max = vision_read_max(v),
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
    const bool proj = v->family->tensors[VISION_ROLE_MERGE_PROJ];
    a->merged =
        b->encode_rows(a->x.at, MAX_OF(vision_merged(v), v->window > 0 || proj ? v->out : 0), true, s->sums);
    used += MAX_OF(rows_bytes(&a->x, n), rows_bytes(&a->merged, tokens));
    a->y = b->encode_rows(dev_add(base, used), v->depth > 0 ? 2 * v->hidden : 0, false, s->sums);
    a->squeezed = b->encode_rows(a->y.at, vision_squeezed(v), true, s->sums);
    used += MAX_OF(rows_bytes(&a->y, n), rows_bytes(&a->squeezed, tokens));
    const uint32_t mid = (v->gated ? 2 : 1) * v->intermediate;
    a->mid = b->encode_rows(dev_add(base, used), MAX_OF(mid, vision_patch_values(v)), true, s->sums);
    const bool gate = v->family->tensors[VISION_ROLE_MERGE_GATE];
    a->merged_mid = b->encode_rows(a->mid.at, (gate ? 2 : 1) * v->merge_mid, true, s->sums);
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
    const uint64_t kept = v->depth > 0 ? 2 * v->hidden : 0; /* a patch's keys and values */
    ret->encode_fixed_bytes = fixed + PAGE_TOKENS * kept * sizeof(float) + 8 * ALIGN;
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

/* Opens an uncounted account where the caller has none. */
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
    vision_ops_list(e->config, e->lists);
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

/* ---- an image ---- */

int vision_encoder_begin(struct vision_encoder *e, const struct model_image *p)
{
    const struct model_vision *s = &e->config->shape;
    uint32_t cell = s->patch * s->merge, rows = p->height / s->patch, columns = p->width / s->patch;
    ASSERT(!e->busy && p->width > 0 && p->height > 0 && p->width % cell == 0 && p->height % cell == 0 &&
           (uint64_t)p->width * p->height <= s->pixels_max);
    struct vision_encoder_arrays a;
    const dev_ptr base = units_base(e->units);
    const uint64_t patches = (uint64_t)rows * columns + e->shape.class_row;
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
    e->patches = (uint32_t)patches;
    e->slices = DIV_UP(e->patches, e->shape.slice_max);
    e->pass = e->slice = e->stage = e->at = 0;
    e->busy = true;
    const struct op_encode tables = vision_ops_tables(e);
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
    if (++e->stage < e->lists[e->passes[e->pass].sequence].count)
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
    const struct op_encode op = vision_ops_now(e);
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
