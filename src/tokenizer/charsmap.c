/* charsmap.c - Darts' double array: a unit has an offset to its children, the label of the edge to it, and a
 * flag that one of its children is a leaf, whose unit is the value. */
#include "tokenizer/charsmap.h"

#include "base/check.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <utf8proc.h>

#define CHARSMAP_BYTES_MAX ((size_t)16 << 20)
#define CLUSTER_BYTES_MAX  5 /* longer ones are replaced character by character */

/* ---- base64 ---- */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* `ret` has room for three quarters of the text. SIZE_MAX: not base64. */
static size_t base64_decode(struct slice text, char *ret)
{
    size_t len = 0;
    uint32_t bits = 0, have = 0;
    while (text.len && text.ptr[text.len - 1] == '=')
        text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int digit = base64_digit(text.ptr[i]);
        if (digit < 0)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            ret[len++] = (char)(bits >> have);
        }
    }
    return len;
}

static uint32_t u32_at(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

int charsmap_read(struct charsmap *m, struct arena *a, struct slice base64, struct err *e)
{
    *m = (struct charsmap){0};
    if (base64.len == 0)
        return 0;
    if (base64.len > CHARSMAP_BYTES_MAX)
        return err_set(e, -EINVAL, "the charsmap has more than %zu bytes", CHARSMAP_BYTES_MAX);
    char *bytes = arena_alloc(a, base64.len + 4);
    if (!bytes)
        return err_set(e, -ENOMEM, "no memory for the charsmap");
    size_t len = base64_decode(base64, bytes);
    if (len == SIZE_MAX || len < 4)
        return err_set(e, -EINVAL, "the charsmap is not base64 of a table");
    uint32_t trie = u32_at(bytes);
    if (trie % 4 || trie == 0 || trie > len - 4)
        return err_set(e, -EINVAL, "the charsmap's trie of %u bytes is larger than its %zu bytes", trie,
                       len - 4);
    uint32_t *units = ARENA_ARRAY(a, uint32_t, trie / 4);
    if (!units)
        return err_set(e, -ENOMEM, "no memory for the charsmap");
    for (uint32_t i = 0; i < trie / 4; i++)
        units[i] = u32_at(bytes + 4 + (size_t)4 * i);
    *m = (struct charsmap){units, trie / 4, slice_sub((struct slice){bytes, len}, 4 + trie, len)};
    if (!utf8_valid(m->texts))
        return err_set(e, -EINVAL, "the charsmap's texts are not UTF-8");
    return 0;
}

/* ---- lookup ---- */

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static struct slice text_at(const struct charsmap *m, uint32_t at)
{
    ASSERT(at <= m->texts.len);
    size_t end = slice_find(m->texts, (struct slice){"", 1}, at);
    return slice_sub(m->texts, at, MIN_OF(end, m->texts.len) - at);
}

/* Finds the text that replaces the shortest key that starts `s`, as the reference does. False: no key
 * does. */
static bool find(const struct charsmap *m, struct slice s, struct slice *ret)
{
    if (m->unit_count == 0)
        return false;
    uint32_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < s.len; i++) {
        uint32_t label = (unsigned char)s.ptr[i];
        at ^= label;
        if (label == 0 || at >= m->unit_count)
            return false;
        uint32_t unit = m->units[at];
        if ((unit & ((1u << 31) | 0xFF)) != label)
            return false;
        at ^= offset_of(unit);
        if (!((unit >> 8) & 1))
            continue;
        uint32_t value = at < m->unit_count ? m->units[at] & ~(1u << 31) : UINT32_MAX;
        if (value > m->texts.len ||
            (value < m->texts.len && ((unsigned char)m->texts.ptr[value] & 0xC0) == 0x80))
            return false;
        *ret = text_at(m, value);
        return true;
    }
    return false;
}

/* ---- text ---- */

static void put(struct charsmap_output *o, struct slice s)
{
    if (o->ptr && s.len)
        memcpy(o->ptr + o->len, s.ptr, s.len);
    o->len += s.len;
}

/* End of the grapheme cluster at `from`. */
static size_t cluster_end(struct slice text, size_t from)
{
    ASSERT(from < text.len);
    uint32_t code, next;
    utf8proc_int32_t state = 0;
    size_t end = from + utf8_next(text.ptr + from, &code);
    for (unsigned bytes; end < text.len; end += bytes) {
        bytes = utf8_next(text.ptr + end, &next);
        bool plain = code < 0x80 && next < 0x80 && code != '\r';
        if (plain || utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state))
            break;
        code = next;
    }
    return end;
}

int charsmap_run(const struct charsmap *m, struct slice text, const struct wanted *w,
                 struct charsmap_output *out)
{
    size_t look = 0;
    struct slice found;
    uint32_t code;
    for (size_t from = 0, end; from < text.len; from = end) {
        int r = wanted_pass(w, from, &look);
        if (r < 0)
            return r;
        end = cluster_end(text, from);
        if (end - from <= CLUSTER_BYTES_MAX && find(m, slice_sub(text, from, end - from), &found)) {
            put(out, found);
            continue;
        }
        for (size_t i = from; i < end;) {
            struct slice one = slice_sub(text, i, utf8_next(text.ptr + i, &code));
            put(out, find(m, one, &found) ? found : one);
            i += one.len;
        }
    }
    return 0;
}
