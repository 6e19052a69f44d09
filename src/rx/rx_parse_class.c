/* rx_parse_class.c - escapes and classes of characters in patterns. */
#include "rx/rx.h"
#include "rx/rx_parse_state.h"
#include "rx/rx_property.h"
#include "rx/rx_store.h"

#include "base/check.h"
#include "base/err.h"
#include "unicode/utf8.h"

#include <errno.h>

bool rx_parse_fail(struct rx_parser *p, size_t at, const char *what)
{
    if (p->result == 0)
        p->result = err_set(p->e, -EINVAL, "pattern, byte %zu: %s", at + 1, what);
    return false;
}

bool rx_parse_code(struct rx_parser *p, uint32_t *ret)
{
    ASSERT(p->at <= p->text.len);
    if (p->at == p->text.len)
        return rx_parse_fail(p, p->at, "the pattern ends too early");
    struct utf8_char c = utf8_at(p->text, p->at);
    if (!c.valid)
        return rx_parse_fail(p, p->at, "this is not valid UTF-8");
    p->at += c.bytes;
    *ret = c.code;
    return true;
}

static bool add(struct rx_parser *p, struct rx_set *set, uint32_t first, uint32_t last)
{
    if (!rx_set_add(p->store->arena, set, first, last))
        p->result = -ENOMEM;
    return p->result == 0;
}

static bool hex(struct rx_parser *p, uint32_t digits, uint32_t *ret)
{
    *ret = 0;
    for (uint32_t i = 0; i < digits; i++) {
        int d = p->at < p->text.len ? slice_hex(p->text.ptr[p->at]) : -1;
        if (d < 0)
            return rx_parse_fail(p, p->at, "a hexadecimal digit is missing");
        *ret = *ret << 4 | (uint32_t)d;
        p->at++;
    }
    return true;
}

static bool braced_code(struct rx_parser *p, uint32_t *ret)
{
    size_t start = p->at++;
    *ret = 0;
    while (p->at < p->text.len && slice_hex(p->text.ptr[p->at]) >= 0 && *ret <= 0x10FFFF)
        *ret = *ret << 4 | (uint32_t)slice_hex(p->text.ptr[p->at++]);
    if (p->at == start + 1 || !rx_parse_next_is(p, '}') || *ret > 0x10FFFF)
        return rx_parse_fail(p, start, "\\u{...} names no code point");
    p->at++;
    return true;
}

/* After \u. Two escapes of surrogates are one character. */
static bool unicode_escape(struct rx_parser *p, uint32_t *ret)
{
    size_t start = p->at;
    if (rx_parse_next_is(p, '{')) {
        if (!braced_code(p, ret))
            return false;
    } else if (!hex(p, 4, ret))
        return false;
    bool high = *ret >= 0xD800 && *ret <= 0xDBFF;
    if (high && slice_starts(slice_sub(p->text, p->at, 2), SLICE("\\u"))) {
        uint32_t low;
        p->at += 2;
        if (!hex(p, 4, &low))
            return false;
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *ret = 0x10000 + ((*ret - 0xD800) << 10) + (low - 0xDC00);
            return true;
        }
    }
    if (*ret >= 0xD800 && *ret <= 0xDFFF)
        return rx_parse_fail(p, start, "a surrogate alone is not a character");
    return true;
}

static bool add_spaces(struct rx_parser *p, struct rx_set *set)
{
    if (rx_set_add_category(p->store->arena, set, SLICE("Zs")) < 0)
        return (p->result = -ENOMEM), false;
    return add(p, set, 9, 13) && add(p, set, 0xFEFF, 0xFEFF) && add(p, set, 0x2028, 0x2029);
}

static bool add_property(struct rx_parser *p, struct rx_set *set)
{
    size_t start = p->at, end = slice_find(p->text, SLICE("}"), p->at);
    if (!rx_parse_next_is(p, '{') || end == SIZE_MAX)
        return rx_parse_fail(p, start, "\\p needs a general category in braces, such as \\p{L}");
    int r = rx_set_add_category(p->store->arena, set, slice_sub(p->text, start + 1, end - start - 1));
    if (r == -EINVAL)
        return rx_parse_fail(p, start,
                             "this property is not supported; general categories such as \\p{Lu} are");
    p->result = r;
    p->at = end + 1;
    return r == 0;
}

/* \d \w \s \p and their complements. */
static bool add_many(struct rx_parser *p, char c, struct rx_set *set)
{
    bool ok = true;
    switch (c | 32) {
    case 'd':
        ok = add(p, set, '0', '9');
        break;
    case 'w':
        ok = add(p, set, '0', '9') && add(p, set, 'A', 'Z') && add(p, set, '_', '_') && add(p, set, 'a', 'z');
        break;
    case 's':
        ok = add_spaces(p, set);
        break;
    default:
        ok = add_property(p, set);
    }
    rx_set_normalize(set);
    if (ok && c < 'a' && !rx_set_complement(p->store->arena, set))
        p->result = -ENOMEM;
    return ok && p->result == 0;
}

/* The single character of an escape whose letter is `c`. */
static bool one_escape(struct rx_parser *p, char c, bool in_class, uint32_t *ret)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    const char *known = strchr(from, c);
    *ret = (uint8_t)c;
    if (c && known) {
        *ret = (uint8_t)to[known - from];
        return true;
    }
    switch (c) {
    case 'x':
        return hex(p, 2, ret);
    case 'u':
        return unicode_escape(p, ret);
    case 'c':
        if (p->at >= p->text.len || (p->text.ptr[p->at] | 32) < 'a' || (p->text.ptr[p->at] | 32) > 'z')
            return rx_parse_fail(p, p->at, "\\c needs a letter");
        *ret = (uint8_t)p->text.ptr[p->at++] & 31;
        return true;
    case 'b':
        *ret = 8;
        return in_class || rx_parse_fail(p, p->at - 2, "\\b (a word boundary) is not supported");
    case 'B':
        return rx_parse_fail(p, p->at - 2, "\\B (no word boundary) is not supported");
    case 'k':
        return rx_parse_fail(p, p->at - 2, "back references are not supported");
    default:
        break;
    }
    if (c >= '0' && c <= '9') {
        bool digit = p->at < p->text.len && p->text.ptr[p->at] >= '0' && p->text.ptr[p->at] <= '9';
        *ret = 0;
        return (c == '0' && !digit) || rx_parse_fail(p, p->at - 2, "back references are not supported");
    }
    bool letter = ((uint8_t)c | 32) >= 'a' && ((uint8_t)c | 32) <= 'z';
    if (letter || (uint8_t)c < 0x20 || (uint8_t)c >= 0x7F)
        return rx_parse_fail(p, p->at - 2, "there is no such escape");
    return true;
}

bool rx_parse_escape(struct rx_parser *p, bool in_class, struct rx_set *set, bool *many)
{
    ASSERT(p->at > 0 && p->text.ptr[p->at - 1] == '\\');
    if (p->at == p->text.len)
        return rx_parse_fail(p, p->at, "nothing follows a backslash");
    char c = p->text.ptr[p->at++];
    uint32_t code;
    *many = c && strchr("dDwWsSpP", c);
    if (*many)
        return add_many(p, c, set);
    return one_escape(p, c, in_class, &code) && add(p, set, code, code);
}

/* One member of a class: a character, or a set like \d. */
static bool member(struct rx_parser *p, struct rx_set *set, bool *many)
{
    uint32_t code;
    *many = false;
    if (rx_parse_next_is(p, '\\')) {
        p->at++;
        return rx_parse_escape(p, true, set, many);
    }
    return rx_parse_code(p, &code) && add(p, set, code, code);
}

static bool class_item(struct rx_parser *p, struct rx_set *set)
{
    struct rx_set one = {0}, other = {0};
    bool many, also_many = false;
    size_t start = p->at;
    if (!member(p, &one, &many))
        return false;
    bool range = rx_parse_next_is(p, '-') && p->at + 1 < p->text.len && p->text.ptr[p->at + 1] != ']';
    if (range) {
        p->at++;
        if (!member(p, &other, &also_many))
            return false;
        if (many || also_many)
            return rx_parse_fail(p, start, "a range in a class needs a character at each end");
        ASSERT(one.count == 1 && other.count == 1);
        if (one.at[0].first > other.at[0].first)
            return rx_parse_fail(p, start, "a range in a class is out of order");
        one.at[0].last = other.at[0].first;
    }
    for (uint32_t i = 0; i < one.count; i++)
        if (!add(p, set, one.at[i].first, one.at[i].last))
            return false;
    return true;
}

/* A range may span the surrogates, which are not characters. */
static bool cut_surrogates(struct rx_parser *p, struct rx_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct rx_range r = set->at[i];
        if (r.first > 0xDFFF || r.last < 0xD800)
            continue;
        set->at[i].last = 0xD7FF;
        return add(p, set, 0xE000, r.last) && (rx_set_normalize(set), true);
    }
    return true;
}

bool rx_parse_class(struct rx_parser *p, struct rx_set *set)
{
    ASSERT(p->at > 0 && p->text.ptr[p->at - 1] == '[');
    size_t start = p->at - 1;
    bool inverted = rx_parse_next_is(p, '^');
    p->at += inverted;
    while (!rx_parse_next_is(p, ']')) {
        if (p->at == p->text.len)
            return rx_parse_fail(p, start, "a class has no closing bracket");
        if (!class_item(p, set))
            return false;
    }
    p->at++;
    rx_set_normalize(set);
    if (inverted && !rx_set_complement(p->store->arena, set)) {
        p->result = -ENOMEM;
        return false;
    }
    return cut_surrogates(p, set);
}
