/* buf.h - text that grows up to a bound.
 *
 * A buffer remembers its first failure (over its bound, no memory, charge refused) and ignores further
 * appends, so a writer appends freely and checks once at the end. One thread at a time. */
#ifndef PLATEAU_BASE_BUF_H
#define PLATEAU_BASE_BUF_H

#include "base/charge.h"
#include "base/slice.h"

struct buf {
    char *ptr;
    size_t len, capacity, bytes_max;
    struct charge charge;
    int error; /* 0, -E2BIG (bound), -ENOMEM */
};

/* Nothing is allocated yet. `charge` is copied; NULL = uncounted. */
void buf_init(struct buf *b, size_t bytes_max, const struct charge *charge);
void buf_done(struct buf *b);
/* Forgets content and error; keeps the capacity. */
void buf_clear(struct buf *b);

/* Appends bytes that the caller writes at once. NULL: it failed. */
char *buf_extend(struct buf *b, size_t len);
void buf_put(struct buf *b, const void *bytes, size_t len);
void buf_putc(struct buf *b, char c);
void buf_puts(struct buf *b, const char *cstr);
void buf_put_slice(struct buf *b, struct slice s);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first `len` bytes (<= b->len). */
void buf_consume(struct buf *b, size_t len);

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->ptr, b->len};
}

#endif
