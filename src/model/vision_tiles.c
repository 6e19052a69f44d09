/* vision_tiles.c - the stages' arithmetic, tile by tile.
 *
 * There are two kinds of tiles. Tiles of rows are a page's worth of patches, or the tokens of that many
 * patches. Tiles of a product are rectangles: panels of its matrix times a block of columns. Both have a
 * fixed size, independent of other work. */
#include "model/vision_encoder.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

#define ROW_TILE     PAGE_TOKENS /* patches; two tiles never write into one page */
#define COLUMN_BLOCK 64u
#define QUERY_BLOCK  64u
#define TILE_COST    ((uint64_t)4 << 20)

static const struct vision_block *block_now(const struct vision_encoder *e)
{
    return &e->weights->blocks[e->passes[e->pass].block];
}

static const struct vision_merger *merger_now(const struct vision_encoder *e)
{
    uint32_t feature = e->passes[e->pass].feature;
    return feature == 0 ? &e->weights->merger : &e->weights->deepstack[feature - 1];
}

static uint32_t slice_from(const struct vision_encoder *e)
{
    return e->slice * e->slice_max;
}

static uint32_t slice_count(const struct vision_encoder *e)
{
    return MIN_OF(e->patches - slice_from(e), e->slice_max);
}

static uint32_t token_patches(const struct vision_encoder *e)
{
    return e->config->shape.merge * e->config->shape.merge;
}

static float *h_of(const struct vision_encoder *e, uint32_t patch)
{
    return e->a.h + (size_t)patch * e->config->hidden;
}

/* Patches of the slice that belong to tile `tile` of rows. */
struct span {
    uint32_t from, to;
};

static struct span row_span(const struct vision_encoder *e, uint32_t tile)
{
    return (struct span){tile * ROW_TILE, MIN_OF((tile + 1) * ROW_TILE, slice_count(e))};
}

/* Tokens of the slice that belong to the tile. */
static struct span token_span(const struct vision_encoder *e, uint32_t tile)
{
    uint32_t each = DIV_UP(ROW_TILE, token_patches(e)), all = slice_count(e) / token_patches(e);
    return (struct span){tile * each, MIN_OF((tile + 1) * each, all)};
}

/* ---- the image's patches ---- */

struct place {
    uint32_t row, column;
};

/* Patches go token by token, and within one row by row: each run of merge * merge is a token. */
static struct place place_of(const struct vision_encoder *e, uint32_t patch)
{
    uint32_t m = e->config->shape.merge, per_row = e->columns / m;
    uint32_t token = patch / (m * m), within = patch % (m * m);
    return (struct place){token / per_row * m + within / m, token % per_row * m + within % m};
}

static void read_patch(const struct vision_encoder *e, uint32_t patch, float *ret)
{
    struct place at = place_of(e, patch);
    uint32_t size = e->config->shape.patch;
    bool last = e->weights->channels_last;
    size_t plane = (size_t)size * size;
    for (uint32_t f = 0; f < VISION_FRAMES; f++) {
        for (uint32_t y = 0; y < size; y++) {
            const uint8_t *p = e->image.frames[f] +
                               (((size_t)at.row * size + y) * e->image.width + (size_t)at.column * size) * 3;
            for (uint32_t x = 0; x < size; x++) {
                for (uint32_t c = 0; c < VISION_CHANNELS; c++) {
                    size_t i = last ? (f * plane + y * size + x) * VISION_CHANNELS + c
                                    : (c * VISION_FRAMES + f) * plane + y * size + x;
                    ret[i] = e->a.levels[c * 256 + p[x * VISION_CHANNELS + c]];
                }
            }
        }
    }
}

static void pixels_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++)
        read_patch(e, slice_from(e) + i, e->a.mid + (size_t)i * e->mid_stride);
}

/* Where a row or column of `count` falls on the table's edge of `grid`: between `low` and `high`, by
 * `part`. */
struct between {
    uint32_t low, high;
    float part;
};

static struct between between(uint32_t index, uint32_t count, uint32_t grid)
{
    double at = count > 1 ? (double)index * (grid - 1) / (count - 1) : 0;
    uint32_t low = (uint32_t)at;
    return (struct between){low, MIN_OF(low + 1, grid - 1), (float)(at - low)};
}

static void add_position(const struct vision_encoder *e, struct place p, float *h, float *row)
{
    uint32_t grid = e->config->grid, n = e->config->hidden;
    struct between r = between(p.row, e->rows, grid), c = between(p.column, e->columns, grid);
    const struct {
        uint32_t index;
        float weight;
    } corners[] = {{r.low * grid + c.low, (1 - r.part) * (1 - c.part)},
                   {r.low * grid + c.high, (1 - r.part) * c.part},
                   {r.high * grid + c.low, r.part * (1 - c.part)},
                   {r.high * grid + c.high, r.part * c.part}};
    for (size_t i = 0; i < COUNT_OF(corners); i++) {
        matrix_row(&e->weights->positions.parts[0], corners[i].index, row);
        e->cpu->ops->add_scaled(h, row, corners[i].weight, n);
    }
}

/* A worker's own floats: at least a patch's values. */
static float *own_floats(const struct vision_encoder *e, uint32_t worker)
{
    _Static_assert(VISION_HIDDEN_MAX <= KERN_ATTN_SCRATCH, "a row of positions must fit");
    return e->cpu->attention_scratch + (size_t)worker * KERN_ATTN_SCRATCH;
}

static void place_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    for (uint32_t i = s.from; i < s.to; i++) {
        uint32_t patch = slice_from(e) + i;
        e->cpu->ops->add(h_of(e, patch), cpu_floats(e->weights->patches.bias), e->config->hidden);
        add_position(e, place_of(e, patch), h_of(e, patch), own_floats(e, worker));
    }
}

/* ---- rows of a block ---- */

static void norm(const struct vision_encoder *e, float *y, const float *x, const struct vision_norm *n,
                 uint32_t count)
{
    e->cpu->ops->layernorm(y, x, cpu_floats(n->weight), cpu_floats(n->bias), count, 1e-6f);
}

static void norm_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++)
        norm(e, e->a.x + (size_t)i * e->x_stride, h_of(e, slice_from(e) + i), &block_now(e)->mix,
             e->config->hidden);
}

/* Rotates all heads of one patch's queries or keys. */
static void rotate(const struct vision_encoder *e, float *heads, uint32_t patch)
{
    const struct vision_config *v = e->config;
    uint32_t quarter = v->head_dim / 4;
    float cosines[CONFIG_HEAD_DIM_MAX / 2], sines[CONFIG_HEAD_DIM_MAX / 2];
    struct place p = place_of(e, patch);
    const uint32_t at[2] = {p.row, p.column};
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(cosines + i * quarter, e->a.cosines + (size_t)at[i] * quarter, quarter * sizeof(float));
        memcpy(sines + i * quarter, e->a.sines + (size_t)at[i] * quarter, quarter * sizeof(float));
    }
    for (uint32_t head = 0; head < v->heads; head++)
        e->cpu->ops->rope(heads + (size_t)head * v->head_dim, cosines, sines, 2 * quarter);
}

static struct kern_kv kv_of(const struct vision_encoder *e, uint32_t head)
{
    uint32_t head_dim = e->config->head_dim;
    size_t half = (size_t)head_dim * PAGE_TOKENS * sizeof(float);
    return (struct kern_kv){.base = e->a.kv + head * e->page_count * 2 * half,
                            .page_bytes = 2 * half,
                            .pages = e->a.pages,
                            .k_offset = 0,
                            .v_offset = half,
                            .head_dim = head_dim};
}

static void keys_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    const struct vision_config *v = e->config;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *k = e->a.y + (size_t)i * e->y_stride;
        e->cpu->ops->add(k, cpu_floats(block_now(e)->key_value.bias), 2 * v->hidden);
        rotate(e, k, slice_from(e) + i);
        for (uint32_t head = 0; head < v->heads; head++) {
            struct kern_kv kv = kv_of(e, head);
            const float *at = k + (size_t)head * v->head_dim;
            e->cpu->ops->kv_put(&kv, slice_from(e) + i, at, at + v->hidden);
        }
    }
}

static void queries_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *q = e->a.y + (size_t)i * e->y_stride;
        e->cpu->ops->add(q, cpu_floats(block_now(e)->query.bias), e->config->hidden);
        rotate(e, q, slice_from(e) + i);
    }
}

static uint32_t range_keys(const struct vision_encoder *e)
{
    uint64_t segment = (uint64_t)2 * QUERY_BLOCK * KERN_SEGMENT_TOKENS * e->config->head_dim;
    return (uint32_t)DIV_UP(TILE_COST, segment) * KERN_SEGMENT_TOKENS;
}

uint32_t vision_encoder_ranges(const struct vision_encoder *e)
{
    return DIV_UP(e->patches, range_keys(e));
}

/* Tile: a head, a block of the slice's patches. */
static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    const struct vision_config *v = e->config;
    _Static_assert(QUERY_BLOCK <= CPU_QUERIES_MAX, "a worker has room for a block of queries");
    uint32_t blocks = DIV_UP(slice_count(e), QUERY_BLOCK), head = tile / blocks;
    uint32_t from = tile % blocks * QUERY_BLOCK, to = MIN_OF(from + QUERY_BLOCK, slice_count(e));
    struct kern_query *queries = e->cpu->queries + (size_t)worker * CPU_QUERIES_MAX;
    struct kern_kv kv = kv_of(e, head);
    size_t carry = (size_t)head * e->slice_max + from;
    for (uint32_t i = from; i < to; i++)
        queries[i - from] =
            (struct kern_query){.q = e->a.y + (size_t)i * e->y_stride + (size_t)head * v->head_dim,
                                .out = e->a.x + (size_t)i * e->x_stride + (size_t)head * v->head_dim,
                                .kv_len = e->patches};
    e->cpu->ops->attn_part(&kv, queries, to - from, e->range * range_keys(e), (e->range + 1) * range_keys(e),
                           (float)(1 / sqrt((double)v->head_dim)), e->a.max + carry, e->a.sum + carry,
                           own_floats(e, worker));
}

/* h += y + bias. */
static void add_row(const struct vision_encoder *e, uint32_t i, const float *bias)
{
    float *y = e->a.y + (size_t)i * e->y_stride;
    e->cpu->ops->add(y, bias, e->config->hidden);
    e->cpu->ops->add(h_of(e, slice_from(e) + i), y, e->config->hidden);
}

static void mix_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    const struct vision_block *b = block_now(e);
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        add_row(e, i, cpu_floats(b->out.bias));
        norm(e, e->a.x + (size_t)i * e->x_stride, h_of(e, slice_from(e) + i), &b->mlp, e->config->hidden);
    }
}

static void gelu_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *m = e->a.mid + (size_t)i * e->mid_stride;
        e->cpu->ops->add(m, cpu_floats(block_now(e)->up.bias), e->config->intermediate);
        e->cpu->ops->gelu_tanh(m, m, e->config->intermediate);
    }
}

static void add_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = row_span(e, tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++)
        add_row(e, i, cpu_floats(block_now(e)->down.bias));
}

/* ---- rows of a merger: a token's patches lie side by side ---- */

static void gather_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    const struct vision_merger *m = merger_now(e);
    uint32_t each = token_patches(e), hidden = e->config->hidden;
    struct span s = token_span(e, tile);
    (void)worker;
    for (uint32_t t = s.from; t < s.to; t++) {
        float *x = e->a.x + (size_t)t * e->merged_stride;
        const float *h = h_of(e, slice_from(e) + t * each);
        if (m != &e->weights->merger) {
            norm(e, x, h, &m->norm, each * hidden);
            continue;
        }
        for (uint32_t i = 0; i < each; i++)
            norm(e, x + (size_t)i * hidden, h + (size_t)i * hidden, &m->norm, hidden);
    }
}

static void merge_gelu_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = token_span(e, tile);
    (void)worker;
    for (uint32_t t = s.from; t < s.to; t++) {
        float *m = e->a.mid + (size_t)t * e->merged_stride;
        e->cpu->ops->add(m, cpu_floats(merger_now(e)->up.bias), vision_merged(e->config));
        e->cpu->ops->gelu_erf(m, m, vision_merged(e->config));
    }
}

static float *feature_of(const struct vision_encoder *e, uint32_t token)
{
    size_t first = slice_from(e) / token_patches(e);
    return e->image.features + (first + token) * e->config->shape.feature_floats +
           (size_t)e->passes[e->pass].feature * e->config->out;
}

static void feature_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    struct span s = token_span(e, tile);
    (void)worker;
    for (uint32_t t = s.from; t < s.to; t++)
        e->cpu->ops->add(feature_of(e, t), cpu_floats(merger_now(e)->down.bias), e->config->out);
}

/* ---- products ---- */

/* y[column] = matrix . x[column] for the slice's patches, or its tokens. */
struct product {
    const struct vision_linear *linear;
    uint32_t count;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
};

static struct product product_of(const struct vision_encoder *e, enum vision_encoder_op op)
{
    const struct vision_encoder_arrays *a = &e->a;
    const struct vision_block *b = block_now(e);
    const struct vision_merger *m = merger_now(e);
    uint32_t n = slice_count(e), tokens = n / token_patches(e);
    switch (op) {
    case OP_EMBED:
        return (struct product){&e->weights->patches, n, a->mid, e->mid_stride, h_of(e, slice_from(e)),
                                e->config->hidden};
    case OP_KEY_VALUE:
        return (struct product){&b->key_value, n, a->x, e->x_stride, a->y, e->y_stride};
    case OP_QUERY:
        return (struct product){&b->query, n, a->x, e->x_stride, a->y, e->y_stride};
    case OP_OUT:
        return (struct product){&b->out, n, a->x, e->x_stride, a->y, e->y_stride};
    case OP_UP:
        return (struct product){&b->up, n, a->x, e->x_stride, a->mid, e->mid_stride};
    case OP_DOWN:
        return (struct product){&b->down, n, a->mid, e->mid_stride, a->y, e->y_stride};
    case OP_MERGE_UP:
        return (struct product){&m->up, tokens, a->x, e->merged_stride, a->mid, e->merged_stride};
    default:
        ASSERT(op == OP_MERGE_DOWN);
        return (struct product){&m->down,         tokens,           a->mid,
                                e->merged_stride, feature_of(e, 0), e->config->shape.feature_floats};
    }
}

/* Panels of a tile: two at least, for kernels take two at a time. */
static uint32_t tile_panels(const struct matrix *m)
{
    return MAX_OF((uint32_t)(TILE_COST / (COLUMN_BLOCK * MATRIX_PANEL * (uint64_t)m->k)) & ~1u, 2);
}

static const struct matrix *matrix_of(const struct product *p)
{
    ASSERT(p->linear->w.part_count == 1);
    return &p->linear->w.parts[0];
}

/* Blocks of columns change fastest: they share the panels. */
static void product_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct vision_encoder *e = arg;
    const struct product p = product_of(e, (enum vision_encoder_op)e->op);
    const struct matrix *m = matrix_of(&p);
    uint32_t blocks = DIV_UP(p.count, COLUMN_BLOCK), step = tile_panels(m);
    uint32_t panel = tile / blocks * step, column = tile % blocks * COLUMN_BLOCK;
    struct kern_columns c = {.count = MIN_OF(COLUMN_BLOCK, p.count - column),
                             .x = e->a.column_x + column,
                             .xsum = e->a.column_sums + column,
                             .y = e->a.column_y + column};
    (void)worker;
    e->cpu->ops->matmul(m, &c, panel, MIN_OF(panel + step, matrix_panels(m)));
}

/* Columns, and where the matrix is quantised their group sums. */
static void set_columns(struct vision_encoder *e, const struct product *p)
{
    const struct matrix *m = matrix_of(p);
    for (uint32_t i = 0; i < p->count; i++) {
        const float *x = p->x + i * p->x_stride;
        float *sums = e->a.sums + (size_t)i * e->sums_stride;
        e->a.column_x[i] = x;
        e->a.column_y[i] = p->y + i * p->y_stride;
        e->a.column_sums[i] = sums;
        if (m->form == MATRIX_AFFINE)
            e->cpu->ops->group_sums(sums, x, m->k, m->group);
    }
}

static struct vision_encoder_stage product_stage(struct vision_encoder *e, enum vision_encoder_op op)
{
    struct product p = product_of(e, op);
    const struct matrix *m = matrix_of(&p);
    uint32_t panels = tile_panels(m);
    e->op = (uint8_t)op;
    if (e->tile == 0)
        set_columns(e, &p);
    return (struct vision_encoder_stage){product_tile,
                                         DIV_UP(matrix_panels(m), panels) * DIV_UP(p.count, COLUMN_BLOCK),
                                         (uint64_t)COLUMN_BLOCK * MATRIX_PANEL * panels * m->k};
}

/* ---- stages ---- */

/* A stage over rows of `values` values, each of which takes the time of `each` multiply-adds. */
static struct vision_encoder_stage row_stage(const struct vision_encoder *e, workers_fn *fn, uint32_t values,
                                             uint32_t each)
{
    return (struct vision_encoder_stage){fn, DIV_UP(slice_count(e), ROW_TILE),
                                         (uint64_t)ROW_TILE * values * each};
}

static struct vision_encoder_stage token_stage(const struct vision_encoder *e, workers_fn *fn, uint32_t each)
{
    uint32_t per_tile = DIV_UP(ROW_TILE, token_patches(e)), tokens = slice_count(e) / token_patches(e);
    return (struct vision_encoder_stage){fn, DIV_UP(tokens, per_tile),
                                         (uint64_t)per_tile * vision_merged(e->config) * each};
}

static struct vision_encoder_stage attend_stage(const struct vision_encoder *e)
{
    return (struct vision_encoder_stage){attend_tile, DIV_UP(slice_count(e), QUERY_BLOCK) * e->config->heads,
                                         (uint64_t)2 * QUERY_BLOCK * range_keys(e) * e->config->head_dim};
}

struct vision_encoder_stage vision_encoder_stage(struct vision_encoder *e, enum vision_encoder_op op)
{
    const struct vision_config *v = e->config;
    switch (op) {
    case OP_PIXELS:
        return row_stage(e, pixels_tile, vision_patch_values(v), 32);
    case OP_PLACE:
        return row_stage(e, place_tile, v->hidden, 256);
    case OP_NORM:
        return row_stage(e, norm_tile, v->hidden, 8);
    case OP_KEYS:
        return row_stage(e, keys_tile, v->hidden, 64);
    case OP_QUERIES:
        return row_stage(e, queries_tile, v->hidden, 16);
    case OP_ATTEND:
        return attend_stage(e);
    case OP_MIX:
        return row_stage(e, mix_tile, v->hidden, 16);
    case OP_GELU:
        return row_stage(e, gelu_tile, v->intermediate, 32);
    case OP_ADD:
        return row_stage(e, add_tile, v->hidden, 8);
    case OP_GATHER:
        return token_stage(e, gather_tile, 8);
    case OP_MERGE_GELU:
        return token_stage(e, merge_gelu_tile, 32);
    case OP_FEATURE:
        return token_stage(e, feature_tile, 4);
    default:
        return product_stage(e, op);
    }
}
