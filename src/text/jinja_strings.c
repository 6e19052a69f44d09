/* jinja_strings.c - Python's string methods on UTF-8.
 *
 * Case goes through utf8proc's one-to-one mappings, and through the one mapping to two letters that occurs in
 * ordinary text (sharp s). White space is what str.isspace() calls so. */
#include "text/jinja_strings.h"

#include "base/check.h"
#include "text/jinja_lex.h"
#include "text/utf8.h"

#include <errno.h>
#include <utf8proc.h>

/* ---- stripping ---- */

static bool in_set(struct slice set, const char *character, size_t bytes)
{
    struct slice needle = {character, bytes};
    return slice_find(set, needle, 0) != SIZE_MAX; /* UTF-8: a match starts at a character */
}

int jinja_strip(struct jinja_run *r, const struct jinja_value *s, const struct jinja_value *chars,
                unsigned sides, struct jinja_value *ret)
{
    struct slice text = jinja_slice(s), set = {0};
    uint32_t code;
    bool blank = chars->kind == VALUE_MISSING || chars->kind == VALUE_NONE;
    if (!blank && chars->kind != VALUE_STR)
        return jinja_fail(r, "strip arg must be None or str, not %s", jinja_type(chars));
    if (!blank)
        set = jinja_slice(chars);
    while ((sides & JINJA_LEFT) && text.len > 0) {
        size_t n = utf8_next(text.ptr, &code);
        if (!(blank ? jinja_space_at(text, 0) > 0 : in_set(set, text.ptr, n)))
            break;
        text = slice_sub(text, n, text.len);
    }
    while ((sides & JINJA_RIGHT) && text.len > 0) {
        size_t n = utf8_previous(text.ptr, text.len, &code);
        if (!(blank ? jinja_space_before(text, text.len) > 0 : in_set(set, text.ptr + text.len - n, n)))
            break;
        text.len -= n;
    }
    if (jinja_spend(r, (s->s->len - text.len) * (set.len / 64 + 1) / 16) < 0)
        return r->error;
    if (text.len == s->s->len) {
        *ret = *s;
        return 0;
    }
    if (jinja_str(r, text, ret) < 0)
        return r->error;
    ret->s->markup = s->s->markup;
    return 0;
}

/* ---- case ---- */

static void put_code(struct jinja_text *t, uint32_t code)
{
    char bytes[UTF8_BYTES_MAX];
    unsigned n = utf8_encode(code, bytes);
    for (unsigned i = 0; i < n; i++)
        jinja_text_putc(t, bytes[i]);
}

static void put_upper(struct jinja_text *t, uint32_t c, bool title)
{
    if (c < 0x80)
        jinja_text_putc(t, (char)(c >= 'a' && c <= 'z' ? c - 32 : c));
    else if (c == 0xDF)
        jinja_text_puts(t, title ? "Ss" : "SS");
    else
        put_code(t, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)c)
                                     : utf8proc_toupper((utf8proc_int32_t)c)));
}

static void put_lower(struct jinja_text *t, uint32_t c)
{
    if (c < 0x80)
        jinja_text_putc(t, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    else
        put_code(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

/* Has an upper and a lower form. */
static bool is_cased(uint32_t c)
{
    utf8proc_int32_t code = (utf8proc_int32_t)c;
    return utf8proc_toupper(code) != code || utf8proc_tolower(code) != code;
}

int jinja_change_case(struct jinja_run *r, struct slice s, enum jinja_case to, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    bool first = true; /* of the text or of a word */
    if (jinja_spend(r, s.len / 16) < 0)
        return r->error;
    for (size_t at = 0; at < s.len && !r->error;) {
        uint32_t c;
        size_t n = utf8_next(s.ptr + at, &c);
        if (to == JINJA_UPPER || (first && to != JINJA_LOWER))
            put_upper(&t, c, to == JINJA_CAPITALIZE || to == JINJA_TITLE);
        else
            put_lower(&t, c);
        first = to == JINJA_TITLE ? !is_cased(c)
                : to == JINJA_TITLE_FILTER
                    ? (c && c < 0x80 && strchr("-({[<", (int)c)) || jinja_space_at(s, at)
                    : false;
        at += n;
    }
    return jinja_text_value(&t, ret);
}

/* ---- splitting ---- */

/* A list that is being made; its length is not known yet. */
struct parts {
    struct jinja_run *r;
    struct jinja_value *items;
    size_t len, capacity;
};

static int parts_add(struct parts *p, struct slice s)
{
    if (p->len == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 4;
        struct jinja_value *more = jinja_alloc_array(p->r, capacity, sizeof(*more));
        if (!more)
            return p->r->error;
        if (p->len)
            memcpy(more, p->items, p->len * sizeof(*more));
        p->items = more;
        p->capacity = capacity;
    }
    if (jinja_spend(p->r, 1) < 0)
        return p->r->error;
    return jinja_str(p->r, s, &p->items[p->len++]);
}

static int parts_value(struct parts *p, bool reversed, struct jinja_value *ret)
{
    if (jinja_list(p->r, VALUE_LIST, p->len, ret) < 0)
        return p->r->error;
    for (size_t i = 0; i < p->len; i++)
        ret->l->items[i] = p->items[reversed ? p->len - 1 - i : i];
    return 0;
}

static int split_blank(struct parts *p, struct slice s, int64_t max)
{
    size_t at = 0, n;
    for (;;) {
        while (at < s.len && (n = jinja_space_at(s, at)) > 0)
            at += n;
        if (at == s.len)
            return 0;
        size_t from = at;
        if (max >= 0 && (int64_t)p->len >= max) {
            at = s.len;
            while ((n = jinja_space_before(s, at)) > 0)
                at -= n;
            return parts_add(p, slice_sub(s, from, at - from));
        }
        while (at < s.len && jinja_space_at(s, at) == 0) {
            uint32_t c;
            at += utf8_next(s.ptr + at, &c);
        }
        if (parts_add(p, slice_sub(s, from, at - from)) < 0)
            return p->r->error;
    }
}

static int split_blank_right(struct parts *p, struct slice s, int64_t max)
{
    size_t at = s.len, n;
    for (;;) {
        while (at > 0 && (n = jinja_space_before(s, at)) > 0)
            at -= n;
        if (at == 0)
            return 0;
        size_t to = at;
        if (max >= 0 && (int64_t)p->len >= max) {
            at = 0;
            while ((n = jinja_space_at(s, at)) > 0)
                at += n;
            return parts_add(p, slice_sub(s, at, to - at));
        }
        while (at > 0 && jinja_space_before(s, at) == 0) {
            uint32_t c;
            at -= utf8_previous(s.ptr, at, &c);
        }
        if (parts_add(p, slice_sub(s, at, to - at)) < 0)
            return p->r->error;
    }
}

static int split_by(struct parts *p, struct slice s, struct slice separator, int64_t max)
{
    size_t from = 0, at;
    while ((max < 0 || (int64_t)p->len < max) && (at = slice_find(s, separator, from)) != SIZE_MAX) {
        if (parts_add(p, slice_sub(s, from, at - from)) < 0)
            return p->r->error;
        from = at + separator.len;
    }
    return parts_add(p, slice_sub(s, from, s.len));
}

/* The last `needle` that ends at or before `end`, or SIZE_MAX. */
static size_t find_last(struct slice s, struct slice needle, size_t end)
{
    for (size_t at = end >= needle.len ? end - needle.len + 1 : 0; at-- > 0;)
        if (memcmp(s.ptr + at, needle.ptr, needle.len) == 0)
            return at;
    return SIZE_MAX;
}

static int split_by_right(struct parts *p, struct slice s, struct slice separator, int64_t max)
{
    size_t end = s.len, at;
    while ((max < 0 || (int64_t)p->len < max) && (at = find_last(s, separator, end)) != SIZE_MAX) {
        if (parts_add(p, slice_sub(s, at + separator.len, end - at - separator.len)) < 0)
            return p->r->error;
        end = at;
    }
    return parts_add(p, slice_sub(s, 0, end));
}

int jinja_split(struct jinja_run *r, const struct jinja_value *s, const struct jinja_value *separator,
                int64_t max, bool from_right, struct jinja_value *ret)
{
    struct parts p = {.r = r};
    struct slice text = jinja_slice(s);
    if (jinja_spend_bytes(r, text.len) < 0)
        return r->error;
    if (separator->kind == VALUE_MISSING || separator->kind == VALUE_NONE) {
        if (from_right)
            split_blank_right(&p, text, max);
        else
            split_blank(&p, text, max);
    } else if (separator->kind != VALUE_STR) {
        jinja_fail(r, "must be str or None, not %s", jinja_type(separator));
    } else if (separator->s->len == 0) {
        jinja_fail(r, "empty separator");
    } else if (from_right) {
        split_by_right(&p, text, jinja_slice(separator), max);
    } else {
        split_by(&p, text, jinja_slice(separator), max);
    }
    return r->error ? r->error : parts_value(&p, from_right, ret);
}

/* Bytes of the line break at `at`; 0: none. */
static size_t line_break(struct slice s, size_t at)
{
    uint32_t c;
    size_t n = utf8_next(s.ptr + at, &c);
    if (c == '\r' && at + 1 < s.len && s.ptr[at + 1] == '\n')
        return 2;
    bool is = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return is ? n : 0;
}

int jinja_split_lines(struct jinja_run *r, struct slice s, bool keep_ends, struct jinja_value *ret)
{
    struct parts p = {.r = r};
    size_t from = 0, at = 0;
    if (jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    while (at < s.len) {
        uint32_t c;
        size_t n = line_break(s, at);
        if (n == 0) {
            at += utf8_next(s.ptr + at, &c);
            continue;
        }
        if (parts_add(&p, slice_sub(s, from, at - from + (keep_ends ? n : 0))) < 0)
            return r->error;
        from = at += n;
    }
    if (from < s.len && parts_add(&p, slice_sub(s, from, s.len)) < 0)
        return r->error;
    return parts_value(&p, false, ret);
}

/* ---- replacing and filling ---- */

/* Python puts `new` before every character and at the end when `old` is empty. */
static int replace_empty(struct jinja_run *r, struct slice s, struct slice new, int64_t max,
                         struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    for (size_t at = 0; at < s.len && !r->error;) {
        uint32_t c;
        size_t n = utf8_next(s.ptr + at, &c);
        if (max-- != 0)
            jinja_text_put(&t, new);
        else
            max = 0;
        jinja_text_put(&t, slice_sub(s, at, n));
        at += n;
    }
    if (max != 0)
        jinja_text_put(&t, new);
    return jinja_text_value(&t, ret);
}

int jinja_replace(struct jinja_run *r, struct slice s, struct slice old, struct slice new, int64_t max,
                  struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    size_t from = 0, at;
    if (jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    if (old.len == 0)
        return replace_empty(r, s, new, max, ret);
    while (max != 0 && (at = slice_find(s, old, from)) != SIZE_MAX && jinja_spend(r, 1) == 0) {
        jinja_text_put(&t, slice_sub(s, from, at - from));
        jinja_text_put(&t, new);
        from = at + old.len;
        max -= max > 0;
    }
    if (from == 0)
        return jinja_str(r, s, ret);
    jinja_text_put(&t, slice_sub(s, from, s.len));
    return jinja_text_value(&t, ret);
}

int jinja_pad(struct jinja_run *r, const struct jinja_value *s, int64_t width, struct slice fill,
              unsigned sides, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    int64_t chars = (int64_t)jinja_chars(s->s);
    int64_t missing = width > chars ? width - chars : 0;
    /* Python's rule for which side of a centred text gets the odd one. */
    int64_t left = sides == JINJA_LEFT    ? missing
                   : sides == JINJA_RIGHT ? 0
                                          : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < left && jinja_spend(r, 1) == 0; i++)
        jinja_text_put(&t, fill);
    jinja_text_put(&t, jinja_slice(s));
    for (int64_t i = left; i < missing && jinja_spend(r, 1) == 0; i++)
        jinja_text_put(&t, fill);
    return jinja_text_value(&t, ret);
}
