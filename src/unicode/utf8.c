/* utf8.c - table 3-7 of the Unicode standard as code: the second byte's range depends on the first byte,
 * every later byte is 80..BF. A byte outside its range ends the broken part before it, which is exactly the
 * "maximal subpart" replacement rule, so validity, replacement and streaming need one function. */
#include "unicode/utf8.h"

#include "base/buf.h"
#include "base/check.h"

/* Length of the character that `lead` begins, 0 for none, and the range of its second byte. */
static unsigned utf8_lead(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    if (lead == 0xE0)
        *low = 0xA0;
    if (lead == 0xED)
        *high = 0x9F;
    if (lead == 0xF0)
        *low = 0x90;
    if (lead == 0xF4)
        *high = 0x8F;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

struct utf8_char utf8_at(struct slice s, size_t from)
{
    ASSERT(from < s.len);
    const unsigned char *p = (const unsigned char *)s.ptr + from;
    unsigned char low, high;
    unsigned want = utf8_lead(p[0], &low, &high);
    struct utf8_char c = {.bytes = 1};
    if (want == 0)
        return c;
    ASSERT(want <= UTF8_BYTES_MAX);
    while (c.bytes < want) {
        if (from + c.bytes == s.len) {
            c.truncated = true;
            return c;
        }
        if (p[c.bytes] < low || p[c.bytes] > high)
            return c;
        low = 0x80;
        high = 0xBF;
        c.bytes++;
    }
    c.valid = true;
    utf8_next(s.ptr + from, &c.code);
    return c;
}

unsigned utf8_previous(const char *ptr, size_t end, uint32_t *ret)
{
    ASSERT(end > 0);
    size_t from = end - 1;
    while (from > 0 && ((unsigned char)ptr[from] & 0xC0) == 0x80)
        from--;
    return utf8_next(ptr + from, ret);
}

unsigned utf8_encode(uint32_t code, char ret[UTF8_BYTES_MAX])
{
    if (code < 0x80) {
        ret[0] = (char)code;
        return 1;
    }
    ASSERT(code <= 0x10ffff);
    unsigned bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (unsigned i = bytes - 1; i > 0; i--, code >>= 6)
        ret[i] = (char)(0x80 | (code & 0x3F));
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    ret[0] = (char)(marks[bytes] | code);
    return bytes;
}

size_t utf8_valid_bytes(struct slice s)
{
    size_t i = 0;
    while (i < s.len) {
        if (s.len - i >= 8 && utf8_ascii_eight(s.ptr + i)) {
            i += 8;
            continue;
        }
        struct utf8_char c = utf8_at(s, i);
        if (!c.valid)
            return i;
        i += c.bytes;
    }
    return i;
}

size_t utf8_put_decided(struct buf *out, struct slice s)
{
    size_t left = 0;
    for (;;) {
        size_t valid = utf8_valid_bytes(s);
        buf_put(out, s.ptr, valid);
        s = slice_sub(s, valid, s.len);
        if (s.len == 0)
            break;
        struct utf8_char broken = utf8_at(s, 0);
        if (broken.truncated) {
            left = s.len;
            break;
        }
        buf_puts(out, UTF8_REPLACEMENT);
        s = slice_sub(s, broken.bytes, s.len);
    }
    return left;
}

void utf8_put_lossy(struct buf *out, struct slice s)
{
    if (utf8_put_decided(out, s) > 0)
        buf_puts(out, UTF8_REPLACEMENT);
}

void utf8_clean(char *text)
{
    struct slice s = slice_of(text);
    size_t at = 0, to = 0;
    while (at < s.len) {
        struct utf8_char c = utf8_at(s, at);
        if (c.valid && c.code >= ' ' && c.code != 0x7f) {
            memmove(text + to, text + at, c.bytes);
            to += c.bytes;
        }
        at += c.bytes;
    }
    ASSERT(at == s.len && to <= at);
    text[to] = 0;
}
