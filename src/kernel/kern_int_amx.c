/* kern_int_amx.c - integer products with AMX: an instruction multiplies a tile of 16 columns x 64 values by
 * one of 64 codes x 16 rows. Rows of activations are the VNNI tier's, and so are products of few columns.
 *
 * A group's sums leave their tiles through memory, where the f32 part reads them. The tiles of the next
 * group are computed meanwhile. Two panels share the columns' tiles. Panels are taken in blocks of k. The
 * codes of a block are unpacked once, lie in L1 and meet all columns, 16 at a time.
 *
 * Columns are cut evenly: 17 are 9 and 8, since a product takes as long as it has columns. Where the rows of
 * activations lie equally far apart, tiles are loaded from them, else from a copy of the block. A last tile
 * with fewer columns is such a copy too, with the last column repeated. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_lines_avx512.h"
#include "kernel/kern_tile.h"

#include "kernel/kern_qparam.inc"

/* From so many columns on tiles are faster than the VNNI tier: of int16 and of int8 values (kern_bench, 16
 * cores of a Xeon with AMX). */
#define TILE_COLUMNS_INT16 9
#define TILE_COLUMNS_INT8  17

#define TILE_COLUMNS 16
#define CHUNK_TILES  16
#define PANELS       2
#define BLOCK_STEPS  256 /* k steps of a block */
#define GROUPS_MAX   (BLOCK_STEPS / 32)
#define UNIT_QUADS   8
#define LINE_BYTES   64
#define TILE_BYTES   1024

/* ---- weights ---- */

typedef void unpack_fn(uint8_t *ret, const uint8_t *at, uint32_t units);

#define UNPACK(bits)                                                                                         \
    static void unpack_##bits(uint8_t *ret, const uint8_t *at, uint32_t units)                               \
    {                                                                                                        \
        for (uint32_t u = 0; u < units; u++, at += bits * LINE_BYTES, ret += UNIT_QUADS * LINE_BYTES) {      \
            UNROLL for (uint32_t quad = 0; quad < UNIT_QUADS; quad++)                                        \
                _mm512_store_si512((void *)(ret + quad * LINE_BYTES), codes_line(at, bits, quad));           \
        }                                                                                                    \
    }
UNPACK(2)
UNPACK(3)
UNPACK(4)
UNPACK(5)
UNPACK(6)

static unpack_fn *const unpacks[9] = {
    [2] = unpack_2, [3] = unpack_3, [4] = unpack_4, [5] = unpack_5, [6] = unpack_6};

/* A panel's block of k. */
struct block_weights {
    _Alignas(64) uint8_t unpacked[BLOCK_STEPS * MATRIX_PANEL];
    float scales[GROUPS_MAX][MATRIX_PANEL], biases[GROUPS_MAX][MATRIX_PANEL];
    const uint8_t *codes; /* tiles, one group after the other */
    size_t codes_step;    /* from group to group */
};

/* ---- activations ---- */

/* The tiles of at most 16 columns in a block of k. */
struct block_values {
    const char *at;    /* the first block of 64 values of the first column */
    size_t stride;     /* from column to column */
    size_t step, high; /* from 64 values to the next 64, and to their high bytes */
    const struct quants_group *groups[TILE_COLUMNS]; /* of each column, the block's first */
};

/* The sums of a group and two panels: of values of one byte, or of low and of high bytes. */
typedef int32_t tile_sums[PANELS][2][TILE_COLUMNS][MATRIX_PANEL];

/* All of a call. */
struct amx {
    const struct matrix *w;
    const struct kern_int_columns *c;
    uint32_t columns;              /* of a tile */
    uint32_t group_tiles;          /* tiles of a group: 1, 2 */
    uint32_t group_units;          /* units of a group: 1, 2, 4 */
    size_t values_at;              /* in a row */
    struct block_weights *weights; /* [PANELS] */
    char *copy;                    /* [BLOCK_STEPS / 64][2][TILE_COLUMNS][64] */
    tile_sums *sums;               /* [2] */
};

/* ---- a group ---- */

/* Sums of the first panel in tiles 0 and 1, of the second in 2 and 3, low bytes first; columns in 4 and 5;
 * codes in 6 and 7. */
V16_FN void group_int16(const uint8_t *const codes[PANELS], const struct block_values *v, const char *values,
                        uint32_t tiles, tile_sums *sums)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (uint32_t i = 0; i < tiles; i++) {
        TILE_LOAD(6, codes[0] + (size_t)i * TILE_BYTES, LINE_BYTES);
        TILE_LOAD(4, values + i * v->step, v->stride);
        TILE_DOT_BYTES(0, 4, 6);
        TILE_LOAD(7, codes[1] + (size_t)i * TILE_BYTES, LINE_BYTES);
        TILE_DOT_BYTES(2, 4, 7);
        TILE_LOAD(5, values + i * v->step + v->high, v->stride);
        TILE_DOT_BYTES(1, 5, 6);
        TILE_DOT_BYTES(3, 5, 7);
    }
    TILE_STORE(0, (*sums)[0][0], LINE_BYTES);
    TILE_STORE(2, (*sums)[1][0], LINE_BYTES);
    TILE_STORE(1, (*sums)[0][1], LINE_BYTES);
    TILE_STORE(3, (*sums)[1][1], LINE_BYTES);
}

#define GROUP_INT8(first_, second_, x_)                                                                      \
    do {                                                                                                     \
        TILE_ZERO(first_);                                                                                   \
        TILE_ZERO(second_);                                                                                  \
        for (uint32_t i = 0; i < tiles; i++) {                                                               \
            TILE_LOAD(6, codes[0] + (size_t)i * TILE_BYTES, LINE_BYTES);                                     \
            TILE_LOAD(x_, values + i * v->step, v->stride);                                                  \
            TILE_DOT_BYTES(first_, x_, 6);                                                                   \
            TILE_LOAD(7, codes[1] + (size_t)i * TILE_BYTES, LINE_BYTES);                                     \
            TILE_DOT_BYTES(second_, x_, 7);                                                                  \
        }                                                                                                    \
        TILE_STORE(first_, (*sums)[0][0], LINE_BYTES);                                                       \
        TILE_STORE(second_, (*sums)[1][0], LINE_BYTES);                                                      \
    } while (0)

/* Groups take turns with two sets of tiles. */
V16_FN void group_int8(const uint8_t *const codes[PANELS], const struct block_values *v, const char *values,
                       uint32_t tiles, uint32_t set, tile_sums *sums)
{
    if (set == 0)
        GROUP_INT8(0, 2, 4);
    else
        GROUP_INT8(1, 3, 5);
}

V16_FN v16 sums_floats(int32_t (*sums)[TILE_COLUMNS][MATRIX_PANEL], uint32_t j, const int bytes)
{
    __m512i s = _mm512_load_si512(sums[0][j]);
    if (bytes == 2)
        s = _mm512_add_epi32(s, _mm512_slli_epi32(_mm512_load_si512(sums[1][j]), 8));
    return _mm512_cvtepi32_ps(s);
}

/* Group `g` of the block joins the sums of both panels and 16 columns. Some of those may be no columns. */
V16_FN void group_join(const struct amx *a, const struct block_values *v, uint32_t g, const int bytes,
                       float *const acc[PANELS])
{
    const struct block_weights *w = a->weights;
    tile_sums *sums = &a->sums[g % 2];
    v16 scale0 = v16_load(w[0].scales[g]), bias0 = v16_load(w[0].biases[g]);
    v16 scale1 = v16_load(w[1].scales[g]), bias1 = v16_load(w[1].biases[g]);
    UNROLL for (uint32_t j = 0; j < TILE_COLUMNS; j++)
    {
        const struct quants_group *x = v->groups[j] + g;
        v16 scale = v16_set(x->scale), sum = v16_set(x->sum);
        float *at0 = acc[0] + (size_t)j * MATRIX_PANEL, *at1 = acc[1] + (size_t)j * MATRIX_PANEL;
        v16 y0 = v16_fma(sums_floats((*sums)[0], j, bytes), v16_mul(scale0, scale), v16_load(at0));
        v16 y1 = v16_fma(sums_floats((*sums)[1], j, bytes), v16_mul(scale1, scale), v16_load(at1));
        v16_store(at0, v16_fma(bias0, sum, y0));
        v16_store(at1, v16_fma(bias1, sum, y1));
    }
}

/* ---- a block of k ---- */

V16_FN void block_run(const struct amx *a, const struct block_values *v, uint32_t groups, const int bytes,
                      float *const acc[PANELS])
{
    const struct block_weights *w = a->weights;
    for (uint32_t g = 0; g < groups; g++) {
        const uint8_t *const codes[PANELS] = {w[0].codes + g * w[0].codes_step,
                                              w[1].codes + g * w[1].codes_step};
        uint32_t unit = g * a->group_units;
        const char *values = v->at + unit / 2 * v->step + unit % 2 * 32;
        if (bytes == 1)
            group_int8(codes, v, values, a->group_tiles, g % 2, &a->sums[g % 2]);
        else
            group_int16(codes, v, values, a->group_tiles, &a->sums[g % 2]);
        if (g > 0)
            group_join(a, v, g - 1, bytes, acc);
    }
    group_join(a, v, groups - 1, bytes, acc);
}

typedef void block_fn(const struct amx *a, const struct block_values *v, uint32_t groups,
                      float *const acc[PANELS]);

static void block_int8(const struct amx *a, const struct block_values *v, uint32_t groups,
                       float *const acc[PANELS])
{
    block_run(a, v, groups, 1, acc);
}

static void block_int16(const struct amx *a, const struct block_values *v, uint32_t groups,
                        float *const acc[PANELS])
{
    block_run(a, v, groups, 2, acc);
}

/* Groups [g, g + groups) of a panel. Weights of few columns come from memory: the lines that are read this
 * much later are prefetched. */
static void take_weights(const struct amx *a, struct block_weights *ret, uint32_t panel, uint32_t g,
                         uint32_t groups)
{
    const struct matrix *w = a->w;
    const size_t group_bytes = matrix_group_bytes(w), codes_at = matrix_sides_bytes(w);
    const uint8_t *at = (const uint8_t *)w->data + panel * matrix_panel_bytes(w);
    const bool plain = w->bits == 8 && w->super == 0;
    ret->codes = plain ? at + g * group_bytes + codes_at : ret->unpacked;
    ret->codes_step = plain ? group_bytes : (size_t)w->group * MATRIX_PANEL;
    for (uint32_t i = 0; i < groups; i++) {
        const uint8_t *group = at + matrix_group_offset(w, g + i);
        const struct qparams q = quads_sides(w, at, g + i);
        if (a->c->count <= TILE_COLUMNS) {
            for (size_t line = 0; line < group_bytes; line += LINE_BYTES)
                _mm_prefetch((const char *)group + 8192 + line, _MM_HINT_T1);
        }
        v16_store(ret->scales[i], q.scale);
        v16_store(ret->biases[i], q.bias);
        if (!plain)
            unpacks[w->bits](ret->unpacked + i * ret->codes_step, group + codes_at, a->group_units);
    }
}

static size_t stride_of(const char *const *x)
{
    return (uintptr_t)x[1] - (uintptr_t)x[0];
}

/* Columns from `column` on, `count` of them, as the block's tiles. */
static void take_values(const struct amx *a, struct block_values *ret, uint32_t column, uint32_t count,
                        uint32_t g, uint32_t groups)
{
    const char *x[TILE_COLUMNS];
    const size_t bytes = a->c->bytes, at = a->values_at + values_unit(g * a->group_units, (int)bytes);
    bool regular = count == a->columns;
    for (uint32_t j = 0; j < TILE_COLUMNS; j++)
        x[j] = a->c->x[column + MIN_OF(j, count - 1)];
    for (uint32_t j = 0; j < TILE_COLUMNS; j++) {
        ret->groups[j] = (const struct quants_group *)(const void *)x[j] + g;
        regular = regular && (j >= count || (uintptr_t)x[j] == (uintptr_t)x[0] + j * stride_of(x));
    }
    if (regular) {
        ret->at = x[0] + at;
        ret->stride = stride_of(x);
        ret->step = BLOCK_VALUES * bytes;
        ret->high = BLOCK_VALUES;
        return;
    }
    ret->at = a->copy;
    ret->stride = BLOCK_VALUES;
    ret->high = TILE_BYTES;
    ret->step = TILE_BYTES * bytes;
    for (uint32_t j = 0; j < a->columns; j++) {
        const char *from = x[j] + at;
        size_t values = (size_t)groups * a->w->group; /* whole 64 and at most a half, which is read whole */
        for (uint32_t i = 0; i < DIV_UP(values, (size_t)BLOCK_VALUES) * bytes; i++)
            _mm512_storeu_si512(a->copy + i * TILE_BYTES + j * BLOCK_VALUES,
                                _mm512_loadu_si512(from + i * BLOCK_VALUES));
    }
}

/* ---- a tile of outputs ---- */

struct amx_tile {
    uint32_t panel, panels, column, columns;
};

typedef float amx_acc[PANELS][CHUNK_TILES][TILE_COLUMNS][MATRIX_PANEL];

static void block_all(const struct amx *a, const struct amx_tile *t, uint32_t g, uint32_t groups,
                      block_fn *run, amx_acc *acc)
{
    struct block_values v;
    for (uint32_t i = 0; i < PANELS; i++) /* a missing one is a copy, which is not stored */
        take_weights(a, &a->weights[i], t->panel + MIN_OF(i, t->panels - 1), g, groups);
    for (uint32_t tile = 0, j = 0; j < t->columns; tile++, j += a->columns) {
        take_values(a, &v, t->column + j, MIN_OF(a->columns, t->columns - j), g, groups);
        float *const sums[PANELS] = {(*acc)[0][tile][0], (*acc)[1][tile][0]};
        run(a, &v, groups, sums);
    }
}

static void store_outputs(const struct amx *a, const struct amx_tile *t, const amx_acc *acc)
{
    for (uint32_t i = 0; i < t->panels; i++) {
        uint32_t row = (t->panel + i) * MATRIX_PANEL, left = MIN_OF(a->w->n - row, (uint32_t)MATRIX_PANEL);
        for (uint32_t j = 0; j < t->columns; j++)
            v16_store_n(a->c->y[t->column + j] + row, v16_load((*acc)[i][j / a->columns][j % a->columns]),
                        left);
    }
}

static void tile_outputs(const struct amx *a, const struct amx_tile *t)
{
    _Alignas(64) amx_acc acc;
    const uint32_t groups = a->w->k / a->w->group, step = BLOCK_STEPS / a->w->group;
    block_fn *run = a->c->bytes == 1 ? block_int8 : block_int16;
    for (uint32_t i = 0; i < PANELS; i++)
        memset(acc[i], 0, DIV_UP(t->columns, a->columns) * sizeof acc[i][0]);
    for (uint32_t g = 0; g < groups; g += step)
        block_all(a, t, g, MIN_OF(step, groups - g), run, &acc);
    store_outputs(a, t, (const amx_acc *)&acc);
}

/* ---- a call ---- */

/* Sums 0 to 3, columns 4 and 5, codes 6 and 7. */
static struct tile_config tiles_of(const struct amx *a)
{
    const uint32_t steps = MIN_OF(a->w->group, (uint32_t)BLOCK_VALUES);
    struct tile_config config = {.palette = 1};
    for (uint32_t i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(i < 6 ? a->columns : steps / 4);
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? steps : LINE_BYTES);
    }
    return config;
}

static void amx_call(struct amx *a, uint32_t panel_begin, uint32_t panel_end)
{
    struct block_weights weights[PANELS];
    _Alignas(64) char copy[BLOCK_STEPS * 2 * TILE_COLUMNS];
    _Alignas(64) tile_sums sums[2] = {0};
    const uint32_t chunk = CHUNK_TILES * a->columns;
    a->weights = weights;
    a->copy = copy;
    a->sums = sums;
    const struct tile_config config = tiles_of(a);
    tile_configure(&config);
    struct amx_tile t;
    for (t.panel = panel_begin; t.panel < panel_end; t.panel += PANELS) {
        t.panels = MIN_OF((uint32_t)PANELS, panel_end - t.panel);
        for (t.column = 0; t.column < a->c->count; t.column += chunk) {
            t.columns = MIN_OF(a->c->count - t.column, chunk);
            tile_outputs(a, &t);
        }
    }
    tile_release();
}

static void tier_int_matmul(const struct matrix *w, const struct kern_int_columns *c, uint32_t panel_begin,
                            uint32_t panel_end)
{
    const struct quants q = {w->k, w->group, c->bytes};
    if (c->count < (c->bytes == 1 ? TILE_COLUMNS_INT8 : TILE_COLUMNS_INT16)) {
        kern_int_vnni_matmul(w, c, panel_begin, panel_end);
        return;
    }
    ASSERT(w->form == MATRIX_QUADS && w->group % QUANTS_UNIT == 0 && w->group <= 128);
    ASSERT((w->bits == 8 || (w->bits < 8 && unpacks[w->bits])) && (c->bytes == 1 || c->bytes == 2));
    struct amx a = {.w = w, .c = c, .values_at = quants_values_at(&q)};
    a.columns = DIV_UP(c->count, DIV_UP(c->count, (uint32_t)TILE_COLUMNS));
    a.group_units = w->group / QUANTS_UNIT;
    a.group_tiles = MAX_OF(a.group_units / 2, 1u);
    amx_call(&a, panel_begin, panel_end);
}

void kern_int_amx_fill(struct kern_ops *ops)
{
    ops->int_tier = "amx";
    ops->int_matmul = tier_int_matmul;
    ops->int_panels_many = 8;
    ops->int_columns_many = 128;
}
#endif
