/* kern_int_amx.c - integer products with AMX: an instruction multiplies a tile of 16 columns x 64 values by
 * one of 64 codes x 16 rows. Rows of activations are the VNNI tier's, and so are products of few columns.
 *
 * The work is cut into units of some panels, 16 columns and a few groups. The sums of a group leave their
 * tiles by way of memory. The f32 part then joins them to the columns' sums, which stay in registers.
 * It bounds these products: while tiles are in use, a core computes one f32 multiplication, multiply-add or
 * conversion of 512 bits a cycle instead of two. Loads, products and stores beside it cost nothing
 * (docs/benchmarks.md#what-bounds-the-kernels).
 *
 * * At most 16 columns: codes come from memory. A unit has two panels, which are read from the first group to
 *   the last. The f32 part takes 8 columns at a time. While a unit's sums join, the tiles of the next one are
 *   computed.
 * * More columns: a chunk of columns and panels, by blocks of k. A block's codes are unpacked once for all
 *   columns of the chunk. A unit has one panel, and the f32 part all 16 columns. While a group's sums join,
 *   those of the next one are stored and the tiles of the one after it computed, instruction beside
 *   instruction. (Two panels and 8 columns took 1.1 to 1.3 times as long, two panels and 12 columns 1.0 to
 *   1.1 times. Tiles one group ahead and before the join: 1.1 to 1.2 times.)
 *
 * Where the rows of activations lie equally far apart, tiles are loaded from them, else from a copy of the
 * block. (kern_bench, 16 workers: a copy for every chunk of panels took as long as it saved.) The groups'
 * scales and sums are always copied: they then lie together.
 *
 * Columns are cut evenly: 17 are 9 and 8, since a product takes as long as it has columns. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_stride.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_lines_avx512.h"
#include "kernel/kern_tile.h"

#include "kernel/kern_qparam.inc"

/* From so many columns on tiles are faster than the VNNI tier (kern_bench, 16 cores of a Xeon with AMX). */
#define TILE_COLUMNS_MIN 9

#define TILE_COLUMNS 16
#define HALF_COLUMNS 8
#define PANELS       2
#define CHUNK_TILES  8
#define CHUNK_PANELS 8
/* Groups and steps of a block of k with at most 16 columns. (With four groups 16 columns of 4 bits and int16
 * ran at 39 % of reading instead of 52.) */
#define BLOCK_GROUPS 2
#define BLOCK_STEPS  128
/* With more columns. */
#define LONG_STEPS  512
#define LONG_GROUPS (LONG_STEPS / 32)
/* From the codes in use to those that are prefetched, in a panel that is read once. */
#define AHEAD_BYTES 4096
#define UNIT_QUADS  8
#define LINE_BYTES  64
#define TILE_BYTES  1024

/* ---- weights ---- */

typedef void unpack_fn(uint8_t *ret, const uint8_t *at, uint32_t units);

#define UNPACK(name, code)                                                                                   \
    static void unpack_##name(uint8_t *ret, const uint8_t *at, uint32_t units)                               \
    {                                                                                                        \
        for (uint32_t u = 0; u < units;                                                                      \
             u++, at += bits_of(code) * LINE_BYTES, ret += UNIT_QUADS * LINE_BYTES) {                        \
            UNROLL for (uint32_t quad = 0; quad < UNIT_QUADS; quad++)                                        \
                _mm512_store_si512((void *)(ret + quad * LINE_BYTES), codes_line(at, code, quad));           \
        }                                                                                                    \
    }
UNPACK(2, 2)
UNPACK(3, 3)
UNPACK(4, 4)
UNPACK(5, 5)
UNPACK(6, 6)
UNPACK(e2m1, CODE_E2M1)
UNPACK(iq4, CODE_IQ4)

static unpack_fn *const unpacks[CODE_IQ4 + 1] = {
    [2] = unpack_2,         [3] = unpack_3, [4] = unpack_4,
    [5] = unpack_5,         [6] = unpack_6, [CODE_E2M1] = unpack_e2m1,
    [CODE_IQ4] = unpack_iq4};

/* A panel's scales and biases of a block. */
struct block_sides {
    float scales[LONG_GROUPS][MATRIX_PANEL], biases[LONG_GROUPS][MATRIX_PANEL];
};

/* A panel's codes of a block, as tiles. */
struct block_codes {
    const uint8_t *at;
    size_t step;          /* from group to group */
    const uint8_t *ahead; /* prefetched a group at a time; NULL: nothing */
};

/* ---- activations ---- */

/* The scales and sums of 16 columns in a group. */
typedef struct quants_group tile_groups[TILE_COLUMNS];

/* How the values of at most 16 columns lie. */
struct values_form {
    size_t stride;     /* from column to column */
    size_t step, high; /* from 64 values to the next 64, and to their high bytes */
};

/* ---- units ---- */

/* Sums of a tile. */
typedef int32_t tile_sums[TILE_COLUMNS][MATRIX_PANEL];

/* A unit's sums lie group after group, and in a group: first panel, second panel; of values of two bytes low
 * and high bytes of the first one, then of the second. */
struct unit {
    const struct block_codes *codes; /* [PANELS] */
    const struct block_sides *sides; /* [PANELS] */
    const struct values_form *form;
    const char *values;
    const tile_groups *columns;
    float *acc[PANELS]; /* [16][MATRIX_PANEL] */
    tile_sums *sums;
    uint32_t groups; /* 0: no unit */
};

typedef float panel_acc[CHUNK_TILES][TILE_COLUMNS][MATRIX_PANEL];

/* The scales of all groups of 16 columns. */
enum { STREAM_GROUPS = 256 };

struct amx_memory {
    _Alignas(64) tile_sums sums[2][BLOCK_GROUPS * PANELS * 2];
    _Alignas(64) uint8_t codes[CHUNK_PANELS][LONG_STEPS * MATRIX_PANEL];
    _Alignas(64) panel_acc acc[CHUNK_PANELS];
    float nowhere[TILE_COLUMNS][MATRIX_PANEL];
    struct block_sides sides[CHUNK_PANELS];
    union {
        tile_groups groups[STREAM_GROUPS];
        struct {
            tile_groups groups[LONG_GROUPS];
            _Alignas(64) char values[LONG_STEPS / BLOCK_VALUES * 2][TILE_COLUMNS][BLOCK_VALUES];
        } tile; /* a block of a tile of columns */
    };
};
_Static_assert(sizeof(struct amx_memory) <= (size_t)196 << 10, "it lies on a worker's stack");

/* All of a call. */
struct amx {
    const struct matrix *w;
    const struct kern_int_columns *c;
    uint32_t columns;     /* columns of a tile */
    uint32_t group_tiles; /* tiles of a group: 1, 2 */
    uint32_t group_units; /* units of a group: 1, 2, 4 */
    uint32_t block_groups, long_groups;
    size_t group_bytes, codes_at;    /* bytes of a group of the matrix, and where its codes begin */
    size_t values_at;                /* in a row */
    struct values_form rows, copies; /* rows.stride 0: rows lie anywhere */
    struct amx_memory *memory;
    struct unit units[2]; /* the next one, and the one whose sums have not joined yet */
    uint32_t taken, sets; /* so far */
};

/* ---- a group's sums ---- */

/* Sums of the first panel in tiles 0 and 1, of the second in 2 and 3, low bytes first; columns in 4 and 5;
 * codes in 6 and 7. */
V16_FN void group_int16(const uint8_t *const codes[PANELS], const struct values_form *v, const char *values,
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
    TILE_STORE(0, sums[0], LINE_BYTES);
    TILE_STORE(2, sums[2], LINE_BYTES);
    TILE_STORE(1, sums[1], LINE_BYTES);
    TILE_STORE(3, sums[3], LINE_BYTES);
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
        TILE_STORE(first_, sums[0], LINE_BYTES);                                                             \
        TILE_STORE(second_, sums[1], LINE_BYTES);                                                            \
    } while (0)

/* Groups take turns with two sets of tiles. */
V16_FN void group_int8(const uint8_t *const codes[PANELS], const struct values_form *v, const char *values,
                       uint32_t tiles, uint32_t set, tile_sums *sums)
{
    if (set == 0)
        GROUP_INT8(0, 2, 4);
    else
        GROUP_INT8(1, 3, 5);
}

V16_FN void prefetch_group(const struct amx *a, const uint8_t *at)
{
    for (size_t line = 0; line < a->group_bytes; line += LINE_BYTES)
        _mm_prefetch((const char *)at + line, _MM_HINT_T1);
}

/* Tiles of group `g` of the unit. */
V16_FN void unit_group(const struct amx *a, const struct unit *u, uint32_t g, const int bytes)
{
    const uint32_t unit = g * a->group_units;
    const char *values = u->values + unit / 2 * u->form->step + unit % 2 * 32;
    const uint8_t *codes[PANELS];
    for (uint32_t i = 0; i < PANELS; i++) {
        codes[i] = u->codes[i].at + g * u->codes[i].step;
        if (u->codes[i].ahead)
            prefetch_group(a, u->codes[i].ahead + g * a->group_bytes);
    }
    if (bytes == 1)
        group_int8(codes, u->form, values, a->group_tiles, g % 2, u->sums + g * PANELS);
    else
        group_int16(codes, u->form, values, a->group_tiles, u->sums + (size_t)g * PANELS * 2);
}

/* ---- sums join ---- */

/* Sums of a column as floats: those at `at`, or of low bytes there and of high bytes in the next tile. Each
 * of the two becomes a float without rounding. One rounding remains, that of their sum. */
V16_FN v16 sums_floats(const char *at, const int bytes)
{
    const v16 low = _mm512_cvtepi32_ps(_mm512_load_si512(at));
    if (bytes == 1)
        return low;
    return v16_fma(v16_set(256), _mm512_cvtepi32_ps(_mm512_load_si512(at + TILE_BYTES)), low);
}

/* A group joins the sums of both panels and 8 columns, whose integer sums begin at `sums` and whose scales at
 * `x`. Some of those may not be columns. */
V16_FN void join_group(const char *sums, const struct quants_group *x, const struct block_sides *sides,
                       uint32_t g, const int bytes, v16 acc[PANELS][HALF_COLUMNS])
{
    const v16 scale0 = v16_load(sides[0].scales[g]), bias0 = v16_load(sides[0].biases[g]);
    const v16 scale1 = v16_load(sides[1].scales[g]), bias1 = v16_load(sides[1].biases[g]);
    UNROLL for (size_t j = 0; j < HALF_COLUMNS; j++)
    {
        const char *at = sums + j * LINE_BYTES;
        v16 scale = v16_set(x[j].scale), sum = v16_set(x[j].sum);
        v16 y0 = v16_fma(sums_floats(at, bytes), v16_mul(scale0, scale), acc[0][j]);
        v16 y1 = v16_fma(sums_floats(at + bytes * TILE_BYTES, bytes), v16_mul(scale1, scale), acc[1][j]);
        acc[0][j] = v16_fma(bias0, sum, y0);
        acc[1][j] = v16_fma(bias1, sum, y1);
    }
}

/* The sums of `last` join, beside the tiles of `next`. */
V16_FN void unit_run(const struct amx *a, const struct unit *next, const struct unit *last, const int bytes)
{
    const uint32_t halves = last->groups == 0 ? 0 : a->columns > HALF_COLUMNS ? 2 : 1;
    uint32_t done = 0;
    for (uint32_t half = 0; half < halves; half++) {
        const size_t j0 = (size_t)half * HALF_COLUMNS;
        const char *sums = (const char *)last->sums[0][j0];
        float *at0 = last->acc[0] + j0 * MATRIX_PANEL, *at1 = last->acc[1] + j0 * MATRIX_PANEL;
        v16 acc[PANELS][HALF_COLUMNS];
        UNROLL for (size_t j = 0; j < HALF_COLUMNS; j++)
        {
            acc[0][j] = v16_load(at0 + j * MATRIX_PANEL);
            acc[1][j] = v16_load(at1 + j * MATRIX_PANEL);
        }
        for (uint32_t g = 0; g < last->groups; g++, sums += PANELS * bytes * TILE_BYTES) {
            if (done < next->groups && done * halves <= half * last->groups + g)
                unit_group(a, next, done++, bytes);
            join_group(sums, last->columns[g] + j0, last->sides, g, bytes, acc);
        }
        UNROLL for (size_t j = 0; j < HALF_COLUMNS; j++)
        {
            v16_store(at0 + j * MATRIX_PANEL, acc[0][j]);
            v16_store(at1 + j * MATRIX_PANEL, acc[1][j]);
        }
    }
    for (; done < next->groups; done++)
        unit_group(a, next, done, bytes);
}

static void unit_run_int8(const struct amx *a, const struct unit *next, const struct unit *last)
{
    unit_run(a, next, last, 1);
}

static void unit_run_int16(const struct amx *a, const struct unit *next, const struct unit *last)
{
    unit_run(a, next, last, 2);
}

/* The place of the next unit. */
static struct unit *unit_next(struct amx *a)
{
    return &a->units[a->taken % 2];
}

/* Computes the tiles of the next unit. Its sums join with the next call. */
static void unit_put(struct amx *a)
{
    struct unit *u = unit_next(a);
    const struct unit *last = &a->units[++a->taken % 2];
    u->sums = a->memory->sums[a->taken % 2];
    if (a->c->bytes == 1)
        unit_run_int8(a, u, last);
    else
        unit_run_int16(a, u, last);
}

static void units_end(struct amx *a)
{
    unit_next(a)->groups = 0;
    unit_put(a);
}

/* ---- blocks of k ---- */

/* Groups [g, g + groups) of a panel. `ahead`: its codes come from memory, and the lines that are read this
 * much later are prefetched. */
static void take_weights(const struct amx *a, struct block_codes *ret, uint8_t *unpacked,
                         struct block_sides *sides, uint32_t panel, uint32_t g, uint32_t groups, size_t ahead)
{
    const struct matrix *w = a->w;
    const uint8_t *data = (const uint8_t *)w->data + panel * matrix_panel_bytes(w);
    const uint8_t *at = data + matrix_group_offset(w, g);
    const bool plain = w->bits == 8 && w->super == 0;
    ret->at = plain ? at + a->codes_at : unpacked;
    ret->step = plain ? a->group_bytes : (size_t)w->group * MATRIX_PANEL;
    ret->ahead = ahead ? at + ahead : NULL;
    for (uint32_t i = 0; i < groups; i++) {
        if (w->super && i > 0)
            at = data + matrix_group_offset(w, g + i);
        const struct qparams q = group_sides(w, data, g + i, code_of(w), false);
        v16_store(sides->scales[i], q.scale);
        v16_store(sides->biases[i], q.bias);
        if (!plain)
            unpacks[code_of(w)](unpacked + i * ret->step, at + a->codes_at, a->group_units);
        at += a->group_bytes;
    }
}

static const char *row_of(const struct amx *a, uint32_t column, uint32_t count, uint32_t j)
{
    return a->c->x[column + MIN_OF(j, count - 1)];
}

static void take_groups(const struct amx *a, tile_groups *ret, uint32_t column, uint32_t count, uint32_t g,
                        uint32_t groups)
{
    for (uint32_t j = 0; j < TILE_COLUMNS; j++) {
        const struct quants_group *x =
            (const struct quants_group *)(const void *)row_of(a, column, count, j) + g;
        for (uint32_t i = 0; i < groups; i++)
            ret[i][j] = x[i];
    }
}

/* Offset of the values of group g in a row. */
static size_t values_of(const struct amx *a, uint32_t g)
{
    return a->values_at + (size_t)(g * a->group_units / 2) * BLOCK_VALUES * a->c->bytes;
}

/* Copies the values of `count` columns in `groups` groups, as tiles. */
static void copy_values(const struct amx *a, uint32_t column, uint32_t count, uint32_t g, uint32_t groups)
{
    const size_t bytes =
        (size_t)DIV_UP(groups * a->w->group, (uint32_t)BLOCK_VALUES) * a->c->bytes * BLOCK_VALUES;
    char(*to)[BLOCK_VALUES] = a->memory->tile.values[0];
    for (uint32_t j = 0; j < a->columns; j++, to++) {
        const char *from = row_of(a, column, count, j) + values_of(a, g);
        for (size_t i = 0; i < bytes; i += BLOCK_VALUES)
            _mm512_store_si512(to[i / BLOCK_VALUES * TILE_COLUMNS], _mm512_loadu_si512(from + i));
    }
}

/* ---- chunks ---- */

struct chunk {
    uint32_t panel, panels, column, columns;
};

/* A missing panel is a copy of the last one, whose sums are not stored. */
static float *acc_of(const struct amx *a, const struct chunk *t, uint32_t panel, uint32_t tile)
{
    return panel < t->panels ? a->memory->acc[panel][tile][0] : a->memory->nowhere[0];
}

static uint32_t panel_of(const struct chunk *t, uint32_t panel)
{
    return t->panel + MIN_OF(panel, t->panels - 1);
}

static void store_outputs(const struct amx *a, const struct chunk *t)
{
    for (uint32_t j = 0; j < t->columns; j++) {
        for (uint32_t i = 0; i < t->panels; i++) {
            uint32_t row = (t->panel + i) * MATRIX_PANEL,
                     left = MIN_OF(a->w->n - row, (uint32_t)MATRIX_PANEL);
            v16_store_n(a->c->y[t->column + j] + row,
                        v16_load(a->memory->acc[i][j / a->columns][j % a->columns]), left);
        }
    }
}

static void clear(const struct amx *a, const struct chunk *t)
{
    for (uint32_t i = 0; i < t->panels; i++)
        memset(a->memory->acc[i], 0, DIV_UP(t->columns, a->columns) * sizeof a->memory->acc[0][0]);
}

/* ---- more than 16 columns ---- */

/* A panel, 16 columns and the groups of a block. */
struct long_unit {
    struct block_codes codes;
    const struct block_sides *sides;
    const struct values_form *form;
    const char *values;
    float *acc; /* [16][MATRIX_PANEL] */
    uint32_t groups;
};

/* Where the values of group `g` begin. */
V16_FN const char *long_values(const struct amx *a, const struct long_unit *u, uint32_t g)
{
    const uint32_t unit = g * a->group_units;
    return u->values + unit / 2 * u->form->step + unit % 2 * 32;
}

V16_FN void long_prefetch(const struct amx *a, const struct long_unit *u, uint32_t g)
{
    if (u->codes.ahead)
        prefetch_group(a, u->codes.ahead + g * a->group_bytes);
}

/* A group joins the sums of the columns [from, to). */
V16_FN void long_join(const char *sums, const struct quants_group *x, v16 scale, v16 bias, const size_t from,
                      const size_t to, const int bytes, v16 acc[TILE_COLUMNS])
{
    UNROLL for (size_t j = from; j < to; j++)
    {
        v16 y =
            v16_fma(sums_floats(sums + j * LINE_BYTES, bytes), v16_mul(scale, v16_set(x[j].scale)), acc[j]);
        acc[j] = v16_fma(bias, v16_set(x[j].sum), y);
    }
}

/* The tiles of group `g_`: sums in tiles `low_` and `high_`, which are zero, codes in `w_`. JOIN(from, to)
 * stands between the instructions. */
#define LONG_TILES(g_, low_, high_, w_, JOIN)                                                                \
    do {                                                                                                     \
        const char *values = long_values(a, u, g_);                                                          \
        const uint8_t *codes = u->codes.at + (g_)*u->codes.step;                                             \
        TILE_LOAD(w_, codes, LINE_BYTES);                                                                    \
        JOIN(4, 7);                                                                                          \
        TILE_LOAD(4, values, stride);                                                                        \
        JOIN(7, 10);                                                                                         \
        TILE_DOT_BYTES(low_, 4, w_);                                                                         \
        if (bytes == 2)                                                                                      \
            TILE_LOAD(5, values + high, stride);                                                             \
        JOIN(10, 13);                                                                                        \
        if (bytes == 2)                                                                                      \
            TILE_DOT_BYTES(high_, 5, w_);                                                                    \
        JOIN(13, 16);                                                                                        \
        for (uint32_t i = 1; i < a->group_tiles; i++) {                                                      \
            TILE_LOAD(w_, codes + (size_t)i * TILE_BYTES, LINE_BYTES);                                       \
            TILE_LOAD(4, values + i * u->form->step, stride);                                                \
            TILE_DOT_BYTES(low_, 4, w_);                                                                     \
            if (bytes == 2) {                                                                                \
                TILE_LOAD(5, values + i * u->form->step + high, stride);                                     \
                TILE_DOT_BYTES(high_, 5, w_);                                                                \
            }                                                                                                \
        }                                                                                                    \
        TILE_ZERO(w_);                                                                                       \
        TILE_ZERO(4);                                                                                        \
        if (bytes == 2)                                                                                      \
            TILE_ZERO(5);                                                                                    \
    } while (0)

#define LONG_STORE(low_, high_, sums_)                                                                       \
    do {                                                                                                     \
        TILE_STORE(low_, sums_, LINE_BYTES);                                                                 \
        TILE_ZERO(low_);                                                                                     \
        if (bytes == 2) {                                                                                    \
            TILE_STORE(high_, (sums_) + TILE_BYTES, LINE_BYTES);                                             \
            TILE_ZERO(high_);                                                                                \
        }                                                                                                    \
    } while (0)

#define LONG_JOIN(from_, to_) long_join(at, x, scale, bias, from_, to_, bytes, acc)
#define LONG_NO_JOIN(from_, to_)

/* Group `g_`, whose sums lie at `sums_`, joins. Meanwhile the sums of the next group leave their tiles for
 * `next_`, and the tiles of the one after it are computed, in those of `g_`. */
#define LONG_STEP(g_, low_, high_, w_, sums_, next_low_, next_high_, next_)                                  \
    do {                                                                                                     \
        const char *at = (sums_);                                                                            \
        const struct quants_group *x = a->memory->tile.groups[g_];                                           \
        const v16 scale = v16_load(u->sides->scales[g_]), bias = v16_load(u->sides->biases[g_]);             \
        LONG_JOIN(0, 4);                                                                                     \
        if ((g_) + 1 < u->groups)                                                                            \
            LONG_STORE(next_low_, next_high_, next_);                                                        \
        if ((g_) + 2 < u->groups) {                                                                          \
            long_prefetch(a, u, (g_) + 2);                                                                   \
            LONG_TILES((g_) + 2, low_, high_, w_, LONG_JOIN);                                                \
        } else {                                                                                             \
            LONG_JOIN(4, 16);                                                                                \
        }                                                                                                    \
    } while (0)

/* Even groups have the tiles 0 and 1, odd ones 2 and 3. All tiles are zero before and after. */
V16_FN void long_run(const struct amx *a, const struct long_unit *u, const int bytes)
{
    char *even = (char *)a->memory->sums[0][0], *odd = (char *)a->memory->sums[0][2];
    const size_t stride = u->form->stride, high = u->form->high;
    v16 acc[TILE_COLUMNS];
    UNROLL for (size_t j = 0; j < TILE_COLUMNS; j++) acc[j] = v16_load(u->acc + j * MATRIX_PANEL);
    long_prefetch(a, u, 0);
    LONG_TILES(0, 0, 1, 6, LONG_NO_JOIN);
    LONG_STORE(0, 1, even);
    if (u->groups > 1) {
        long_prefetch(a, u, 1);
        LONG_TILES(1, 2, 3, 7, LONG_NO_JOIN);
    }
    for (uint32_t g = 0; g < u->groups; g += 2) {
        LONG_STEP(g, 0, 1, 6, even, 2, 3, odd);
        if (g + 1 < u->groups)
            LONG_STEP(g + 1, 2, 3, 7, odd, 0, 1, even);
    }
    UNROLL for (size_t j = 0; j < TILE_COLUMNS; j++) v16_store(u->acc + j * MATRIX_PANEL, acc[j]);
}

static void long_run_int8(const struct amx *a, const struct long_unit *u)
{
    long_run(a, u, 1);
}

static void long_run_int16(const struct amx *a, const struct long_unit *u)
{
    long_run(a, u, 2);
}

/* Whether a tile of `count` columns can be loaded from its rows. */
static bool tile_is_direct(const struct amx *a, uint32_t count)
{
    return a->rows.stride != 0 && count == a->columns;
}

/* A tile of columns meets all panels of the chunk in the groups [g, g + groups). The first tile prefetches
 * the codes of the next block. */
static void tile_run(const struct amx *a, const struct chunk *t, uint32_t tile,
                     const struct block_codes codes[CHUNK_PANELS], uint32_t g, uint32_t groups)
{
    struct amx_memory *m = a->memory;
    const uint32_t from = tile * a->columns, column = t->column + from,
                   count = MIN_OF(a->columns, t->columns - from);
    const bool direct = tile_is_direct(a, count);
    ASSERT(from < t->columns && groups <= a->long_groups);
    struct long_unit u = {.form = direct ? &a->rows : &a->copies, .groups = groups};
    take_groups(a, m->tile.groups, column, count, g, groups);
    if (!direct)
        copy_values(a, column, count, g, groups);
    u.values = direct ? (const char *)a->c->x[column] + values_of(a, g) : m->tile.values[0][0];
    for (uint32_t panel = 0; panel < t->panels; panel++) {
        u.codes = codes[panel];
        if (tile > 0)
            u.codes.ahead = NULL;
        u.sides = &m->sides[panel];
        u.acc = m->acc[panel][tile][0];
        if (a->c->bytes == 1)
            long_run_int8(a, &u);
        else
            long_run_int16(a, &u);
    }
}

static void chunk_run(const struct amx *a, const struct chunk *t)
{
    struct amx_memory *m = a->memory;
    const uint32_t all = a->w->k / a->w->group;
    struct block_codes codes[CHUNK_PANELS];
    ASSERT(a->long_groups > 0 && a->long_groups <= LONG_GROUPS && t->panels <= CHUNK_PANELS);
    clear(a, t);
    for (uint32_t g = 0; g < all; g += a->long_groups) {
        const uint32_t groups = MIN_OF(a->long_groups, all - g);
        for (uint32_t panel = 0; panel < t->panels; panel++)
            take_weights(a, &codes[panel], m->codes[panel], &m->sides[panel], t->panel + panel, g, groups,
                         groups * a->group_bytes);
        for (uint32_t tile = 0; tile * a->columns < t->columns; tile++)
            tile_run(a, t, tile, codes, g, groups);
    }
    store_outputs(a, t);
}

/* ---- at most 16 columns ---- */

static bool can_stream(const struct amx *a)
{
    return a->c->count <= TILE_COLUMNS && a->rows.stride != 0 && a->w->k / a->w->group <= STREAM_GROUPS;
}

static void stream_run(struct amx *a, const struct chunk *t)
{
    struct amx_memory *m = a->memory;
    const uint32_t all = a->w->k / a->w->group;
    struct block_codes codes[PANELS];
    clear(a, t);
    take_groups(a, m->groups, 0, t->columns, 0, all);
    for (uint32_t panel = 0; panel < t->panels; panel += PANELS) {
        for (uint32_t g = 0; g < all; g += a->block_groups) {
            struct block_sides *sides = m->sides + a->sets++ % 2 * PANELS;
            struct unit *u = unit_next(a);
            u->groups = MIN_OF(a->block_groups, all - g);
            for (uint32_t i = 0; i < PANELS; i++)
                take_weights(a, &codes[i], m->codes[i], &sides[i], panel_of(t, panel + i), g, u->groups,
                             AHEAD_BYTES);
            u->codes = codes;
            u->sides = sides;
            u->form = &a->rows;
            u->values = (const char *)a->c->x[0] + values_of(a, g);
            u->columns = (const tile_groups *)m->groups + g;
            u->acc[0] = acc_of(a, t, panel, 0);
            u->acc[1] = acc_of(a, t, panel + 1, 0);
            unit_put(a);
        }
    }
    units_end(a);
    store_outputs(a, t);
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
    struct amx_memory memory;
    const struct tile_config config = tiles_of(a);
    const bool stream = can_stream(a);
    a->memory = &memory;
    memset(memory.sums, 0, sizeof memory.sums);
    tile_configure(&config);
    struct chunk t;
    for (t.panel = panel_begin; t.panel < panel_end; t.panel += CHUNK_PANELS) {
        t.panels = MIN_OF((uint32_t)CHUNK_PANELS, panel_end - t.panel);
        for (t.column = 0; t.column < a->c->count; t.column += t.columns) {
            t.columns = MIN_OF(a->c->count - t.column, CHUNK_TILES * a->columns);
            if (stream)
                stream_run(a, &t);
            else
                chunk_run(a, &t);
        }
    }
    tile_release();
}

static void tier_int_matmul(const struct matrix *w, const struct kern_int_columns *c, uint32_t panel_begin,
                            uint32_t panel_end)
{
    const struct quants q = {w->k, w->group, c->bytes};
    /* A tile of 16 steps would be a quarter of one. */
    if (c->count < TILE_COLUMNS_MIN || matrix_pairs_groups(w)) {
        kern_int_vnni_matmul(w, c, panel_begin, panel_end);
        return;
    }
    ASSERT(w->form == MATRIX_QUADS && w->group % QUANTS_UNIT == 0 && w->group <= 128);
    ASSERT((w->bits == 8 || unpacks[code_of(w)]) && (c->bytes == 1 || c->bytes == 2));
    struct amx a = {.w = w, .c = c, .values_at = quants_values_at(&q)};
    a.columns = DIV_UP(c->count, DIV_UP(c->count, (uint32_t)TILE_COLUMNS));
    a.group_units = w->group / QUANTS_UNIT;
    a.group_tiles = MAX_OF(a.group_units / 2, 1u);
    a.group_bytes = matrix_group_bytes(w);
    a.codes_at = matrix_sides_bytes(w);
    a.block_groups = MIN_OF((uint32_t)BLOCK_GROUPS, BLOCK_STEPS / w->group);
    a.long_groups = LONG_STEPS / w->group;
    a.rows = (struct values_form){kern_stride(c->x, c->count), BLOCK_VALUES * c->bytes, BLOCK_VALUES};
    a.copies = (struct values_form){BLOCK_VALUES, TILE_BYTES * c->bytes, TILE_BYTES};
    amx_call(&a, panel_begin, panel_end);
}

void kern_int_amx_fill(struct kern_ops *ops)
{
    ops->int_tier = "amx";
    ops->int_matmul = tier_int_matmul;
    ops->int_panels_many = 8;
    ops->int_columns_many = CHUNK_TILES * TILE_COLUMNS;
}
#endif
