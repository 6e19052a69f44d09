/* sse.c - the format has three line ends (CR LF, LF, CR); any of them would end a field, so each begins a new
 * one. */
#include "http/sse.h"

#include "base/check.h"

/* Length of the first line of `s` and, in *end, of what ends it (0 at the end of the text). */
static size_t first_line(struct slice s, size_t *end)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n' || s.ptr[i] == '\r') {
            *end = s.ptr[i] == '\r' && i + 1 < s.len && s.ptr[i + 1] == '\n' ? 2 : 1;
            return i;
        }
    }
    *end = 0;
    return s.len;
}

void sse_data(struct buf *b, struct slice data)
{
    for (;;) {
        size_t end;
        size_t len = first_line(data, &end);
        buf_puts(b, "data: ");
        buf_put(b, data.ptr, len);
        buf_putc(b, '\n');
        if (end == 0)
            break;
        data = slice_sub(data, len + end, data.len);
    }
    buf_putc(b, '\n');
}

void sse_comment(struct buf *b, const char *text)
{
    ASSERT(!strpbrk(text, "\r\n"));
    buf_puts(b, ": ");
    buf_puts(b, text);
    buf_puts(b, "\n\n");
}
