/* kern_bf16_amx.c - the products in BF16 with AMX: an instruction multiplies a tile of 16 columns x 32 k by
 * one of 32 k x 16 rows, which is a panel's memory. Sums of f32 stay in tiles. Products of few columns are
 * left to the AVX-512 tier.
 *
 * * At most 16 columns: weights come from memory. Four panels are read side by side, each once.
 * * More columns: 32 columns and two panels make four tiles of sums, by blocks of k. Between blocks they wait
 *   in memory, so that a block of the columns stays in L1 for all panels of the call.
 *
 * Where the rows of activations lie equally far apart, tiles are loaded from them, else from a copy of the
 * block. Columns are cut evenly, and the last tile begins early enough to be full: some columns are computed
 * twice. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_stride.h"
#include "kernel/kern_tiers.h"

#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_tile.h"
#include "kernel/kern_v16_avx512.h"

/* From so many columns on tiles are faster than the AVX-512 tier. */
#define TILE_COLUMNS_MIN 5

#define TILE_COLUMNS 16
#define TILE_STEPS   MATRIX_PAIRS_TILE
#define TILE_BYTES   1024
#define LINE_BYTES   64
#define FEW_PANELS   4
#define PANELS       2
#define COLUMN_TILES 2
#define CHUNK_PANELS 8
/* Tiles of a block of k. (16 tiles were 4 to 15 % slower, all of k no faster: kern_bench, 16 workers.) */
#define BLOCK_TILES 32
/* From the weights in use to those that are prefetched, in panels that are read once. */
#define AHEAD_BYTES 4096

typedef float tile_sums[TILE_COLUMNS][MATRIX_PANEL];

struct amx_memory {
    _Alignas(64) tile_sums sums[CHUNK_PANELS][COLUMN_TILES];
    _Alignas(64) char copies[COLUMN_TILES][BLOCK_TILES][TILE_COLUMNS][LINE_BYTES];
};

/* All of a call. */
struct amx {
    const struct matrix *w;
    const struct kern_bf16_columns *c;
    uint32_t columns; /* columns of a tile */
    size_t stride;    /* from row to row of the columns; 0: they lie anywhere */
    struct amx_memory *memory;
};

/* At most CHUNK_PANELS panels and COLUMN_TILES tiles of columns. */
struct chunk {
    uint32_t panel, panels, tiles;
    uint32_t column[COLUMN_TILES]; /* where a tile begins */
};

/* Columns of a tile in a block: the next tile of k is `step` bytes on. */
struct columns_at {
    const char *at;
    size_t stride, step;
};

/* A missing panel is a copy of the last one, whose sums are not stored. */
static const char *panel_at(const struct amx *a, const struct chunk *t, uint32_t panel)
{
    return (const char *)a->w->data + (t->panel + MIN_OF(panel, t->panels - 1)) * matrix_panel_bytes(a->w);
}

static void store_outputs(const struct amx *a, const struct chunk *t)
{
    for (uint32_t i = 0; i < t->panels; i++) {
        uint32_t row = (t->panel + i) * MATRIX_PANEL, left = MIN_OF(a->w->n - row, (uint32_t)MATRIX_PANEL);
        for (uint32_t tile = 0; tile < t->tiles; tile++) {
            for (uint32_t j = 0; j < a->columns; j++)
                v16_store_n(a->c->y[t->column[tile] + j] + row, v16_load(a->memory->sums[i][tile][j]), left);
        }
    }
}

/* ---- more than 16 columns ---- */

/* Sums 0 and 1 are the first tile of columns with both panels, 2 and 3 the second; columns in 4 and 5,
 * weights in 6 and 7, each zero after its last use. */
V16_FN void block_dot(const struct columns_at x[COLUMN_TILES], const char *const w[PANELS], uint32_t tiles)
{
    for (size_t i = 0; i < tiles; i++) {
        TILE_LOAD(6, w[0] + i * TILE_BYTES, LINE_BYTES);
        TILE_LOAD(4, x[0].at + i * x[0].step, x[0].stride);
        TILE_DOT_BF16(0, 4, 6);
        TILE_LOAD(7, w[1] + i * TILE_BYTES, LINE_BYTES);
        TILE_DOT_BF16(1, 4, 7);
        TILE_ZERO(4);
        TILE_LOAD(5, x[1].at + i * x[1].step, x[1].stride);
        TILE_DOT_BF16(2, 5, 6);
        TILE_ZERO(6);
        TILE_DOT_BF16(3, 5, 7);
        TILE_ZERO(5);
        TILE_ZERO(7);
    }
}

/* Panels `panel` and the next meet the columns in a block, the first one or another. */
static void block_run(const struct amx *a, const struct chunk *t, uint32_t panel, uint32_t block,
                      const struct columns_at x[COLUMN_TILES], uint32_t tiles)
{
    const size_t at = (size_t)block * BLOCK_TILES * TILE_BYTES;
    const char *const w[PANELS] = {panel_at(a, t, panel) + at, panel_at(a, t, panel + 1) + at};
    tile_sums *first = a->memory->sums[panel], *second = a->memory->sums[panel + 1];
    if (block == 0) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    } else {
        TILE_LOAD(0, first[0], LINE_BYTES);
        TILE_LOAD(1, second[0], LINE_BYTES);
        TILE_LOAD(2, first[1], LINE_BYTES);
        TILE_LOAD(3, second[1], LINE_BYTES);
    }
    block_dot(x, w, tiles);
    TILE_STORE(0, first[0], LINE_BYTES);
    TILE_STORE(1, second[0], LINE_BYTES);
    TILE_STORE(2, first[1], LINE_BYTES);
    TILE_STORE(3, second[1], LINE_BYTES);
}

static struct columns_at take_columns(const struct amx *a, const struct chunk *t, uint32_t tile,
                                      uint32_t block, uint32_t tiles)
{
    const size_t at = (size_t)block * BLOCK_TILES * TILE_STEPS;
    const uint16_t *const *x = a->c->x + t->column[tile];
    if (a->stride)
        return (struct columns_at){(const char *)(x[0] + at), a->stride, LINE_BYTES};
    char(*to)[TILE_COLUMNS][LINE_BYTES] = a->memory->copies[tile];
    for (uint32_t j = 0; j < a->columns; j++) {
        for (uint32_t i = 0; i < tiles; i++)
            _mm512_store_si512(to[i][j], _mm512_loadu_si512(x[j] + at + (size_t)i * TILE_STEPS));
    }
    return (struct columns_at){to[0][0], LINE_BYTES, TILE_BYTES};
}

static void chunk_run(const struct amx *a, const struct chunk *t)
{
    const uint32_t all = a->w->k / TILE_STEPS;
    for (uint32_t block = 0; block * BLOCK_TILES < all; block++) {
        const uint32_t tiles = MIN_OF(all - block * BLOCK_TILES, (uint32_t)BLOCK_TILES);
        const struct columns_at x[COLUMN_TILES] = {take_columns(a, t, 0, block, tiles),
                                                   take_columns(a, t, 1, block, tiles)};
        for (uint32_t panel = 0; panel < t->panels; panel += PANELS)
            block_run(a, t, panel, block, x, tiles);
    }
    store_outputs(a, t);
}

/* ---- at most 16 columns ---- */

V16_FN void prefetch_tile(const char *at)
{
    UNROLL for (size_t line = 0; line < TILE_BYTES; line += LINE_BYTES)
        _mm_prefetch(at + AHEAD_BYTES + line, _MM_HINT_T1);
}

/* Sums 0 to 3 are those of four panels; columns in 4, weights in 6 and 7. */
V16_FN void few_dot(const struct columns_at *x, const char *const w[FEW_PANELS], uint32_t tiles)
{
    for (size_t i = 0, at = 0; i < tiles; i++, at += TILE_BYTES) {
        TILE_LOAD(4, x->at + i * x->step, x->stride);
        TILE_LOAD(6, w[0] + at, LINE_BYTES);
        TILE_DOT_BF16(0, 4, 6);
        prefetch_tile(w[0] + at);
        TILE_LOAD(7, w[1] + at, LINE_BYTES);
        TILE_DOT_BF16(1, 4, 7);
        prefetch_tile(w[1] + at);
        TILE_LOAD(6, w[2] + at, LINE_BYTES);
        TILE_DOT_BF16(2, 4, 6);
        prefetch_tile(w[2] + at);
        TILE_LOAD(7, w[3] + at, LINE_BYTES);
        TILE_DOT_BF16(3, 4, 7);
        prefetch_tile(w[3] + at);
    }
}

static void few_run(const struct amx *a, const struct chunk *t)
{
    const uint32_t all = a->w->k / TILE_STEPS;
    for (uint32_t panel = 0; panel < t->panels; panel += FEW_PANELS) {
        tile_sums(*sums)[COLUMN_TILES] = a->memory->sums + panel;
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        for (uint32_t block = 0; block * BLOCK_TILES < all; block++) {
            const size_t at = (size_t)block * BLOCK_TILES * TILE_BYTES;
            const uint32_t tiles = MIN_OF(all - block * BLOCK_TILES, (uint32_t)BLOCK_TILES);
            const struct columns_at x = take_columns(a, t, 0, block, tiles);
            const char *const w[FEW_PANELS] = {panel_at(a, t, panel) + at, panel_at(a, t, panel + 1) + at,
                                               panel_at(a, t, panel + 2) + at,
                                               panel_at(a, t, panel + 3) + at};
            few_dot(&x, w, tiles);
        }
        TILE_STORE(0, sums[0][0], LINE_BYTES);
        TILE_STORE(1, sums[1][0], LINE_BYTES);
        TILE_STORE(2, sums[2][0], LINE_BYTES);
        TILE_STORE(3, sums[3][0], LINE_BYTES);
    }
    store_outputs(a, t);
}

/* ---- a call ---- */

/* Sums 0 to 3, columns 4 and 5, weights 6 and 7. */
static struct tile_config tiles_of(const struct amx *a)
{
    struct tile_config config = {.palette = 1};
    for (uint32_t i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(i < 6 ? a->columns : TILE_STEPS / 2);
        config.row_bytes[i] = LINE_BYTES;
    }
    return config;
}

static void set_columns(const struct amx *a, struct chunk *t, uint32_t column)
{
    t->tiles = a->c->count > TILE_COLUMNS ? COLUMN_TILES : 1;
    for (uint32_t i = 0; i < t->tiles; i++)
        t->column[i] = MIN_OF(column + i * a->columns, a->c->count - a->columns);
}

static void amx_call(const struct amx *a, uint32_t panel_begin, uint32_t panel_end)
{
    const struct tile_config config = tiles_of(a);
    struct chunk t;
    tile_configure(&config);
    for (t.panel = panel_begin; t.panel < panel_end; t.panel += CHUNK_PANELS) {
        t.panels = MIN_OF((uint32_t)CHUNK_PANELS, panel_end - t.panel);
        for (uint32_t column = 0; column < a->c->count; column += COLUMN_TILES * a->columns) {
            set_columns(a, &t, column);
            if (t.tiles == 1)
                few_run(a, &t);
            else
                chunk_run(a, &t);
        }
    }
    tile_release();
}

static void tier_bf16_matmul(const struct matrix *w, const struct kern_bf16_columns *c, uint32_t panel_begin,
                             uint32_t panel_end)
{
    if (c->count < TILE_COLUMNS_MIN) {
        kern_bf16_avx512_matmul(w, c, panel_begin, panel_end);
        return;
    }
    ASSERT(w->form == MATRIX_PAIRS && w->k % TILE_STEPS == 0);
    struct amx_memory memory;
    struct amx a = {
        .w = w, .c = c, .stride = kern_stride((const void *const *)c->x, c->count), .memory = &memory};
    a.columns = DIV_UP(c->count, DIV_UP(c->count, (uint32_t)TILE_COLUMNS));
    amx_call(&a, panel_begin, panel_end);
}

void kern_bf16_amx_fill(struct kern_ops *ops)
{
    ops->bf16_tier = "amx";
    ops->bf16_matmul = tier_bf16_matmul;
    /* 8 panels with 512 columns were 15 to 27 % slower: kern_bench, 16 workers. */
    ops->bf16_panels_many = 4;
    ops->bf16_columns_many = 256;
}
#endif
