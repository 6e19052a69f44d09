/* json_text.c - the spelling of strings is the difficult part. A range of code points becomes ranges of
 * UTF-8, ranges of four hexadecimal digits, and ranges of pairs of surrogates. */
#include "schema/json_text.h"

#include "base/check.h"
#include "unicode/utf8.h"

#include <stdio.h>

/* ---- spellings of characters ---- */

static rx_id hex_digit(struct rx_store *s, uint32_t first, uint32_t last)
{
    ASSERT(first <= last && last < 16);
    struct rx_bytes set = {{0}};
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    for (uint32_t i = first; i <= last; i++) {
        set.bits[lower[i] / 64] |= 1ull << lower[i] % 64;
        set.bits[upper[i] / 64] |= 1ull << upper[i] % 64;
    }
    return rx_bytes(s, &set);
}

/* Numbers first to last in exactly `digits` hexadecimal digits. */
static rx_id hex_range(struct rx_store *s, uint32_t first, uint32_t last, uint32_t digits)
{
    ASSERT(first <= last && digits <= 4);
    if (digits == 0)
        return RX_EMPTY;
    uint32_t shift = 4 * (digits - 1), mask = (1u << shift) - 1;
    uint32_t a = first >> shift, b = last >> shift;
    if (a == b)
        return rx_cat(s, hex_digit(s, a, a), hex_range(s, first & mask, last & mask, digits - 1));
    rx_id all = RX_NONE;
    if (first & mask)
        all = rx_cat(s, hex_digit(s, a, a), hex_range(s, first & mask, mask, digits - 1)), a++;
    if ((last & mask) != mask)
        all = rx_or(s, all, rx_cat(s, hex_digit(s, b, b), hex_range(s, 0, last & mask, digits - 1))), b--;
    if (a <= b)
        all = rx_or(s, all, rx_cat(s, hex_digit(s, a, b), hex_range(s, 0, mask, digits - 1)));
    return all;
}

static rx_id unicode_escape(struct rx_store *s, uint32_t first, uint32_t last)
{
    ASSERT(last <= 0xFFFF);
    return rx_cat(s, rx_literal(s, SLICE("\\u")), hex_range(s, first, last, 4));
}

/* Characters above U+FFFF: the first surrogates first to last, each with second surrogates low to high. */
static rx_id surrogates(struct rx_store *s, uint32_t first, uint32_t last, uint32_t low, uint32_t high)
{
    ASSERT(last <= 0x3FF && high <= 0x3FF);
    return rx_cat(s, unicode_escape(s, 0xD800 + first, 0xD800 + last),
                  unicode_escape(s, 0xDC00 + low, 0xDC00 + high));
}

static rx_id pairs(struct rx_store *s, uint32_t first, uint32_t last)
{
    ASSERT(first >= 0x10000 && first <= last && last <= 0x10FFFF);
    uint32_t a = (first - 0x10000) >> 10, b = (last - 0x10000) >> 10;
    uint32_t low = first & 0x3FF, high = last & 0x3FF;
    if (a == b)
        return surrogates(s, a, b, low, high);
    rx_id all = RX_NONE;
    if (low)
        all = surrogates(s, a, a, low, 0x3FF), a++;
    if (high != 0x3FF)
        all = rx_or(s, all, surrogates(s, b, b, 0, high)), b--;
    if (a <= b)
        all = rx_or(s, all, surrogates(s, a, b, 0, 0x3FF));
    return all;
}

static rx_id short_escapes(struct rx_store *s, struct rx_range r, bool plain)
{
    static const struct {
        uint8_t code;
        char letter;
    } all[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
               {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};
    struct rx_bytes set = {{0}};
    bool some = false;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i].code >= r.first && all[i].code <= r.last && !(plain && all[i].code == '/')) {
            set.bits[all[i].letter / 64] |= 1ull << all[i].letter % 64;
            some = true;
        }
    return some ? rx_cat(s, rx_literal(s, SLICE("\\")), rx_bytes(s, &set)) : RX_NONE;
}

/* The part of the range that may stand as itself. */
static rx_id as_itself(struct rx_store *s, struct rx_range r)
{
    static const struct rx_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};
    struct rx_range part[COUNT_OF(plain)];
    uint32_t count = 0;
    for (size_t i = 0; i < COUNT_OF(plain); i++) {
        uint32_t first = MAX_OF(plain[i].first, r.first), last = MIN_OF(plain[i].last, r.last);
        if (first <= last)
            part[count++] = (struct rx_range){first, last};
    }
    return count ? rx_codepoints(s, part, count) : RX_NONE;
}

/* The characters of `basic` in the range. */
static rx_id unicode_escapes(struct rx_store *s, const struct rx_range basic[3], struct rx_range r)
{
    rx_id all = RX_NONE;
    for (size_t i = 0; i < 3; i++) {
        uint32_t first = MAX_OF(basic[i].first, r.first), last = MIN_OF(basic[i].last, r.last);
        if (first <= last)
            all = rx_or(s, all, unicode_escape(s, first, last));
    }
    return all;
}

static rx_id escaped(struct rx_store *s, struct rx_range r, bool plain)
{
    static const struct rx_range every[3] = {{0, 0x1F}, {0x20, 0xD7FF}, {0xE000, 0xFFFF}};
    static const struct rx_range not_ascii[3] = {{0, 0x1F}, {0x7F, 0xD7FF}, {0xE000, 0xFFFF}};
    rx_id all = rx_or(s, short_escapes(s, r, plain), unicode_escapes(s, plain ? not_ascii : every, r));
    if (r.last > 0xFFFF)
        all = rx_or(s, all, pairs(s, MAX_OF(r.first, 0x10000u), r.last));
    return all;
}

rx_id json_text_encode(void *arg, struct rx_store *s, const struct rx_range *ranges, uint32_t count)
{
    const struct json_text *t = arg;
    if (t->raw)
        return rx_codepoints(s, ranges, count);
    rx_id all = RX_NONE;
    for (uint32_t i = 0; i < count && !rx_failed(s); i++)
        all = rx_or(s, all, rx_or(s, as_itself(s, ranges[i]), escaped(s, ranges[i], t->plain)));
    return all;
}

static rx_id one_character(struct json_text *t, uint32_t code)
{
    ASSERT(code <= 0x10FFFF);
    struct rx_range r = {code, code};
    if (code >= 128)
        return json_text_encode(t, t->s, &r, 1);
    if (!t->ascii[code])
        t->ascii[code] = json_text_encode(t, t->s, &r, 1);
    return t->ascii[code];
}

/* ---- strings ---- */

/* From the end, because expressions are lists to the right. */
rx_id json_text_content(struct json_text *t, struct slice utf8)
{
    rx_id all = RX_EMPTY;
    size_t end = utf8.len;
    while (end > 0 && !rx_failed(t->s)) {
        size_t at = end - 1;
        while (at > 0 && ((unsigned char)utf8.ptr[at] & 0xC0) == 0x80)
            at--;
        uint32_t code;
        utf8_next(utf8.ptr + at, &code);
        all = rx_cat(t->s, one_character(t, code), all);
        end = at;
    }
    return all;
}

rx_id json_text_quoted(struct json_text *t, rx_id content)
{
    if (t->raw)
        return content;
    rx_id quote = rx_literal(t->s, SLICE("\""));
    return rx_cat(t->s, quote, rx_cat(t->s, content, quote));
}

/* How many bytes the first and the last have in common after `from`: all between them have these, too. At a
 * border of characters. */
static size_t common(const struct slice *sorted, uint32_t count, size_t from)
{
    ASSERT(count > 0);
    struct slice a = sorted[0], b = sorted[count - 1];
    size_t at = from;
    while (at < a.len && at < b.len && a.ptr[at] == b.ptr[at])
        at++;
    while (at > from && at < b.len && ((unsigned char)b.ptr[at] & 0xC0) == 0x80)
        at--;
    return at - from;
}

#define TRIE_DEPTH_MAX 60

static rx_id trie(struct json_text *t, const struct slice *sorted, uint32_t count, size_t from,
                  uint32_t depth)
{
    size_t shared = common(sorted, count, from);
    rx_id head = json_text_content(t, slice_sub(sorted[0], from, shared)), rest = RX_NONE;
    from += shared;
    uint32_t i = 0;
    if (sorted[0].len == from)
        rest = RX_EMPTY, i = 1;
    while (i < count && !rx_failed(t->s)) {
        uint32_t code, same = i + 1;
        unsigned bytes = utf8_next(sorted[i].ptr + from, &code);
        while (same < count && memcmp(sorted[same].ptr + from, sorted[i].ptr + from, bytes) == 0)
            same++;
        rx_id tail = RX_NONE;
        if (same - i > 1 && depth < TRIE_DEPTH_MAX)
            tail = trie(t, sorted + i, same - i, from, depth + 1);
        else
            for (uint32_t k = i; k < same; k++)
                tail = rx_or(t->s, tail, json_text_content(t, slice_sub(sorted[k], from, SIZE_MAX)));
        rest = rx_or(t->s, rest, tail);
        i = same;
    }
    return rx_cat(t->s, head, rest);
}

rx_id json_text_one_of(struct json_text *t, const struct slice *sorted, uint32_t count)
{
    return count ? trie(t, sorted, count, 0, 0) : RX_NONE;
}

/* ---- white space and brackets ---- */

void json_text_space(struct json_text *t, const struct json_spacing *spacing)
{
    t->space = spacing->space;
    t->comma = spacing->comma;
    t->colon = spacing->colon;
}

rx_id json_text_open(struct json_text *t, char bracket)
{
    ASSERT(bracket == '{' || bracket == '[' || bracket == ',' || bracket == ':');
    if (bracket == ',')
        return t->comma;
    return rx_cat(t->s, rx_literal(t->s, (struct slice){&bracket, 1}), t->space);
}

rx_id json_text_close(struct json_text *t, char bracket)
{
    ASSERT(bracket == '}' || bracket == ']');
    return rx_cat(t->s, t->space, rx_literal(t->s, (struct slice){&bracket, 1}));
}

rx_id json_text_name(struct json_text *t, rx_id content)
{
    return rx_cat(t->s, json_text_quoted(t, content), t->colon);
}

rx_id json_text_key(struct json_text *t, char head, rx_id content)
{
    return rx_cat(t->s, json_text_open(t, head), json_text_name(t, content));
}

static rx_id white_space(struct rx_store *s)
{
    rx_id indent = rx_or(s, rx_repeat(s, rx_literal(s, SLICE(" ")), 0, 80),
                         rx_repeat(s, rx_literal(s, SLICE("\t")), 0, 20));
    rx_id line = rx_cat(s, rx_repeat(s, rx_literal(s, SLICE("\r")), 0, 1),
                        rx_cat(s, rx_literal(s, SLICE("\n")), indent));
    return rx_or(s, rx_repeat(s, rx_literal(s, SLICE(" ")), 0, 1), line);
}

static rx_id any_number(struct rx_store *s, uint32_t digits_max, uint32_t exponent_max)
{
    ASSERT(digits_max > 0);
    bool endless = digits_max == RX_UNBOUNDED;
    rx_id digit = rx_byte_range(s, '0', '9'), digits = rx_repeat(s, digit, 1, exponent_max);
    rx_id whole = rx_or(
        s, rx_literal(s, SLICE("0")),
        rx_cat(s, rx_byte_range(s, '1', '9'), rx_repeat(s, digit, 0, endless ? digits_max : digits_max - 1)));
    rx_id fraction =
        rx_repeat(s, rx_cat(s, rx_literal(s, SLICE(".")), rx_repeat(s, digit, 1, digits_max)), 0, 1);
    struct rx_bytes e = {{0}}, signs = {{0}};
    e.bits['e' / 64] |= 1ull << 'e' % 64;
    e.bits['E' / 64] |= 1ull << 'E' % 64;
    signs.bits['+' / 64] |= 1ull << '+' % 64;
    signs.bits['-' / 64] |= 1ull << '-' % 64;
    rx_id exponent = rx_cat(s, rx_bytes(s, &e), rx_cat(s, rx_repeat(s, rx_bytes(s, &signs), 0, 1), digits));
    rx_id minus = rx_repeat(s, rx_literal(s, SLICE("-")), 0, 1);
    return rx_cat(s, minus, rx_cat(s, whole, rx_cat(s, fraction, rx_repeat(s, exponent, 0, 1))));
}

static void init(struct json_text *t, struct grammar_builder *b, bool raw, bool plain)
{
    static const struct rx_range all[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    *t = (struct json_text){.b = b, .s = grammar_rx(b), .any = UINT32_MAX, .object = UINT32_MAX};
    t->raw = raw;
    t->plain = plain;
    t->character = json_text_encode(t, t->s, all, COUNT_OF(all));
    t->text = rx_repeat(t->s, t->character, 0, RX_UNBOUNDED);
    t->space = white_space(t->s);
    t->comma = rx_cat(t->s, rx_literal(t->s, SLICE(",")), t->space);
    t->colon = rx_cat(t->s, rx_repeat(t->s, rx_literal(t->s, SLICE(" ")), 0, 1), json_text_open(t, ':'));
    t->number =
        any_number(t->s, plain ? JSON_DIGITS_MAX : RX_UNBOUNDED, plain ? JSON_EXPONENT_MAX : RX_UNBOUNDED);
}

void json_text_init(struct json_text *t, struct grammar_builder *b)
{
    init(t, b, false, false);
}

void json_text_init_plain(struct json_text *t, struct grammar_builder *b)
{
    init(t, b, false, true);
}

void json_text_init_raw(struct json_text *t, struct grammar_builder *b, rx_id within)
{
    init(t, b, true, false);
    t->text = rx_and(t->s, t->text, within);
}

/* ---- any value ---- */

/* rule: empty | first x (next x)* close */
static void bracketed(struct json_text *t, sym_id rule, rx_id empty, rx_id first, rx_id next, rx_id close)
{
    ASSERT(t->any != UINT32_MAX);
    struct grammar_builder *b = t->b;
    sym_id none = grammar_terminal(b, empty), more = grammar_rule(b);
    sym_id again[] = {more, grammar_terminal(b, next), t->any};
    sym_id full[] = {grammar_terminal(b, first), t->any, more, grammar_terminal(b, close)};
    grammar_alternative(b, more, NULL, 0);
    grammar_alternative(b, more, again, COUNT_OF(again));
    grammar_alternative(b, rule, &none, 1);
    grammar_alternative(b, rule, full, COUNT_OF(full));
}

sym_id json_text_any(struct json_text *t)
{
    if (t->any != UINT32_MAX)
        return t->any;
    struct rx_store *s = t->s;
    t->any = grammar_rule(t->b);
    t->object = grammar_rule(t->b);
    sym_id list = grammar_rule(t->b);
    rx_id words = rx_or(s, rx_literal(s, SLICE("null")),
                        rx_or(s, rx_literal(s, SLICE("true")), rx_literal(s, SLICE("false"))));
    sym_id plain = grammar_terminal(t->b, rx_or(s, words, rx_or(s, t->number, json_text_quoted(t, t->text))));
    bracketed(t, t->object, rx_cat(s, json_text_open(t, '{'), rx_literal(s, SLICE("}"))),
              json_text_key(t, '{', t->text), json_text_key(t, ',', t->text), json_text_close(t, '}'));
    bracketed(t, list, rx_cat(s, json_text_open(t, '['), rx_literal(s, SLICE("]"))), json_text_open(t, '['),
              json_text_open(t, ','), json_text_close(t, ']'));
    grammar_alternative(t->b, t->any, &plain, 1);
    grammar_alternative(t->b, t->any, &t->object, 1);
    grammar_alternative(t->b, t->any, &list, 1);
    return t->any;
}

sym_id json_text_object(struct json_text *t)
{
    json_text_any(t);
    ASSERT(t->object != UINT32_MAX);
    return t->object;
}

/* ---- matching ---- */

bool json_text_matches(struct json_text *t, rx_id content, struct slice utf8)
{
    for (size_t i = 0; i < utf8.len && content != RX_NONE && !rx_failed(t->s); i++) {
        unsigned char c = (unsigned char)utf8.ptr[i];
        if (t->raw) {
            content = rx_derive(t->s, content, c);
            continue;
        }
        if (c == '"' || c == '\\')
            content = rx_derive(t->s, content, '\\');
        if (c >= 0x20) {
            content = rx_derive(t->s, content, c);
            continue;
        }
        char hex[7];
        snprintf(hex, sizeof(hex), "\\u%04x", c);
        for (int k = 0; k < 6; k++)
            content = rx_derive(t->s, content, (uint8_t)hex[k]);
    }
    return !rx_failed(t->s) && rx_nullable(t->s, content);
}
