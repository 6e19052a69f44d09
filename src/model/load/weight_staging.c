/* weight_staging.c - a piece is read and then packed while it is in the cache. A larger stage loads no
 * faster. After each piece the load checks whether it was cancelled and whether an engine computes. */
#include "model/load/weight_staging.h"

#include "base/check.h"
#include "base/pages.h"
#include "tensor/block_form.h"
#include "tensor/quantise.h"
#include "weights/checkpoint.h"
#include "weights/stored_form.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN ((size_t)64)
/* Weight, scales, biases and what lies above them each begin at a rounded offset, and codes or a line. */
#define STAGE_ROUND (5 * ALIGN)

static size_t aligned(size_t bytes)
{
    return ROUND_UP(bytes, ALIGN);
}

static size_t row_of(const struct tensor *t)
{
    return t->bytes / (size_t)t->shape[0];
}

/* Bytes of a row of blocks: codes, scales or biases, and upper scales. */
static size_t codes_of(const struct linear_source *s)
{
    return (size_t)(s->in * s->bits / 8);
}

static size_t sides_of(const struct linear_source *s)
{
    return (size_t)(s->in / s->group) * dtype_bytes(s->scales.dtype);
}

static size_t supers_of(const struct linear_source *s)
{
    size_t each = s->bias_kind == BIASES_STORED ? 2 : 1;
    return s->super ? (size_t)(s->in / s->super) * each * dtype_bytes(s->supers.dtype) : 0;
}

/* Bytes of `count` rows: weight, scales and biases. */
static size_t rows_bytes(const struct linear_source *s, uint64_t count)
{
    size_t n = (size_t)count;
    if (s->stored)
        return stored_form_bytes(s, count);
    size_t bytes = aligned(n * row_of(&s->weight));
    if (s->weight.form)
        return bytes + aligned(n * codes_of(s)) + 2 * aligned(n * sides_of(s)) + aligned(n * supers_of(s));
    if (s->affine)
        bytes += aligned(n * row_of(&s->scales));
    return s->affine && s->bias_kind == BIASES_STORED ? bytes + aligned(n * row_of(&s->biases)) : bytes;
}

/* Bytes of a row that is quantised. */
static size_t made_of(const struct linear_source *s)
{
    return codes_of(s) + 2 * sides_of(s);
}

/* Codes, scales and biases. */
#define MADE_ROUND (4 * ALIGN)

/* The source reads strips of columns. */
static bool in_strips(const struct linear_source *s)
{
    return s->stored && s->stored->layout != STORED_ROWS;
}

uint64_t weight_staging_whole_bytes(const struct linear_source *s)
{
    ASSERT(!s->at_load);
    return rows_bytes(s, s->out) + STAGE_ROUND;
}

/* Rows of a transposed matrix: what one takes, with its value of a line of the tensor and the one beside it
 * that is interleaved. */
static size_t transposed_row(const struct linear_source *s)
{
    size_t value = dtype_bytes(s->weight.dtype);
    return (size_t)s->in * value + (s->interleaved ? 2 : 1) * value;
}

/* Rows, and a line, begin at a rounded offset. */
#define TRANSPOSED_ROUND (2 * ALIGN)

static uint64_t transposed_bytes(const struct linear_source *s)
{
    size_t one = transposed_row(s), most = WEIGHT_STAGING_TRANSPOSED_BYTES / one;
    return MIN_OF(MAX_OF(most, (size_t)1), (size_t)s->out) * one + TRANSPOSED_ROUND;
}

/* Bytes that a row of floats takes before it is quantised, and of rounding. */
static size_t floats_of(const struct linear_source *s, size_t *round)
{
    *round = s->transposed ? TRANSPOSED_ROUND : STAGE_ROUND;
    return s->transposed ? transposed_row(s) : row_of(&s->weight);
}

static uint64_t quantised_bytes(const struct linear_source *s)
{
    size_t round, one = floats_of(s, &round) + made_of(s);
    size_t most = (s->transposed ? WEIGHT_STAGING_TRANSPOSED_BYTES : WEIGHT_STAGING_BYTES) / one;
    return MIN_OF(MAX_OF(most, (size_t)1), (size_t)s->out) * one + round + MADE_ROUND;
}

uint64_t weight_staging_matrix_bytes(const struct linear_source *s)
{
    if (s->at_load)
        return quantised_bytes(s);
    if (s->transposed)
        return transposed_bytes(s);
    uint64_t one = rows_bytes(s, 1) + STAGE_ROUND,
             most = in_strips(s) ? WEIGHT_STAGING_TRANSPOSED_BYTES : WEIGHT_STAGING_BYTES;
    return MAX_OF(one, MIN_OF(most, (uint64_t)rows_bytes(s, s->out) + STAGE_ROUND));
}

uint64_t weight_staging_vector_bytes(const struct tensor *t)
{
    return aligned(t->bytes);
}

int weight_staging_init(struct weight_staging *s, const struct checkpoint *c, struct account *account,
                        uint64_t bytes)
{
    *s = (struct weight_staging){.checkpoint = c, .account = account};
    if (account && account_reserve(account, bytes) < 0)
        return -ENOMEM;
    s->bytes = (size_t)bytes;
    void *p = mmap(NULL, s->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->memory = p == MAP_FAILED ? NULL : p;
    if (s->memory && pages_commit(s->memory, s->bytes) < 0) {
        pages_unmap(s->memory, s->bytes, s->memory, 0);
        s->memory = NULL;
    }
    if (s->memory && account)
        account_use(account, s->bytes);
    if (!s->memory && account)
        account_release(account, s->bytes);
    return s->memory ? 0 : -ENOMEM;
}

void weight_staging_done(struct weight_staging *s)
{
    if (s->memory) {
        pages_unmap(s->memory, s->bytes, s->memory, s->bytes);
        if (s->account) {
            account_unuse(s->account, s->bytes);
            account_release(s->account, s->bytes);
        }
    }
    *s = (struct weight_staging){0};
}

/* ---- reading ---- */

/* One row whose columns lie in another order, unit by unit. */
static int read_columns(struct weight_staging *s, const struct tensor *from,
                        const struct tensor_reorder *order, size_t row_at, char *to, struct err *e)
{
    size_t value = dtype_bytes(from->dtype), in = (size_t)from->shape[1];
    int r = 0;
    for (size_t k = 0, n; r == 0 && k < in; k += n) {
        n = (size_t)(k < order->from ? order->from : order->size);
        r = checkpoint_read(s->checkpoint, from, row_at + (size_t)tensor_reorder_at(order, k) * value,
                            to + k * value, n * value, e);
    }
    return r;
}

/* Rows of a tensor that has them, or its columns, in another order. */
static int read_ordered(struct weight_staging *s, const struct linear_source *source,
                        const struct tensor *from, uint64_t first, uint64_t count, char *to, struct err *e)
{
    size_t row = row_of(from);
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < count; i++, to += row) {
        size_t at = (size_t)tensor_reorder_at(&source->row_order, first + i) * row;
        r = !from->form && source->column_order.rows > 0
                ? read_columns(s, from, &source->column_order, at, to, e)
                : checkpoint_read(s->checkpoint, from, at, to, row, e);
    }
    return r;
}

static bool is_ordered(const struct linear_source *s)
{
    return s->row_order.rows > 0 || s->column_order.rows > 0;
}

/* Reads rows [first, first + count) of `from`, a tensor of `source`, to `at`; moves `at` past them. */
static int read_rows(struct weight_staging *s, const struct linear_source *source, const struct tensor *from,
                     uint64_t first, uint64_t count, size_t *at, struct tensor *ret, struct err *e)
{
    size_t row = row_of(from);
    struct tensor t = *from;
    t.shape[0] = count;
    t.bytes = (size_t)count * row;
    ASSERT(*at + t.bytes <= s->bytes);
    ASSERT(!source->affine || source->weight.form || source->column_order.rows == 0);
    int r = is_ordered(source)
                ? read_ordered(s, source, from, first, count, s->memory + *at, e)
                : checkpoint_read(s->checkpoint, from, (size_t)first * row, s->memory + *at, t.bytes, e);
    t.data = s->memory + *at;
    *at += aligned(t.bytes);
    *ret = t;
    return r;
}

static uint64_t rows_that_fit(const struct weight_staging *s, const struct linear_source *from)
{
    size_t one, round = STAGE_ROUND;
    if (from->stored) {
        one = stored_form_row_bytes(from);
        round += stored_form_bytes(from, 1) - MIN_OF(one, stored_form_bytes(from, 1));
    } else {
        one = row_of(&from->weight);
        if (from->weight.form)
            one += codes_of(from) + 2 * sides_of(from) + supers_of(from);
        else if (from->affine)
            one += row_of(&from->scales) + (from->bias_kind == BIASES_STORED ? row_of(&from->biases) : 0);
    }
    return s->bytes > round ? MAX_OF((s->bytes - round) / MAX_OF(one, (size_t)1), (size_t)1) : 1;
}

/* Rows of a transposed matrix that have room, at most `most`, all from one half of interleaved ones. */
static uint64_t transposed_that_fit(const struct weight_staging *s, const struct linear_source *from,
                                    uint64_t first, uint64_t most)
{
    uint64_t half = from->interleaved ? from->out / 2 : from->out, end = first < half ? half : from->out;
    ASSERT(s->bytes >= transposed_row(from) + TRANSPOSED_ROUND);
    return MIN_OF((s->bytes - TRANSPOSED_ROUND) / transposed_row(from), MIN_OF(end - first, most));
}

/* Values 0, step, 2 * step, ... of a line become one column of rows of `in` values. */
static void spread_line(char *column, const char *line, size_t count, size_t step, size_t in, size_t value)
{
    for (size_t i = 0; i < count; i++)
        memcpy(column + i * in * value, line + i * step * value, value);
}

static int transposed_rows(struct weight_staging *s, const struct linear_source *from, uint64_t first,
                           uint64_t most, struct linear_source *ret, struct err *e)
{
    struct linear_source piece = *from;
    size_t value = dtype_bytes(from->weight.dtype), in = (size_t)from->in, step = from->interleaved ? 2 : 1;
    size_t count = (size_t)transposed_that_fit(s, from, first, most);
    size_t begin = (size_t)linear_source_column(from, first) * value, span = ((count - 1) * step + 1) * value;
    char *line = s->memory + aligned(count * in * value);
    ASSERT(count > 0 && line + span <= s->memory + s->bytes);
    checkpoint_ahead(s->checkpoint, &from->weight);
    for (size_t k = 0; k < in; k++) {
        int r = checkpoint_read(s->checkpoint, &from->weight, k * (size_t)from->out * value + begin, line,
                                span, e);
        if (r < 0)
            return r;
        spread_line(s->memory + k * value, line, count, step, in, value);
    }
    piece.transposed = piece.interleaved = false;
    piece.out = count;
    piece.weight.shape[0] = count;
    piece.weight.shape[1] = in;
    piece.weight.bytes = count * in * value;
    piece.weight.data = s->memory;
    *ret = piece;
    return 0;
}

/* ---- blocks ---- */

/* Codes [0, group) of one group as a stream of `bits` bits each, lowest bit first. */
static void put_codes(uint8_t *to, const uint8_t *codes, uint32_t group, uint32_t bits)
{
    uint32_t held = 0, have = 0;
    if (bits == 8) {
        memcpy(to, codes, group);
        return;
    }
    if (bits == 4) {
        for (uint32_t i = 0; i < group / 2; i++)
            to[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
        return;
    }
    for (uint32_t i = 0; i < group; i++) {
        held |= (uint32_t)codes[i] << have;
        for (have += bits; have >= 8; have -= 8, held >>= 8)
            *to++ = (uint8_t)held;
    }
    ASSERT(have == 0);
}

/* Where the rows of a piece go. */
struct split {
    uint8_t *codes, *scales, *biases;
    uint16_t *supers;
};

/* The parts of one group. */
static void put_group(const struct linear_source *from, const struct block_parts *p, uint32_t i, uint64_t g,
                      const struct split *to)
{
    const struct block_form *f = from->weight.form;
    size_t bytes = dtype_bytes(f->scales);
    const bool halves = f->scales == DTYPE_F16;
    put_codes(to->codes + g * f->group * f->bits / 8, p->codes + i, f->group, f->bits);
    memcpy(to->scales + g * bytes, halves ? (const void *)&p->half : &p->scales[i / f->group], bytes);
    memcpy(to->biases + g * bytes, halves ? (const void *)&p->bias_half : &p->biases[i / f->group], bytes);
}

static void put_super(const struct linear_source *from, const struct block_parts *p, uint64_t at,
                      uint16_t *supers)
{
    if (from->bias_kind == BIASES_STORED) {
        supers[2 * at] = p->half;
        supers[2 * at + 1] = p->bias_half;
    } else {
        supers[at] = p->half;
    }
}

/* A row of blocks becomes codes, scales and biases; groups of columns move to their places. */
static void split_row(const struct linear_source *from, const char *row, const struct split *to)
{
    const struct block_form *f = from->weight.form;
    const struct tensor_reorder *o = &from->column_order;
    /* The inverse of a transposition is the other transposition. */
    const struct tensor_reorder back = {o->from, o->columns, o->rows, o->size};
    const bool levels = from->super && from->supers.dtype == DTYPE_F16;
    struct block_parts p;
    for (uint64_t k = 0; k < from->in; k += f->values, row += f->bytes) {
        block_form_split(f, row, &p);
        for (uint32_t i = 0; i < f->values; i += f->group)
            put_group(from, &p, i, tensor_reorder_at(&back, k + i) / f->group, to);
        for (uint32_t i = 0; levels && i < f->values; i += from->super)
            put_super(from, &p, tensor_reorder_at(&back, k + i) / from->super, to->supers);
    }
}

/* The matrix's one factor of all scales, which is not in its blocks, for each of `count` rows. */
static int read_factor(struct weight_staging *s, const struct linear_source *from, size_t count,
                       float *supers, struct err *e)
{
    float value;
    ASSERT(from->super == from->in && from->supers.bytes == sizeof(value));
    int r = checkpoint_read(s->checkpoint, &from->supers, 0, &value, sizeof(value), e);
    for (size_t i = 0; r == 0 && i < count; i++)
        supers[i] = value;
    return r;
}

/* The piece's rows of blocks, which have been read, become an affine matrix from `at` on. */
static int split_rows(struct weight_staging *s, const struct linear_source *from, size_t at,
                      struct linear_source *piece, struct err *e)
{
    size_t n = (size_t)piece->out, codes = codes_of(from), sides = sides_of(from), supers = supers_of(from),
           row = row_of(&from->weight);
    const char *blocks = piece->weight.data;
    char *const codes_at = s->memory + at, *const scales_at = codes_at + aligned(n * codes),
                *const biases_at = scales_at + aligned(n * sides),
                *const supers_at = biases_at + aligned(n * sides);
    ASSERT(supers_at + n * supers <= s->memory + s->bytes);
    for (size_t i = 0; i < n; i++) {
        const struct split to = {.codes = (uint8_t *)codes_at + i * codes,
                                 .scales = (uint8_t *)scales_at + i * sides,
                                 .biases = (uint8_t *)biases_at + i * sides,
                                 .supers = (uint16_t *)(void *)(supers_at + i * supers)};
        split_row(from, blocks + i * row, &to);
    }
    piece->weight = tensor_in_memory(DTYPE_U32, n, codes, codes_at);
    piece->scales = tensor_in_memory(from->scales.dtype, n, sides, scales_at);
    piece->biases = tensor_in_memory(from->scales.dtype, n, sides, biases_at);
    piece->supers = tensor_in_memory(from->supers.dtype, n, supers, supers_at);
    return from->super && from->supers.dtype == DTYPE_F32
               ? read_factor(s, from, n, (float *)(void *)supers_at, e)
               : 0;
}

static int stored_rows(struct weight_staging *s, const struct linear_source *from, uint64_t first,
                       uint64_t most, struct linear_source *ret, struct err *e)
{
    uint64_t count = MIN_OF(rows_that_fit(s, from), MIN_OF(from->out - first, most));
    ASSERT(stored_form_bytes(from, count) <= s->bytes);
    if (in_strips(from))
        checkpoint_ahead(s->checkpoint, &from->weight);
    return stored_form_rows(s->checkpoint, from, first, count, s->memory, ret, e);
}

/* ---- floats that become codes ---- */

/* One row of floats, the `row`-th of `rows`. */
static void quantise_row(const struct linear_source *rows, uint64_t row, const struct linear_source *form,
                         const struct split *to)
{
    float x[QUANTISE_GROUP_MAX];
    uint8_t codes[QUANTISE_GROUP_MAX];
    const uint32_t group = form->group;
    ASSERT(group <= QUANTISE_GROUP_MAX && form->in % group == 0);
    for (uint64_t g = 0; g < form->in / group; g++) {
        uint16_t scale, bias;
        for (uint32_t i = 0; i < group; i++)
            x[i] = tensor_f32_at(&rows->weight, row * form->in + g * group + i);
        quantise_values(x, group, form->bits, codes, &scale, &bias);
        put_codes(to->codes + g * group * form->bits / 8, codes, group, form->bits);
        memcpy(to->scales + g * sizeof(scale), &scale, sizeof(scale));
        memcpy(to->biases + g * sizeof(bias), &bias, sizeof(bias));
    }
}

/* Rows of floats that fit in a stage with what becomes of them. */
static size_t quantised_that_fit(const struct weight_staging *s, const struct linear_source *from)
{
    size_t round, one = floats_of(from, &round);
    ASSERT(s->bytes >= one + made_of(from) + round + MADE_ROUND);
    return (s->bytes - round - MADE_ROUND) / (one + made_of(from));
}

/* Rows of floats are read into the first part of the stage; their codes follow. */
static int quantised_rows(struct weight_staging *s, const struct linear_source *from, uint64_t first,
                          uint64_t most, struct linear_source *ret, struct err *e)
{
    struct linear_source floats = *from, piece = *from, rows;
    struct weight_staging part = *s;
    size_t round, one = floats_of(from, &round), codes = codes_of(from), sides = sides_of(from);
    part.bytes = quantised_that_fit(s, from) * one + round;
    floats.at_load = floats.affine = false;
    int r = weight_staging_rows(&part, &floats, first, most, &rows, e);
    if (r < 0)
        return r;
    const size_t n = (size_t)rows.out;
    char *const codes_at = s->memory + aligned(part.bytes), *const scales_at = codes_at + aligned(n * codes),
                *const biases_at = scales_at + aligned(n * sides);
    ASSERT(biases_at + n * sides <= s->memory + s->bytes);
    for (size_t i = 0; i < n; i++) {
        const struct split to = {.codes = (uint8_t *)codes_at + i * codes,
                                 .scales = (uint8_t *)scales_at + i * sides,
                                 .biases = (uint8_t *)biases_at + i * sides};
        quantise_row(&rows, i, from, &to);
    }
    piece.at_load = piece.transposed = piece.interleaved = false;
    piece.row_order = piece.column_order = (struct tensor_reorder){0};
    piece.out = n;
    piece.weight = tensor_in_memory(DTYPE_U32, n, codes, codes_at);
    piece.scales = tensor_in_memory(DTYPE_F16, n, sides, scales_at);
    piece.biases = tensor_in_memory(DTYPE_F16, n, sides, biases_at);
    *ret = piece;
    return 0;
}

uint64_t weight_staging_rows_max(const struct weight_staging *s, const struct linear_source *from)
{
    uint64_t fit = from->at_load      ? quantised_that_fit(s, from)
                   : from->transposed ? transposed_that_fit(s, from, 0, from->out)
                                      : rows_that_fit(s, from);
    return MIN_OF(fit, from->out);
}

int weight_staging_rows(struct weight_staging *s, const struct linear_source *from, uint64_t first,
                        uint64_t most, struct linear_source *ret, struct err *e)
{
    ASSERT(most > 0 && first < from->out);
    if (from->at_load)
        return quantised_rows(s, from, first, most, ret, e);
    if (from->transposed)
        return transposed_rows(s, from, first, most, ret, e);
    ASSERT(from->weight.rank == 2);
    if (from->stored)
        return stored_rows(s, from, first, most, ret, e);
    struct linear_source piece = *from;
    size_t at = 0;
    piece.out = MIN_OF(rows_that_fit(s, from), MIN_OF(from->out - first, most));
    int r = read_rows(s, from, &from->weight, first, piece.out, &at, &piece.weight, e);
    if (r == 0 && from->weight.form)
        r = split_rows(s, from, at, &piece, e);
    else if (r == 0 && from->affine)
        r = read_rows(s, from, &from->scales, first, piece.out, &at, &piece.scales, e);
    if (r == 0 && from->affine && !from->weight.form && from->bias_kind == BIASES_STORED)
        r = read_rows(s, from, &from->biases, first, piece.out, &at, &piece.biases, e);
    piece.row_order = piece.column_order = (struct tensor_reorder){0};
    if (r == 0)
        *ret = piece;
    return r;
}

int weight_staging_vector(struct weight_staging *s, const struct tensor *from, struct tensor *ret,
                          struct err *e)
{
    struct tensor t = *from;
    ASSERT(t.bytes <= s->bytes);
    t.data = s->memory;
    int r = checkpoint_read(s->checkpoint, from, 0, s->memory, t.bytes, e);
    if (r == 0)
        *ret = t;
    return r;
}
