/* stored_form.c - rows are read as they are; columns strip by strip, of every line the part that the rows
 * have. What a row of codes becomes is the same for all: a source in memory. */
#include "weights/stored_form.h"

#include "weights/checkpoint.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

/* AWQ interleaves the eight columns of a word. */
static const uint8_t awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static const struct stored_form forms[] = {
    {.name = "rows"},
    {.name = "int8", .flip = 0x80},
    {.name = "nvfp4"},
    {.name = "nvfp4 divided", .divides = true},
    {.name = "awq", .layout = STORED_COLUMNS_OUT, .order = awq_order},
    {.name = "gptq", .layout = STORED_COLUMNS_IN, .zeros_less_one = true},
    {.name = "gptq v2", .layout = STORED_COLUMNS_IN},
};

const struct stored_form *stored_form_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    }
    ASSERT(!"a stored form of the table");
    return NULL;
}

/* ---- room ---- */

static size_t aligned(size_t bytes)
{
    return ROUND_UP(bytes, (size_t)64);
}

/* Bytes of a row's codes, scales and upper scales; a zero point is a byte. */
static size_t codes_of(const struct linear_source *s)
{
    return (size_t)(s->in * s->bits / 8);
}

static size_t groups_of(const struct linear_source *s)
{
    return (size_t)(s->in / s->group);
}

static size_t scales_of(const struct linear_source *s)
{
    return groups_of(s) * dtype_bytes(s->scales.dtype);
}

/* The last dimension of a tensor in bytes. */
static size_t line_bytes(const struct tensor *t)
{
    return (size_t)t->shape[t->rank - 1] * dtype_bytes(t->dtype);
}

static uint32_t word_values(const struct linear_source *s)
{
    return 32 / s->bits;
}

/* Returns the bytes that reading needs: a line of scales or zero points, or the part of one for these
 * rows. */
static size_t lines_bytes(const struct linear_source *s, uint64_t count)
{
    size_t zeros = s->bias_kind == BIASES_ZEROS ? (size_t)s->biases.shape[1] * 4 : 0;
    if (s->stored->layout == STORED_ROWS)
        return MAX_OF(line_bytes(&s->scales), zeros);
    return ((size_t)count + 2 * word_values(s)) * 4;
}

/* A row of F32, where that is what reading makes. */
static size_t dense_of(const struct linear_source *s)
{
    return s->affine ? 0 : (size_t)s->in * sizeof(float);
}

size_t stored_form_row_bytes(const struct linear_source *s)
{
    return dense_of(s) + codes_of(s) + scales_of(s) + groups_of(s) + sizeof(float) +
           (s->stored->layout == STORED_ROWS ? 0 : 4);
}

size_t stored_form_bytes(const struct linear_source *s, uint64_t count)
{
    size_t n = (size_t)count;
    return aligned(n * codes_of(s)) + aligned(n * scales_of(s)) + aligned(n * groups_of(s)) +
           aligned(n * sizeof(float)) + aligned(lines_bytes(s, count)) + aligned(n * dense_of(s));
}

/* The rows in memory. */
struct rows {
    const struct checkpoint *c;
    const struct linear_source *s;
    uint64_t first; /* in the tensors */
    size_t count;
    uint8_t *codes, *scales, *zeros, *line;
    float *supers, *dense;
};

static int read_part(const struct rows *r, const struct tensor *t, size_t from, void *into, size_t bytes,
                     struct err *e)
{
    return checkpoint_read(r->c, t, from, into, bytes, e);
}

/* ---- rows ---- */

/* The scales of the line in `line` for row `row`. */
static void spread_scales(const struct rows *r, size_t row)
{
    const struct linear_source *s = r->s;
    size_t bytes = dtype_bytes(s->scales.dtype), groups = groups_of(s);
    uint8_t *to = r->scales + row * scales_of(s);
    for (size_t g = 0; g < groups; g++)
        memcpy(to + g * bytes, r->line + g * s->group / s->scale_columns * bytes, bytes);
}

static int read_scales(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    size_t line = line_bytes(&s->scales);
    uint64_t have = UINT64_MAX;
    int ret = 0;
    for (size_t i = 0; ret == 0 && i < r->count; i++) {
        uint64_t at = s->scale_rows ? (r->first + i) / s->scale_rows : 0;
        if (at != have)
            ret = read_part(r, &s->scales, (size_t)at * line, r->line, line, e);
        have = at;
        if (ret == 0)
            spread_scales(r, i);
    }
    return ret;
}

/* Zero points of row `row`, which the line of words in `line` has at `field`. */
static void spread_zeros(const struct rows *r, size_t row, uint32_t field)
{
    const struct linear_source *s = r->s;
    for (size_t g = 0; g < groups_of(s); g++) {
        uint32_t word;
        memcpy(&word, r->line + g * s->group / s->scale_columns * 4, 4);
        r->zeros[row * groups_of(s) + g] = (uint8_t)(word >> field * s->bits & ((1u << s->bits) - 1));
    }
}

static int read_zeros(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    size_t line = (size_t)s->biases.shape[1] * 4;
    int ret = 0;
    for (size_t i = 0; ret == 0 && i < r->count; i++) {
        uint64_t row = r->first + i;
        ret = read_part(r, &s->biases, (size_t)(row / word_values(s)) * line, r->line, line, e);
        if (ret == 0)
            spread_zeros(r, i, (uint32_t)(row % word_values(s)));
    }
    return ret;
}

static int read_rows(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    size_t bytes = r->count * codes_of(s);
    int ret = read_part(r, &s->weight, (size_t)r->first * codes_of(s), r->codes, bytes, e);
    for (size_t i = 0; ret == 0 && s->stored->flip && i < bytes; i++)
        r->codes[i] ^= s->stored->flip;
    if (ret == 0)
        ret = read_scales(r, e);
    return ret == 0 && s->bias_kind == BIASES_ZEROS ? read_zeros(r, e) : ret;
}

/* ---- columns ---- */

/* Field of value `i` of a word. */
static uint32_t field_of(const struct linear_source *s, uint64_t i)
{
    uint32_t at = (uint32_t)(i % word_values(s));
    return s->stored->order ? s->stored->order[at] : at;
}

/* The words of line `line` that have columns [first, first + count), into r->line. */
static int read_words(const struct rows *r, const struct tensor *t, uint64_t line, struct err *e)
{
    uint32_t each = word_values(r->s);
    uint64_t from = r->first / each, to = (r->first + r->count + each - 1) / each;
    size_t bytes = line_bytes(t);
    return read_part(r, t, (size_t)line * bytes + (size_t)from * 4, r->line, (size_t)(to - from) * 4, e);
}

/* The code of row `row` in the words of read_words(). */
static uint32_t word_code(const struct rows *r, size_t row)
{
    const struct linear_source *s = r->s;
    uint32_t each = word_values(s), word;
    uint64_t column = r->first + row;
    memcpy(&word, r->line + (column / each - r->first / each) * 4, 4);
    return word >> field_of(s, column) * s->bits & (uint32_t)((UINT64_C(1) << s->bits) - 1);
}

/* A line is a step of k, its words have columns. */
static int read_columns_out(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    int ret = 0;
    memset(r->codes, 0, r->count * codes_of(s));
    for (uint64_t k = 0; ret == 0 && k < s->in; k++) {
        ret = read_words(r, &s->weight, k, e);
        size_t at = (size_t)(k * s->bits / 8);
        for (size_t i = 0; ret == 0 && i < r->count; i++)
            r->codes[i * codes_of(s) + at] |= (uint8_t)(word_code(r, i) << k * s->bits % 8);
    }
    return ret;
}

/* A line has a word of every column: some steps of k, as a row has them. */
static int read_columns_in(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    size_t line = line_bytes(&s->weight);
    int ret = 0;
    for (uint64_t k = 0; ret == 0 && k < codes_of(s) / 4; k++) {
        ret = read_part(r, &s->weight, (size_t)k * line + (size_t)r->first * 4, r->line, r->count * 4, e);
        for (size_t i = 0; ret == 0 && i < r->count; i++)
            memcpy(r->codes + i * codes_of(s) + k * 4, r->line + i * 4, 4);
    }
    return ret;
}

/* Adds 1 to each field of the words of read_words(). The writer subtracted it from whole words: a zero point
 * of 0 borrowed from the next one, which the carry gives back. */
static void add_ones(const struct rows *r)
{
    uint32_t each = word_values(r->s), word;
    const uint32_t ones = UINT32_MAX / ((1u << r->s->bits) - 1);
    uint64_t count = (r->first + r->count + each - 1) / each - r->first / each;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&word, r->line + i * 4, 4);
        word += ones;
        memcpy(r->line + i * 4, &word, 4);
    }
}

/* Scales and zero points of group `group`, from line `line` of theirs. */
static int read_group(const struct rows *r, size_t group, uint64_t line, struct err *e)
{
    const struct linear_source *s = r->s;
    size_t bytes = dtype_bytes(s->scales.dtype);
    int ret = read_part(r, &s->scales, (size_t)line * line_bytes(&s->scales) + (size_t)r->first * bytes,
                        r->line, r->count * bytes, e);
    for (size_t i = 0; ret == 0 && i < r->count; i++)
        memcpy(r->scales + i * scales_of(s) + group * bytes, r->line + i * bytes, bytes);
    if (ret == 0)
        ret = read_words(r, &s->biases, line, e);
    if (ret == 0 && s->stored->zeros_less_one)
        add_ones(r);
    for (size_t i = 0; ret == 0 && i < r->count; i++)
        r->zeros[i * groups_of(s) + group] = (uint8_t)word_code(r, i);
    return ret;
}

static int read_columns(const struct rows *r, struct err *e)
{
    const struct linear_source *s = r->s;
    int ret = s->stored->layout == STORED_COLUMNS_OUT ? read_columns_out(r, e) : read_columns_in(r, e);
    for (size_t g = 0; ret == 0 && g < groups_of(s); g++)
        ret = read_group(r, g, g * s->group / s->scale_columns, e);
    return ret;
}

/* ---- both ---- */

/* One number for all. */
static int read_super(const struct rows *r, struct err *e)
{
    float value;
    int ret = read_part(r, &r->s->supers, 0, &value, sizeof(value), e);
    for (size_t i = 0; ret == 0 && i < r->count; i++)
        r->supers[i] = r->s->stored->divides ? 1 / value : value;
    return ret;
}

/* Values of codes and scales, which `from` has in memory. */
static void make_dense(const struct rows *r, const struct linear_source *from, struct linear_source *ret)
{
    const size_t in = (size_t)from->in;
    for (size_t i = 0; i < r->count * in; i++)
        r->dense[i] = linear_source_at(from, 0, i / in, i % in);
    ret->affine = false;
    ret->weight = tensor_in_memory(DTYPE_F32, r->count, in * sizeof(float), r->dense);
}

int stored_form_rows(const struct checkpoint *c, const struct linear_source *s, uint64_t first,
                     uint64_t count, char *memory, struct linear_source *ret, struct err *e)
{
    struct rows r = {.c = c, .s = s, .first = s->first_row + first, .count = (size_t)count};
    ASSERT(first + count <= s->out);
    r.codes = (uint8_t *)memory;
    r.scales = r.codes + aligned(r.count * codes_of(s));
    r.zeros = r.scales + aligned(r.count * scales_of(s));
    r.supers = (float *)(void *)(r.zeros + aligned(r.count * groups_of(s)));
    r.dense = (float *)(void *)((uint8_t *)r.supers + aligned(r.count * sizeof(float)));
    r.line = (uint8_t *)r.dense + aligned(r.count * dense_of(s));
    int result = s->stored->layout == STORED_ROWS ? read_rows(&r, e) : read_columns(&r, e);
    if (result == 0 && s->super)
        result = read_super(&r, e);
    if (result < 0)
        return result;
    *ret = *s;
    ret->affine = true;
    ret->out = count;
    ret->stored = NULL;
    ret->first_row = 0;
    ret->weight = tensor_in_memory(DTYPE_U8, count, codes_of(s), r.codes);
    ret->scales = tensor_in_memory(s->scales.dtype, count, scales_of(s), r.scales);
    ret->biases = tensor_in_memory(DTYPE_U8, count, groups_of(s), r.zeros);
    ret->supers = tensor_in_memory(DTYPE_F32, count, sizeof(float), r.supers);
    const struct linear_source packed = *ret;
    if (!s->affine)
        make_dense(&r, &packed, ret);
    return 0;
}
