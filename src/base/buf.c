/* buf.c - doubling growth, charged before it happens.
 *
 * The capacity is one byte more than the bound of the content, so that vsnprintf() can write its
 * terminating zero after a text that fills the bound. */
#include "base/buf.h"

#include "base/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_init(struct buf *b, size_t bytes_max, const struct charge *charge)
{
    *b = (struct buf){.bytes_max = MIN_OF(bytes_max, SIZE_MAX / 2)};
    if (charge)
        b->charge = *charge;
}

static const struct charge *buf_charge(const struct buf *b)
{
    return b->charge.take ? &b->charge : NULL;
}

void buf_done(struct buf *b)
{
    free(b->ptr);
    charge_give(buf_charge(b), b->capacity);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->error = 0;
}

/* Makes room for `more` bytes and a terminating zero. */
static bool buf_grow(struct buf *b, size_t more)
{
    if (b->error)
        return false;
    if (more > b->bytes_max || b->len > b->bytes_max - more) {
        b->error = -E2BIG;
        return false;
    }
    size_t least = b->len + more + 1, want = MAX_OF(b->len + more, MAX_OF((size_t)256, b->capacity * 2));
    want = MIN_OF(want, b->bytes_max) + 1;
    /* Without room to double, take the least that is needed. */
    if (charge_take(buf_charge(b), want - b->capacity) < 0) {
        want = least;
        b->error = charge_take(buf_charge(b), want - b->capacity) < 0 ? -ENOMEM : 0;
    }
    if (b->error)
        return false;
    char *p = realloc(b->ptr, want);
    if (!p) {
        charge_give(buf_charge(b), want - b->capacity);
        b->error = -ENOMEM;
        return false;
    }
    b->ptr = p;
    b->capacity = want;
    return true;
}

static inline bool buf_room(struct buf *b, size_t more)
{
    return (!b->error && more < b->capacity - b->len) || buf_grow(b, more);
}

static inline char *extend(struct buf *b, size_t len)
{
    if (!buf_room(b, len))
        return NULL;
    b->len += len;
    return b->ptr + b->len - len;
}

char *buf_extend(struct buf *b, size_t len)
{
    return extend(b, len);
}

void buf_put(struct buf *b, const void *bytes, size_t len)
{
    char *at = len ? extend(b, len) : NULL;
    if (at)
        memcpy(at, bytes, len);
}

void buf_putc(struct buf *b, char c)
{
    char *at = extend(b, 1);
    if (at)
        *at = c;
}

void buf_puts(struct buf *b, const char *cstr)
{
    buf_put(b, cstr, strlen(cstr));
}

void buf_put_slice(struct buf *b, struct slice s)
{
    buf_put(b, s.ptr, s.len);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    char small[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(small, sizeof(small), format, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n < sizeof(small)) {
        buf_put(b, small, (size_t)n);
        return;
    }
    if (!buf_room(b, (size_t)n))
        return;
    va_start(ap, format);
    vsnprintf(b->ptr + b->len, (size_t)n + 1, format, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t len)
{
    ASSERT(len <= b->len);
    if (len == 0)
        return;
    memmove(b->ptr, b->ptr + len, b->len - len);
    b->len -= len;
}
