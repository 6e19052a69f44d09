/* stage.c - a piece is read and then packed while it is in the cache. A larger stage loads no faster. After
 * each piece the load checks whether it was cancelled and whether an engine computes. */
#include "model/stage.h"

#include "base/check.h"
#include "base/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN ((size_t)64)

static size_t aligned(size_t bytes)
{
    return ROUND_UP(bytes, ALIGN);
}

static size_t row_of(const struct tensor *t)
{
    return t->bytes / (size_t)t->shape[0];
}

/* Of weight, scales and biases together. */
static size_t rows_bytes(const struct linear_source *s, uint64_t count)
{
    size_t n = (size_t)count;
    size_t bytes = aligned(n * row_of(&s->weight));
    return s->affine ? bytes + aligned(n * row_of(&s->scales)) + aligned(n * row_of(&s->biases)) : bytes;
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
    size_t one = transposed_row(s), most = STAGE_TRANSPOSED_BYTES / one;
    return MIN_OF(MAX_OF(most, (size_t)1), (size_t)s->out) * one + TRANSPOSED_ROUND;
}

uint64_t stage_matrix_bytes(const struct linear_source *s)
{
    if (s->transposed)
        return transposed_bytes(s);
    uint64_t one = rows_bytes(s, 1);
    return MAX_OF(one, MIN_OF((uint64_t)STAGE_BYTES, (uint64_t)rows_bytes(s, s->out)));
}

uint64_t stage_vector_bytes(const struct tensor *t)
{
    return aligned(t->bytes);
}

int stage_init(struct stage *s, const struct checkpoint *c, struct account *account, uint64_t bytes)
{
    *s = (struct stage){.checkpoint = c, .account = account};
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

void stage_done(struct stage *s)
{
    if (s->memory) {
        pages_unmap(s->memory, s->bytes, s->memory, s->bytes);
        if (s->account) {
            account_unuse(s->account, s->bytes);
            account_release(s->account, s->bytes);
        }
    }
    *s = (struct stage){0};
}

/* ---- reading ---- */

/* Reads rows [first, first + count) of `from` to `at`; moves `at` past them. */
static int read_rows(struct stage *s, const struct tensor *from, uint64_t first, uint64_t count, size_t *at,
                     struct tensor *ret, struct err *e)
{
    size_t row = row_of(from);
    struct tensor t = *from;
    t.shape[0] = count;
    t.bytes = (size_t)count * row;
    ASSERT(*at + t.bytes <= s->bytes);
    int r = checkpoint_read(s->checkpoint, from, (size_t)first * row, s->memory + *at, t.bytes, e);
    t.data = s->memory + *at;
    *at += aligned(t.bytes);
    *ret = t;
    return r;
}

static uint64_t rows_that_fit(const struct stage *s, const struct linear_source *from)
{
    /* Weight, scales and biases each begin at a rounded offset. */
    size_t one = row_of(&from->weight), round = 3 * ALIGN;
    if (from->affine)
        one += row_of(&from->scales) + row_of(&from->biases);
    return s->bytes > round ? MAX_OF((s->bytes - round) / MAX_OF(one, (size_t)1), (size_t)1) : 1;
}

/* Rows of a transposed matrix that there is room for, all from one half of interleaved ones. */
static uint64_t transposed_that_fit(const struct stage *s, const struct linear_source *from, uint64_t first)
{
    uint64_t half = from->interleaved ? from->out / 2 : from->out, end = first < half ? half : from->out;
    ASSERT(s->bytes >= transposed_row(from) + TRANSPOSED_ROUND);
    return MIN_OF((s->bytes - TRANSPOSED_ROUND) / transposed_row(from), end - first);
}

/* Values 0, step, 2 * step, ... of a line become one column of rows of `in` values. */
static void spread_line(char *column, const char *line, size_t count, size_t step, size_t in, size_t value)
{
    for (size_t i = 0; i < count; i++)
        memcpy(column + i * in * value, line + i * step * value, value);
}

static int transposed_rows(struct stage *s, const struct linear_source *from, uint64_t first,
                           struct linear_source *ret, struct err *e)
{
    struct linear_source piece = *from;
    size_t value = dtype_bytes(from->weight.dtype), in = (size_t)from->in, step = from->interleaved ? 2 : 1;
    size_t count = (size_t)transposed_that_fit(s, from, first);
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

int stage_rows(struct stage *s, const struct linear_source *from, uint64_t first, struct linear_source *ret,
               struct err *e)
{
    if (from->transposed)
        return transposed_rows(s, from, first, ret, e);
    ASSERT(from->weight.rank == 2 && first < from->out);
    struct linear_source piece = *from;
    size_t at = 0;
    piece.out = MIN_OF(rows_that_fit(s, from), from->out - first);
    int r = read_rows(s, &from->weight, first, piece.out, &at, &piece.weight, e);
    if (r == 0 && from->affine)
        r = read_rows(s, &from->scales, first, piece.out, &at, &piece.scales, e);
    if (r == 0 && from->affine)
        r = read_rows(s, &from->biases, first, piece.out, &at, &piece.biases, e);
    if (r == 0)
        *ret = piece;
    return r;
}

int stage_vector(struct stage *s, const struct tensor *from, struct tensor *ret, struct err *e)
{
    struct tensor t = *from;
    ASSERT(t.bytes <= s->bytes);
    t.data = s->memory;
    int r = checkpoint_read(s->checkpoint, from, 0, s->memory, t.bytes, e);
    if (r == 0)
        *ret = t;
    return r;
}
