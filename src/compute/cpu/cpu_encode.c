/* cpu_encode.c - block operations of a vision encoder, tile by tile.
 *
 * There are two kinds of tiles. Tiles of rows are a page's worth of patches, or the tokens of that many
 * patches. Tiles of a product are rectangles: panels of its matrix times a block of columns. Both have a
 * fixed size, independent of other work. A piece is a few tiles, for each worker about as much work. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/cpu_positions.h"
#include "compute/encode.h"
#include "compute/rope.h"

#include <math.h>
#include <string.h>

#define ALIGN        64u
#define ROW_TILE     PAGE_TOKENS /* patches; two tiles never write into one page */
#define COLUMN_BLOCK 64u
#define QUERY_BLOCK  64u
#define TILE_COST    ((uint64_t)4 << 20)
/* Multiply-adds of one worker in one piece: 0.2 ms with AVX-512, 0.6 ms with AVX2. */
#define PIECE_COST ((uint64_t)16 << 20)

/* ---- the backend's arrays for an image ---- */

struct arrays {
    char *kv;                              /* [heads][pages] pages of one head: K transposed, V */
    uint32_t *pages;                       /* [pages]: 0, 1, 2, ... */
    float *cosines, *sines;                /* [axes][edge][head_dim / 4]: of a row, of a column */
    float *levels;                         /* [channels][256]: value of a pixel's byte */
    float *max, *sum;                      /* [heads][slice]: of attention over the keys read until now */
    const float **column_x, **column_sums; /* [slice] */
    const void **column_quants;
    float **column_y;
};

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

static uint64_t lay_out(char *base, const struct encode_shape *s, uint64_t patches, uint64_t edge,
                        struct arrays *a)
{
    struct room r = {base, 0};
    uint64_t n = s->slice_max, pages = DIV_UP(patches, (uint64_t)PAGE_TOKENS);
    a->levels = take(&r, ENCODE_CHANNELS * 256 * sizeof(float));
    a->max = take(&r, n * s->heads * sizeof(float));
    a->sum = take(&r, n * s->heads * sizeof(float));
    a->column_x = take(&r, n * sizeof(float *));
    a->column_sums = take(&r, n * sizeof(float *));
    a->column_quants = take(&r, n * sizeof(void *));
    a->column_y = take(&r, n * sizeof(float *));
    a->kv = take(&r, pages * PAGE_TOKENS * 2 * s->heads * s->head_dim * sizeof(float));
    a->pages = take(&r, pages * sizeof(uint32_t));
    a->cosines = take(&r, encode_axes(s) * edge * (s->head_dim / 4) * sizeof(float));
    a->sines = take(&r, encode_axes(s) * edge * (s->head_dim / 4) * sizeof(float));
    return r.used;
}

uint64_t cpu_encode_bytes(const struct encode_shape *s, uint64_t patches, uint64_t edge)
{
    struct arrays a;
    return lay_out(NULL, s, patches, edge, &a);
}

/* A row is read by one product at a time: its sums or its quantised row lie in the same place. */
struct encode_rows cpu_encode_rows(dev_ptr at, uint32_t width, bool read, unsigned sums)
{
    uint32_t sums_at = cpu_sums_at(width),
             beside = MAX_OF(cpu_sums_floats(sums, width), cpu_quants_floats(sums, width));
    return (struct encode_rows){at, cpu_row_stride(sums_at + (read ? beside : 0)), read ? sums_at : 0};
}

/* ---- an operation under way ---- */

struct stage {
    const struct cpu *cpu;
    const struct op_encode *op;
    struct matrix matrix; /* matrix of op->w */
    struct arrays a;
    workers_fn *fn;
    uint32_t tiles, first; /* first: of the piece */
    uint64_t tile_cost;    /* multiply-adds, about */
};

static uint32_t token_patches(const struct stage *st)
{
    return st->op->image->shape->merge * st->op->image->shape->merge;
}

static float *row_of(const struct stage *st, const struct encode_rows *rows, uint32_t row)
{
    return (float *)cpu_memory(st->cpu, rows->at) + (size_t)row * rows->stride;
}

/* Rows of the operation that belong to a tile of rows. */
struct span {
    uint32_t from, to;
};

static uint32_t tile_rows(const struct stage *st)
{
    return st->op->by_token ? DIV_UP(ROW_TILE, token_patches(st)) : ROW_TILE;
}

static struct span span_of(const struct stage *st, uint32_t tile)
{
    uint32_t each = tile_rows(st);
    return (struct span){tile * each, MIN_OF((tile + 1) * each, st->op->count)};
}

/* ---- the image's patches ---- */

struct patch_at {
    uint32_t row, column;
};

/* The window of a token, and the token's position. */
struct window_at {
    uint32_t first, count; /* its tokens */
    uint32_t row, column;
};

static struct window_at window_of(const struct encode_image *p, uint32_t token)
{
    uint32_t edge = p->shape->window, rows = p->rows / p->shape->merge,
             columns = p->columns / p->shape->merge;
    uint32_t band = token / (edge * columns), in_band = token % (edge * columns);
    uint32_t high = MIN_OF(edge, rows - band * edge), window = in_band / (high * edge);
    uint32_t wide = MIN_OF(edge, columns - window * edge), within = in_band % (high * edge);
    return (struct window_at){.first = band * edge * columns + window * high * edge,
                              .count = high * wide,
                              .row = band * edge + within / wide,
                              .column = window * edge + within % wide};
}

static struct patch_at patch_of(const struct encode_image *p, uint32_t patch)
{
    uint32_t m = p->shape->merge, per_row = p->columns / m;
    uint32_t token = patch / (m * m), within = patch % (m * m);
    struct window_at w = {.row = token / per_row, .column = token % per_row};
    if (p->shape->window > 0)
        w = window_of(p, token);
    return (struct patch_at){w.row * m + within / m, w.column * m + within % m};
}

/* A class token has no pixels. */
static void read_patch(const struct stage *st, uint32_t patch, float *ret)
{
    const struct encode_image *image = st->op->image;
    if (patch == image->rows * image->columns) {
        memset(ret, 0, st->op->width * sizeof(*ret));
        return;
    }
    struct patch_at at = patch_of(image, patch);
    uint32_t size = image->shape->patch;
    bool last = image->shape->channels_last;
    size_t plane = (size_t)size * size;
    for (uint32_t f = 0; f < image->shape->frames; f++) {
        for (uint32_t y = 0; y < size; y++) {
            const uint8_t *p = image->frames[f] +
                               (((size_t)at.row * size + y) * image->width + (size_t)at.column * size) * 3;
            for (uint32_t x = 0; x < size; x++) {
                for (uint32_t c = 0; c < ENCODE_CHANNELS; c++) {
                    size_t i = last ? (f * plane + y * size + x) * ENCODE_CHANNELS + c
                                    : (c * image->shape->frames + f) * plane + y * size + x;
                    ret[i] = st->a.levels[c * 256 + p[x * ENCODE_CHANNELS + c]];
                }
            }
        }
    }
}

static void pixels_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++)
        read_patch(st, st->op->from + i, row_of(st, &st->op->y, i));
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

/* A row of the column and one of the row. */
static void add_axes(const struct stage *st, struct patch_at p, float *h, float *row)
{
    const bool pairs = st->op->image->shape->positions == ENCODE_POSITIONS_PAIRS;
    const uint32_t rows[2] = {pairs ? 2 * p.column : p.column, pairs ? 2 * p.row + 1 : st->op->grid + p.row};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        matrix_row(&st->matrix, rows[i], row);
        st->cpu->ops->add(h, row, st->op->width);
    }
}

static uint32_t within(int32_t entry, uint32_t grid)
{
    return entry < 0 ? 0 : MIN_OF((uint32_t)entry, grid - 1);
}

static void add_filtered(const struct stage *st, struct patch_at p, float *h, float *row)
{
    const struct encode_image *image = st->op->image;
    const uint32_t grid = st->op->grid;
    const struct cpu_position_axis r = cpu_position_axis(image->shape->positions, p.row, image->rows, grid),
                                   c = cpu_position_axis(image->shape->positions, p.column, image->columns,
                                                         grid);
    for (int32_t y = r.from; y < r.to; y++) {
        for (int32_t x = c.from; x < c.to; x++) {
            matrix_row(&st->matrix, within(y, grid) * grid + within(x, grid), row);
            st->cpu->ops->add_scaled(h, row, (float)(cpu_position_weight(&r, y) * cpu_position_weight(&c, x)),
                                     st->op->width);
        }
    }
}

/* Between the four entries around the patch. */
static void add_square(const struct stage *st, struct patch_at p, float *h, float *row)
{
    uint32_t grid = st->op->grid, first = st->op->image->shape->class_row;
    struct between r = between(p.row, st->op->image->rows, grid);
    struct between c = between(p.column, st->op->image->columns, grid);
    const struct {
        uint32_t index;
        float weight;
    } corners[] = {{r.low * grid + c.low, (1 - r.part) * (1 - c.part)},
                   {r.low * grid + c.high, (1 - r.part) * c.part},
                   {r.high * grid + c.low, r.part * (1 - c.part)},
                   {r.high * grid + c.high, r.part * c.part}};
    for (size_t i = 0; i < COUNT_OF(corners); i++) {
        matrix_row(&st->matrix, first + corners[i].index, row);
        st->cpu->ops->add_scaled(h, row, corners[i].weight, st->op->width);
    }
}

static void add_position(const struct stage *st, struct patch_at p, float *h, float *row)
{
    switch (st->op->image->shape->positions) {
    case ENCODE_POSITIONS_SQUARE:
        add_square(st, p, h, row);
        return;
    case ENCODE_POSITIONS_CUBIC:
    case ENCODE_POSITIONS_SMOOTH:
        add_filtered(st, p, h, row);
        return;
    default:
        add_axes(st, p, h, row);
    }
}

/* A worker's own floats. */
static float *own_floats(const struct stage *st, uint32_t worker)
{
    _Static_assert(ENCODE_HIDDEN_MAX <= KERN_ATTN_SCRATCH, "a row of positions must fit");
    return st->cpu->attention_scratch + (size_t)worker * st->cpu->attention_floats;
}

static void add_bias(const struct stage *st, float *x, uint32_t n)
{
    if (!dev_is_null(st->op->bias))
        st->cpu->ops->add(x, cpu_floats(st->cpu, st->op->bias), n);
}

static void place_class(const struct stage *st, float *h, float *row)
{
    matrix_row(&st->matrix, 0, row);
    memcpy(h, cpu_floats(st->cpu, st->op->class_values), st->op->width * sizeof(*h));
    st->cpu->ops->add(h, row, st->op->width);
}

static void positions_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    for (uint32_t i = s.from; i < s.to; i++) {
        float *h = row_of(st, &op->y, i);
        if (op->from + i == op->image->rows * op->image->columns) {
            place_class(st, h, own_floats(st, worker));
            continue;
        }
        add_bias(st, h, op->width);
        add_position(st, patch_of(op->image, op->from + i), h, own_floats(st, worker));
    }
}

/* Angles of whole numbers: a row's with the first half of a head's frequencies, a column's with the second.
 */
static void fill_angles(const struct stage *st)
{
    const struct encode_image *p = st->op->image;
    uint32_t n = p->shape->head_dim / 4, edge = MAX_OF(p->rows, p->columns);
    for (uint32_t j = 0; j < n * encode_axes(p->shape); j++) {
        double frequency = (double)(j % n) + (j < n ? 0 : 0.5);
        float inv = (float)pow(p->shape->theta, -frequency / n);
        size_t at = j < n ? j : (size_t)edge * n + j - n;
        for (uint32_t i = 0; i < edge; i++) {
            st->a.cosines[at + (size_t)i * n] = (float)cos((double)i * inv);
            st->a.sines[at + (size_t)i * n] = (float)sin((double)i * inv);
        }
    }
}

static void tables_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct encode_shape *s = st->op->image->shape;
    (void)tile;
    (void)worker;
    for (uint32_t i = 0; i < DIV_UP(encode_image_rows(st->op->image), PAGE_TOKENS); i++)
        st->a.pages[i] = i;
    fill_angles(st);
    for (uint32_t c = 0; c < ENCODE_CHANNELS; c++) {
        for (uint32_t i = 0; i < 256; i++)
            st->a.levels[c * 256 + i] = (float)((i / 255.0 - s->mean[c]) / s->std[c]);
    }
}

/* ---- rows ---- */

static void norm_part(const struct stage *st, float *y, const float *x, uint32_t n)
{
    const struct op_encode *op = st->op;
    const float *w = cpu_floats(st->cpu, op->norm_weight);
    if (op->rms)
        st->cpu->ops->rmsnorm(y, x, w, n, op->eps);
    else
        st->cpu->ops->layernorm(y, x, w, cpu_floats(st->cpu, op->norm_bias), n, op->eps);
}

static void norm_row(const struct stage *st, float *y, const float *x)
{
    uint32_t parts = MAX_OF(st->op->norm_parts, 1u), n = st->op->width / parts;
    for (uint32_t i = 0; i < parts; i++)
        norm_part(st, y + (size_t)i * n, x + (size_t)i * n, n);
}

/* `part`: room for one. */
static void norm_by_value(const struct stage *st, float *y, const float *x, float *part)
{
    uint32_t parts = st->op->norm_parts, n = st->op->width / parts;
    for (uint32_t i = 0; i < parts; i++) {
        norm_part(st, part, x + (size_t)i * n, n);
        for (uint32_t k = 0; k < n; k++)
            y[(size_t)k * parts + i] = part[k];
    }
}

static void norm_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    struct span s = span_of(st, st->first + tile);
    for (uint32_t i = s.from; i < s.to; i++) {
        const float *x = row_of(st, &st->op->x, i);
        float *y = row_of(st, &st->op->y, i);
        if (st->op->by_value)
            norm_by_value(st, y, x, own_floats(st, worker));
        else
            norm_row(st, y, x);
    }
}

static void multiply(const struct stage *st, float *x)
{
    const float *factors = cpu_floats(st->cpu, st->op->factors);
    for (uint32_t i = 0; i < st->op->width; i++)
        x[i] *= factors[i];
}

/* x += bias, times factors, y += x, and where there is a norm z = norm of y. */
static void add_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *x = row_of(st, &op->x, i), *y = row_of(st, &op->y, i);
        add_bias(st, x, op->width);
        if (!dev_is_null(op->factors))
            multiply(st, x);
        st->cpu->ops->add(y, x, op->width);
        if (op->kind == ENCODE_ADD_NORM)
            norm_row(st, row_of(st, &op->z, i), y);
    }
}

static void bias_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++)
        add_bias(st, row_of(st, &op->x, i), op->width);
}

static void in_rows_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        struct window_at w = window_of(op->image, op->from + i);
        float *x = row_of(st, &op->x, i);
        add_bias(st, x, op->width);
        memcpy(row_of(st, &op->y, w.row * (op->image->columns / op->image->shape->merge) + w.column), x,
               op->width * sizeof(*x));
    }
}

static void pool_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        const float *x = row_of(st, &op->x, i);
        float *y = row_of(st, &op->y, i);
        memset(y, 0, op->width * sizeof(*y));
        for (uint32_t part = 0; part < op->norm_parts; part++)
            st->cpu->ops->add_scaled(y, x + (size_t)part * op->width, op->factor / (float)op->norm_parts,
                                     op->width);
    }
}

static void standard_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const float *bias = cpu_floats(st->cpu, st->op->norm_bias),
                *scale = cpu_floats(st->cpu, st->op->norm_weight);
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *x = row_of(st, &st->op->x, i);
        for (uint32_t k = 0; k < st->op->width; k++)
            x[k] = (x[k] - bias[k]) * scale[k];
    }
}

static void clip_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const float least = *cpu_floats(st->cpu, st->op->clip_min), most = *cpu_floats(st->cpu, st->op->clip_max);
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *x = row_of(st, &st->op->x, i);
        for (uint32_t k = 0; k < st->op->width; k++)
            x[k] = fminf(fmaxf(x[k], least), most);
    }
}

static void act_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *x = row_of(st, &op->x, i);
        add_bias(st, x, op->gated ? 2 * op->width : op->width);
        cpu_glu_values(st->cpu, op->function, (struct glu_clip){0}, x, x, op->gated ? x + op->width : NULL,
                       op->width);
    }
}

/* ---- attention ---- */

/* Norms each head; no weight: nothing. */
static void norm_heads(const struct stage *st, float *heads, dev_ptr weight)
{
    const struct encode_shape *s = st->op->image->shape;
    for (uint32_t head = 0; !dev_is_null(weight) && head < s->heads; head++) {
        float *x = heads + (size_t)head * s->head_dim;
        st->cpu->ops->rmsnorm(x, x, cpu_floats(st->cpu, weight), s->head_dim, st->op->eps);
    }
}

/* Each half of each head by itself: by the column, then by the row. */
static void rotate_apart(const struct stage *st, float *heads, struct patch_at p)
{
    const struct encode_shape *s = st->op->image->shape;
    const uint32_t quarter = s->head_dim / 4, at[2] = {p.column, p.row};
    for (uint32_t i = 0; i < 2 * s->heads; i++) {
        size_t angles = (size_t)at[i % 2] * quarter;
        st->cpu->ops->rope(heads + (size_t)i * 2 * quarter, st->a.cosines + angles, st->a.sines + angles,
                           quarter);
    }
}

static void rotate_pairs(const struct stage *st, float *heads, struct patch_at p)
{
    const struct encode_shape *s = st->op->image->shape;
    const uint32_t quarter = s->head_dim / 4, at[2] = {p.column, p.row};
    for (uint32_t i = 0; i < s->heads * s->head_dim / 2; i++) {
        const size_t angle = (size_t)at[i % 2] * quarter + i % (2 * quarter) / 2;
        const float c = st->a.cosines[angle], sine = st->a.sines[angle], x = heads[2 * i],
                    y = heads[2 * i + 1];
        heads[2 * i] = x * c - y * sine;
        heads[2 * i + 1] = x * sine + y * c;
    }
}

/* Rotates all heads of one patch's queries or keys. */
static void rotate(const struct stage *st, float *heads, uint32_t patch)
{
    const struct encode_shape *s = st->op->image->shape;
    uint32_t quarter = s->head_dim / 4;
    float cosines[ROPE_HALF_MAX], sines[ROPE_HALF_MAX];
    const struct encode_image *image = st->op->image;
    struct patch_at p = patch_of(image, patch);
    uint32_t columns_at = encode_axes(s) == 2 ? MAX_OF(image->rows, image->columns) : 0;
    const uint32_t at[2] = {p.row, columns_at + p.column};
    if (s->rotation == ENCODE_ROTATE_APART)
        rotate_apart(st, heads, p);
    if (s->rotation == ENCODE_ROTATE_PAIRS)
        rotate_pairs(st, heads, p);
    if (s->rotation != ENCODE_ROTATE_EQUAL && s->rotation != ENCODE_ROTATE_ALTERNATE)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(cosines + i * quarter, st->a.cosines + (size_t)at[i] * quarter, quarter * sizeof(float));
        memcpy(sines + i * quarter, st->a.sines + (size_t)at[i] * quarter, quarter * sizeof(float));
    }
    for (uint32_t head = 0; head < s->heads; head++)
        st->cpu->ops->rope(heads + (size_t)head * s->head_dim, cosines, sines, 2 * quarter);
}

static struct kern_kv kv_of(const struct stage *st, uint32_t head)
{
    uint32_t head_dim = st->op->image->shape->head_dim;
    size_t half = (size_t)head_dim * PAGE_TOKENS * sizeof(float);
    size_t pages = DIV_UP(encode_image_rows(st->op->image), PAGE_TOKENS);
    return (struct kern_kv){.base = st->a.kv + head * pages * 2 * half,
                            .page_bytes = 2 * half,
                            .pages = st->a.pages,
                            .k_offset = 0,
                            .v_offset = half,
                            .k_width = head_dim,
                            .v_width = head_dim};
}

/* Keys | values: half of a row each. */
static void keys_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    const struct encode_shape *shape = op->image->shape;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *k = row_of(st, &op->x, i);
        add_bias(st, k, op->width);
        norm_heads(st, k, op->norm_weight);
        norm_heads(st, k + op->width / 2, op->value_norm);
        rotate(st, k, op->from + i);
        for (uint32_t head = 0; head < shape->heads; head++) {
            struct kern_kv kv = kv_of(st, head);
            const float *at = k + (size_t)head * shape->head_dim;
            st->cpu->ops->kv_put(&kv, op->from + i, at, at + op->width / 2);
        }
    }
}

static void queries_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    struct span s = span_of(st, st->first + tile);
    (void)worker;
    for (uint32_t i = s.from; i < s.to; i++) {
        float *q = row_of(st, &st->op->x, i);
        add_bias(st, q, st->op->width);
        norm_heads(st, q, st->op->norm_weight);
        rotate(st, q, st->op->from + i);
    }
}

/* Keys that attention takes at a time. */
static uint32_t range_keys(const struct encode_shape *s)
{
    uint64_t segment = (uint64_t)2 * QUERY_BLOCK * KERN_SEGMENT_TOKENS * s->head_dim;
    return (uint32_t)DIV_UP(TILE_COST, segment) * KERN_SEGMENT_TOKENS;
}

/* Tiles of one range of keys: a head, a block of patches each. */
static uint32_t range_tiles(const struct stage *st)
{
    return DIV_UP(st->op->count, QUERY_BLOCK) * st->op->image->shape->heads;
}

static void attend_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    const struct encode_shape *s = op->image->shape;
    _Static_assert(QUERY_BLOCK <= CPU_QUERIES_MAX, "a worker has room for a block of queries");
    uint32_t range = (st->first + tile) / range_tiles(st), within = (st->first + tile) % range_tiles(st);
    uint32_t blocks = DIV_UP(op->count, QUERY_BLOCK), head = within / blocks;
    uint32_t from = within % blocks * QUERY_BLOCK, to = MIN_OF(from + QUERY_BLOCK, op->count);
    struct kern_query *queries = st->cpu->queries + (size_t)worker * CPU_QUERIES_MAX;
    struct kern_kv kv = kv_of(st, head);
    size_t carry = (size_t)head * s->slice_max + from, at = (size_t)head * s->head_dim;
    for (uint32_t i = from; i < to; i++) {
        struct kern_query *q = &queries[i - from];
        *q = (struct kern_query){.q = row_of(st, &op->x, i) + at,
                                 .out = row_of(st, &op->y, i) + at,
                                 .kv_len = encode_image_rows(op->image)};
        if (!op->in_windows)
            continue;
        struct window_at w = window_of(op->image, (op->from + i) / token_patches(st));
        q->kv_first = w.first * token_patches(st);
        q->kv_len = (w.first + w.count) * token_patches(st);
    }
    st->cpu->ops->attn_part(&kv, queries, to - from, range * range_keys(s), (range + 1) * range_keys(s),
                            s->plain_scores ? 1 : (float)(1 / sqrt((double)s->head_dim)), st->a.max + carry,
                            st->a.sum + carry, own_floats(st, worker));
}

/* ---- products ---- */

/* Panels of a tile: two at least, for kernels take two at a time. */
static uint32_t tile_panels(const struct matrix *m)
{
    return MAX_OF((uint32_t)(TILE_COST / (COLUMN_BLOCK * MATRIX_PANEL * (uint64_t)m->k)) & ~1u, 2);
}

/* Blocks of columns change fastest: they share the panels. */
static void product_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct matrix *m = &st->matrix;
    uint32_t at = st->first + tile, blocks = DIV_UP(st->op->count, COLUMN_BLOCK), step = tile_panels(m);
    uint32_t panel = at / blocks * step, column = at % blocks * COLUMN_BLOCK;
    struct kern_columns c = {.count = MIN_OF(COLUMN_BLOCK, st->op->count - column),
                             .x = st->a.column_x + column,
                             .xsum = st->a.column_sums + column,
                             .y = st->a.column_y + column};
    (void)worker;
    if (matrix_rounds_input(m))
        cpu_rounded_matmul(st->cpu, m, st->a.column_quants + column, &c, panel,
                           MIN_OF(panel + step, matrix_panels(m)));
    else
        st->cpu->ops->matmul(m, &c, panel, MIN_OF(panel + step, matrix_panels(m)));
}

/* Tile: a column, and what the matrix's product needs beside it. */
static void column_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct stage *st = arg;
    const struct op_encode *op = st->op;
    const struct matrix *m = &st->matrix;
    const struct quants q = {m->k, m->group, st->cpu->value_bytes};
    float *x = row_of(st, &op->x, tile), *sums = x + op->x.sums_at;
    (void)worker;
    st->a.column_x[tile] = x;
    st->a.column_y[tile] = row_of(st, &op->y, tile);
    st->a.column_sums[tile] = sums;
    st->a.column_quants[tile] = sums;
    if (matrix_needs_sums(m))
        st->cpu->ops->group_sums(sums, x, m->k, m->group);
    else if (m->form == MATRIX_QUADS)
        st->cpu->ops->quantise(sums, &q, x, 0, m->k);
    else if (m->form == MATRIX_PAIRS)
        st->cpu->ops->round_bf16((uint16_t *)(void *)sums, x, 0, m->k);
}

static void set_columns(struct cpu *c, struct stage *st)
{
    if (matrix_has_groups(&st->matrix) || matrix_rounds_input(&st->matrix)) {
        cpu_run(c, column_tile, st, st->op->count);
        return;
    }
    for (uint32_t i = 0; i < st->op->count; i++)
        column_tile(st, i, 0);
}

/* ---- pieces ---- */

/* Operations row by row; `each`: the time of a value in multiply-adds. */
static const struct {
    workers_fn *fn;
    uint32_t each;
} row_tiles[] = {
    [ENCODE_PIXELS] = {pixels_tile, 32},   [ENCODE_POSITIONS] = {positions_tile, 256},
    [ENCODE_NORM] = {norm_tile, 8},        [ENCODE_KEYS] = {keys_tile, 32},
    [ENCODE_QUERIES] = {queries_tile, 16}, [ENCODE_ADD] = {add_tile, 8},
    [ENCODE_ADD_NORM] = {add_tile, 16},    [ENCODE_ACT] = {act_tile, 32},
    [ENCODE_BIAS] = {bias_tile, 4},        [ENCODE_POOL] = {pool_tile, 64},
    [ENCODE_IN_ROWS] = {in_rows_tile, 8},  [ENCODE_STANDARD] = {standard_tile, 8},
    [ENCODE_CLIP] = {clip_tile, 8},
};

static void set_stage(struct stage *st)
{
    const struct op_encode *op = st->op;
    const struct encode_shape *s = op->image->shape;
    switch (op->kind) {
    case ENCODE_TABLES:
        st->fn = tables_tile;
        st->tiles = 1;
        st->tile_cost = PIECE_COST;
        break;
    case ENCODE_ATTEND:
        st->fn = attend_tile;
        st->tiles = range_tiles(st) * DIV_UP(encode_image_rows(op->image), range_keys(s));
        st->tile_cost = (uint64_t)2 * QUERY_BLOCK * range_keys(s) * s->head_dim;
        break;
    case ENCODE_PROJECT:
        ASSERT(op->w->part_count == 1);
        st->fn = product_tile;
        st->tiles =
            DIV_UP(matrix_panels(&st->matrix), tile_panels(&st->matrix)) * DIV_UP(op->count, COLUMN_BLOCK);
        st->tile_cost = (uint64_t)COLUMN_BLOCK * MATRIX_PANEL * tile_panels(&st->matrix) * op->w->in;
        break;
    default:
        st->fn = row_tiles[op->kind].fn;
        st->tiles = DIV_UP(op->count, tile_rows(st));
        st->tile_cost = (uint64_t)tile_rows(st) * op->width * row_tiles[op->kind].each;
    }
}

bool cpu_encode(struct compute *compute, const struct op_encode *op, uint32_t *at)
{
    struct cpu *c = cpu_of(compute);
    struct stage st = {.cpu = c, .op = op, .first = *at};
    const struct encode_image *p = op->image;
    lay_out(cpu_memory(c, p->own), p->shape, encode_image_rows(p), MAX_OF(p->rows, p->columns), &st.a);
    if (op->w)
        st.matrix = cpu_matrix(c, &op->w->parts[0]);
    set_stage(&st);
    if (op->kind == ENCODE_PROJECT && *at == 0)
        set_columns(c, &st);
    uint64_t each = MAX_OF(PIECE_COST / MAX_OF(st.tile_cost, 1), 1);
    uint32_t tiles = (uint32_t)MIN_OF(each * workers_count(c->workers), st.tiles - *at);
    /* A range of keys begins when the one before it is done. */
    if (op->kind == ENCODE_ATTEND)
        tiles = MIN_OF(tiles, range_tiles(&st) - *at % range_tiles(&st));
    cpu_run(c, st.fn, &st, tiles);
    *at += tiles;
    return *at == st.tiles;
}
