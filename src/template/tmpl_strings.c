/* tmpl_strings.c - text in code points, cases by Unicode's simple mapping (utf8proc). */
#include "template/tmpl_strings.h"

#include "template/tmpl_eval.h"

#include "base/check.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Charges in addition to the bytes. */
#define PUT_UNITS   16
#define FLOAT_UNITS 200

enum letter_case { LOWER, UPPER, CAPITAL, TITLE };

static struct tmpl_value in_case(struct tmpl_run *run, struct slice s, enum letter_case c)
{
    struct tmpl_text t;
    bool begins = true; /* the text or, for TITLE, a word begins */
    tmpl_text_begin(run, &t);
    for (size_t i = 0; i < s.len && !t.failed && tmpl_work(run, tmpl_cost_unicode(1));) {
        utf8proc_int32_t code;
        utf8proc_uint8_t out[4];
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)s.ptr + i, (utf8proc_ssize_t)(s.len - i), &code);
        if (n <= 0) { /* not UTF-8: unchanged */
            tmpl_text_putc(&t, s.ptr[i++]);
            continue;
        }
        bool upper = c == UPPER || ((c == CAPITAL || c == TITLE) && begins);
        ASSERT((size_t)n <= s.len - i);
        utf8proc_int32_t mapped = upper ? utf8proc_toupper(code) : utf8proc_tolower(code);
        utf8proc_category_t category = utf8proc_category(code);
        bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
        begins = c == TITLE && !letter;
        if (upper && code == 0xdf) { /* the one common letter whose capital is two: Python says SS */
            tmpl_text_put(&t, SLICE("SS"));
            i += (size_t)n;
            continue;
        }
        tmpl_text_put(&t, (struct slice){(char *)out, (size_t)utf8proc_encode_char(mapped, out)});
        i += (size_t)n;
    }
    return tmpl_text_end(run, &t);
}

struct tmpl_value tmpl_lower(struct tmpl_run *run, struct slice s)
{
    return in_case(run, s, LOWER);
}

struct tmpl_value tmpl_upper(struct tmpl_run *run, struct slice s)
{
    return in_case(run, s, UPPER);
}

bool tmpl_equal_caseless(struct tmpl_run *run, struct slice x, struct slice y)
{
    return slice_eq(tmpl_lower(run, x).s, tmpl_lower(run, y).s);
}

bool tmpl_parse_float(struct tmpl_run *run, struct slice s, double *ret)
{
    char text[64], *end;
    if (!tmpl_work(run, FLOAT_UNITS + tmpl_cost_unicode(s.len)))
        return false;
    s = slice_trim(s, SLICE_BLANKS);
    if (s.len == 0 || s.len >= sizeof(text) || s.ptr[s.len - 1] == 'x' || s.ptr[s.len - 1] == 'X')
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    if (strpbrk(text, "xXpP")) /* hexadecimal is C's, not Python's */
        return false;
    *ret = strtod(text, &end);
    return *end == 0;
}

static bool copy_text(struct arena *a, struct slice s, struct slice *ret)
{
    char *p = arena_strndup(a, s.ptr, s.len);
    *ret = (struct slice){p, s.len};
    return p != NULL;
}

static bool copy_items(struct arena *a, const struct tmpl_value *from, uint32_t count, uint32_t depth,
                       struct tmpl_value *to)
{
    for (uint32_t i = 0; i < count; i++)
        if (!tmpl_deep_copy(a, &from[i], depth + 1, &to[i]))
            return false;
    return true;
}

bool tmpl_deep_copy(struct arena *a, const struct tmpl_value *v, uint32_t depth, struct tmpl_value *ret)
{
    ASSERT(depth <= TMPL_VALUE_DEPTH_MAX);
    *ret = *v;
    if (v->type == TMPL_STRING)
        return copy_text(a, v->s, &ret->s);
    if (v->type == TMPL_SEQ) {
        ret->list = tmpl_seq_new(a, v->list->count);
        if (!ret->list)
            return false;
        ret->list->count = v->list->count;
        ret->list->depth = v->list->depth;
        return copy_items(a, v->list->items, v->list->count, depth, ret->list->items);
    }
    if (v->type == TMPL_DICT_VALUE) {
        ret->dict = tmpl_dict_new(a, v->dict->count);
        if (!ret->dict)
            return false;
        ret->dict->count = v->dict->count;
        ret->dict->depth = v->dict->depth;
        return copy_items(a, v->dict->keys, v->dict->count, depth, ret->dict->keys) &&
               copy_items(a, v->dict->values, v->dict->count, depth, ret->dict->values);
    }
    return true;
}

/* --- filters --- */

#define STRING_FILTER(name, body)                                                                            \
    struct tmpl_value tmpl_filter_##name(struct tmpl_run *run, struct tmpl_value v,                          \
                                         const struct tmpl_args *args)                                       \
    {                                                                                                        \
        struct slice s = tmpl_to_string(run, &v).s;                                                          \
        (void)args;                                                                                          \
        return run->error ? v : body;                                                                        \
    }

STRING_FILTER(lower, in_case(run, s, LOWER))
STRING_FILTER(upper, in_case(run, s, UPPER))
STRING_FILTER(capitalize, in_case(run, s, CAPITAL))
STRING_FILTER(title, in_case(run, s, TITLE))

STRING_FILTER(escape, tmpl_escape(run, s))

size_t tmpl_edge_char(struct slice s, bool back)
{
    ASSERT(s.len > 0);
    size_t n = 1;
    if (back)
        while (n < s.len && ((unsigned char)s.ptr[s.len - n] & 0xc0) == 0x80)
            n++;
    else
        while (n < s.len && ((unsigned char)s.ptr[n] & 0xc0) == 0x80)
            n++;
    return n;
}

bool tmpl_is_blank(struct slice c)
{
    utf8proc_int32_t code;
    if (utf8proc_iterate((const utf8proc_uint8_t *)c.ptr, (utf8proc_ssize_t)c.len, &code) <= 0)
        return false;
    if (code <= 0x20)
        return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f);
    utf8proc_category_t category = utf8proc_category(code);
    return code == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

static bool strips(struct tmpl_run *run, struct slice c, const struct tmpl_value *chars)
{
    bool blanks = !chars || chars->type != TMPL_STRING;
    if (!tmpl_work(run, blanks ? tmpl_cost_unicode(1) : PUT_UNITS + tmpl_cost_find(chars->s.len)))
        return false;
    return blanks ? tmpl_is_blank(c) : slice_find(chars->s, c, 0) != SIZE_MAX;
}

struct slice tmpl_strip(struct tmpl_run *run, struct slice s, const struct tmpl_value *chars, unsigned sides)
{
    size_t n;
    ASSERT((sides & ~(unsigned)(TMPL_STRIP_LEFT | TMPL_STRIP_RIGHT)) == 0);
    while ((sides & TMPL_STRIP_LEFT) && s.len &&
           (n = tmpl_edge_char(s, false), strips(run, slice_sub(s, 0, n), chars)))
        s = slice_sub(s, n, s.len);
    while ((sides & TMPL_STRIP_RIGHT) && s.len &&
           (n = tmpl_edge_char(s, true), strips(run, slice_sub(s, s.len - n, n), chars)))
        s.len -= n;
    return s;
}

STRING_FILTER(trim,
              tmpl_string(tmpl_strip(run, s, tmpl_arg(args, 0, "chars"), TMPL_STRIP_LEFT | TMPL_STRIP_RIGHT)))

static struct tmpl_value replaced(struct tmpl_run *run, struct slice s, const struct tmpl_args *args)
{
    const struct tmpl_value *old = tmpl_arg(args, 0, "old"), *new = tmpl_arg(args, 1, "new");
    const struct tmpl_value *limit = tmpl_arg(args, 2, "count");
    int64_t left = INT64_MAX;
    struct tmpl_text t;
    if (!old || !new || old->type != TMPL_STRING || new->type != TMPL_STRING)
        return tmpl_fail(run, "replace takes two strings");
    if (limit && tmpl_integer(limit, &left) && left < 0)
        left = INT64_MAX;
    tmpl_text_begin(run, &t);
    size_t from = 0;
    if (!tmpl_work(run, tmpl_cost_find(s.len) + tmpl_cost_copy(old->s.len)))
        return *old;
    for (; left > 0 && !t.failed && from <= s.len && tmpl_step(run, 1); left--) {
        /* An empty pattern matches before every code point and at the end. */
        size_t at = old->s.len ? slice_find(s, old->s, from) : from;
        if (at == SIZE_MAX)
            break;
        ASSERT(from <= at && at + old->s.len <= s.len);
        tmpl_text_put(&t, slice_sub(s, from, at - from));
        tmpl_text_put(&t, new->s);
        from = at + old->s.len;
        if (old->s.len == 0) {
            size_t n = from < s.len ? tmpl_edge_char(slice_sub(s, from, s.len), false) : 1;
            tmpl_text_put(&t, slice_sub(s, from, n));
            from += n;
        }
    }
    tmpl_text_put(&t, slice_sub(s, from, s.len));
    return tmpl_text_end(run, &t);
}

STRING_FILTER(replace, replaced(run, s, args))

static struct tmpl_value indented(struct tmpl_run *run, struct slice s, const struct tmpl_args *args)
{
    const struct tmpl_value *width = tmpl_arg(args, 0, "width"), *first = tmpl_arg(args, 1, "first");
    const struct tmpl_value *blank = tmpl_arg(args, 2, "blank");
    int64_t spaces = 4;
    struct slice pad = SLICE("                                                                ");
    if (width && width->type == TMPL_STRING)
        pad = width->s;
    else if (width && (!tmpl_integer(width, &spaces) || spaces < 0 || spaces > 64))
        return tmpl_fail(run, "indent takes a width of 0 to 64, or a string");
    if (!width || width->type != TMPL_STRING)
        pad.len = (size_t)spaces;
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    if (!tmpl_work(run, tmpl_cost_find(s.len)))
        return tmpl_none();
    for (size_t from = 0, line = 0; from <= s.len && !t.failed && tmpl_step(run, 1); line++) {
        size_t end = MIN_OF(slice_find(s, SLICE("\n"), from), s.len);
        ASSERT(from <= end && end <= s.len);
        bool pads = line == 0 ? first && tmpl_truthy(first) : end > from || (blank && tmpl_truthy(blank));
        if (pads)
            tmpl_text_put(&t, pad);
        tmpl_text_put(&t, slice_sub(s, from, end + 1 - from));
        from = end + 1;
    }
    return tmpl_text_end(run, &t);
}

STRING_FILTER(indent, indented(run, s, args))

/* A text of more than `length` + `leeway` characters is cut between words, and gets `end`. */
static struct tmpl_value truncated(struct tmpl_run *run, struct slice s, const struct tmpl_args *args)
{
    const struct tmpl_value *length = tmpl_arg(args, 0, "length"), *kill = tmpl_arg(args, 1, "killwords");
    const struct tmpl_value *end = tmpl_arg(args, 2, "end"), *leeway = tmpl_arg(args, 3, "leeway");
    struct slice tail = end && end->type == TMPL_STRING ? end->s : SLICE("...");
    int64_t max = 255, more = 5;
    struct tmpl_text t;
    if ((length && !tmpl_integer(length, &max)) || (leeway && !tmpl_integer(leeway, &more)) || more < 0 ||
        max < (int64_t)tmpl_chars(tail) || max > INT32_MAX || more > INT32_MAX)
        return tmpl_fail(run, "truncate takes a length that is not less than that of its end");
    if (!tmpl_work(run, 2 * tmpl_cost_chars(s.len)))
        return tmpl_none();
    if ((int64_t)tmpl_chars(s) <= max + more)
        return tmpl_string(s);
    s.len = tmpl_char_at(s, (size_t)max - tmpl_chars(tail));
    size_t blank = s.len;
    while (blank > 0 && s.ptr[blank - 1] != ' ')
        blank--;
    ASSERT(blank <= s.len);
    if (blank > 0 && !(kill && tmpl_truthy(kill)))
        s.len = blank - 1;
    tmpl_text_begin(run, &t);
    tmpl_text_put(&t, s);
    tmpl_text_put(&t, tail);
    return tmpl_text_end(run, &t);
}

STRING_FILTER(truncate, truncated(run, s, args))

/* Python's \w for one code point. */
static bool is_of_word(struct slice c)
{
    utf8proc_int32_t code;
    if (utf8proc_iterate((const utf8proc_uint8_t *)c.ptr, (utf8proc_ssize_t)c.len, &code) <= 0)
        return false;
    utf8proc_category_t category = utf8proc_category(code);
    return code == '_' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

static struct tmpl_value word_count(struct tmpl_run *run, struct slice s)
{
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0, n; at < s.len && tmpl_work(run, tmpl_cost_unicode(1)); at += n) {
        n = tmpl_edge_char(slice_sub(s, at, s.len), false);
        bool of_word = is_of_word(slice_sub(s, at, n));
        words += of_word && !inside;
        inside = of_word;
    }
    return tmpl_int(words);
}

STRING_FILTER(wordcount, word_count(run, s))
