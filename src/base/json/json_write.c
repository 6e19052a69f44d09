/* json_write.c - JSON that reads back the same.
 *
 * Doubles: the fewest digits that give the same double again (15 to 17), instead of jansson's fixed 17, which
 * turns 0.1 into 0.10000000000000001 in front of a client. */
#include "base/json/json_write.h"

#include "base/wide_integer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Deeper values are refused when they are parsed; this is the second line. */
#define JSON_WRITE_DEPTH_MAX 512

static bool needs_escape(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

#define EACH(byte) (0x0101010101010101u * (byte))

/* True if one of eight bytes needs an escape. A subtraction borrows only from bytes above one that does. */
static bool any_needs_escape(const char *bytes)
{
    uint64_t w;
    memcpy(&w, bytes, sizeof(w));
    uint64_t quote = w ^ EACH('"'), back = w ^ EACH('\\'), delete = w ^ EACH(0x7f);
    return (((w - EACH(0x20)) & ~w) | ((quote - EACH(1)) & ~quote) | ((back - EACH(1)) & ~back) |
            ((delete - EACH(1)) & ~delete)) &
           EACH(0x80);
}

/* Returns the index of the next byte that needs an escape, from `at` on; s.len if all bytes are plain. */
static size_t find_escape(struct slice s, size_t at)
{
    while (s.len - at >= sizeof(uint64_t) && !any_needs_escape(s.ptr + at))
        at += sizeof(uint64_t);
    while (at < s.len && !needs_escape((unsigned char)s.ptr[at]))
        at++;
    return at;
}

static void write_escape(struct buf *ret, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    const char *at = c ? strchr("\"\"\\\\\nn\rr\tt\bb\ff", c) : NULL;
    if (at && c < 0x60) {
        char two[2] = {'\\', at[1]};
        buf_put(ret, two, 2);
    } else {
        char six[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        buf_put(ret, six, 6);
    }
}

void json_write_string(struct buf *ret, struct slice s)
{
    buf_putc(ret, '"');
    for (size_t from = 0; from < s.len; from++) {
        size_t end = find_escape(s, from);
        buf_put(ret, s.ptr + from, end - from);
        if (end < s.len)
            write_escape(ret, (unsigned char)s.ptr[end]);
        from = end;
    }
    buf_putc(ret, '"');
}

void json_write_real(struct buf *ret, double v)
{
    char text[40];
    struct slice integer = wide_integer_text(v);
    if (integer.len) {
        buf_put_slice(ret, integer);
        return;
    }
    if (!isfinite(v)) {
        buf_puts(ret, "null"); /* JSON has no other word for it */
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_puts(ret, text);
    if (!strpbrk(text, ".e"))
        buf_puts(ret, ".0"); /* stays a real when it is read again */
}

/* `spaced`: as Python writes it, which chat templates do as well. */
static void write_value(struct buf *ret, const json_t *value, bool spaced, unsigned depth)
{
    const char *key;
    json_t *member;
    size_t i;
    if (depth > JSON_WRITE_DEPTH_MAX) {
        ret->error = ret->error ? ret->error : -E2BIG;
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        buf_putc(ret, '{');
        i = 0;
        json_object_foreach((json_t *)value, key, member) {
            if (i++ > 0)
                buf_puts(ret, spaced ? ", " : ",");
            json_write_string(ret, slice_of(key));
            buf_puts(ret, spaced ? ": " : ":");
            write_value(ret, member, spaced, depth + 1);
        }
        buf_putc(ret, '}');
        break;
    case JSON_ARRAY:
        buf_putc(ret, '[');
        json_array_foreach(value, i, member) {
            if (i > 0)
                buf_puts(ret, spaced ? ", " : ",");
            write_value(ret, member, spaced, depth + 1);
        }
        buf_putc(ret, ']');
        break;
    case JSON_STRING:
        json_write_string(ret, (struct slice){json_string_value(value), json_string_length(value)});
        break;
    case JSON_INTEGER:
        buf_printf(ret, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        json_write_real(ret, json_real_value(value));
        break;
    case JSON_TRUE:
        buf_puts(ret, "true");
        break;
    case JSON_FALSE:
        buf_puts(ret, "false");
        break;
    case JSON_NULL:
        buf_puts(ret, "null");
        break;
    }
}

void json_write_value(struct buf *ret, const json_t *value)
{
    write_value(ret, value, false, 0);
}

void json_write_spaced(struct buf *ret, const json_t *value)
{
    write_value(ret, value, true, 0);
}
