/* tmpl_strings.c - text in code points, cases by Unicode's simple mapping (utf8proc). */
#include "text/tmpl_strings.h"

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
    bool begins = true; /* of the text, for TITLE of a word */
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
    s = slice_trim(s, " \t\r\n");
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

enum strip_side { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Length in bytes of the code point at the front or, `back`, at the end of s. */
static size_t edge_char(struct slice s, bool back)
{
    size_t n = 1;
    if (back)
        while (n < s.len && ((unsigned char)s.ptr[s.len - n] & 0xc0) == 0x80)
            n++;
    else
        while (n < s.len && ((unsigned char)s.ptr[n] & 0xc0) == 0x80)
            n++;
    return n;
}

/* Python's str.isspace for one code point. */
static bool is_blank_char(struct slice c)
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
    return blanks ? is_blank_char(c) : slice_find(chars->s, c, 0) != SIZE_MAX;
}

static struct slice strip(struct tmpl_run *run, struct slice s, const struct tmpl_value *chars,
                          unsigned sides)
{
    size_t n;
    while ((sides & STRIP_LEFT) && s.len && (n = edge_char(s, false), strips(run, slice_sub(s, 0, n), chars)))
        s = slice_sub(s, n, s.len);
    while ((sides & STRIP_RIGHT) && s.len &&
           (n = edge_char(s, true), strips(run, slice_sub(s, s.len - n, n), chars)))
        s.len -= n;
    return s;
}

STRING_FILTER(trim, tmpl_string(strip(run, s, tmpl_arg(args, 0, "chars"), STRIP_LEFT | STRIP_RIGHT)))

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
        tmpl_text_put(&t, slice_sub(s, from, at - from));
        tmpl_text_put(&t, new->s);
        from = at + old->s.len;
        if (old->s.len == 0) {
            size_t n = from < s.len ? edge_char(slice_sub(s, from, s.len), false) : 1;
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
        bool pads = line == 0 ? first && tmpl_truthy(first) : end > from || (blank && tmpl_truthy(blank));
        if (pads)
            tmpl_text_put(&t, pad);
        tmpl_text_put(&t, slice_sub(s, from, end + 1 - from));
        from = end + 1;
    }
    return tmpl_text_end(run, &t);
}

STRING_FILTER(indent, indented(run, s, args))

/* --- methods --- */

TMPL_BUILTIN(method_lstrip, tmpl_string(strip(run, v.s, tmpl_arg(args, 0, "chars"), STRIP_LEFT)))
TMPL_BUILTIN(method_rstrip, tmpl_string(strip(run, v.s, tmpl_arg(args, 0, "chars"), STRIP_RIGHT)))

/* startswith and endswith take a string or a tuple of them. */
static struct tmpl_value at_edge(struct tmpl_run *run, struct slice s, const struct tmpl_args *args,
                                 bool (*holds)(struct slice, struct slice))
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "prefix");
    if (v && v->type == TMPL_STRING)
        return tmpl_bool(tmpl_work(run, tmpl_cost_copy(v->s.len)) && holds(s, v->s));
    if (!v || v->type != TMPL_SEQ || v->seq != TMPL_SEQ_TUPLE)
        return tmpl_fail(run, "the argument must be a string or a tuple of strings");
    for (uint32_t i = 0; i < v->list->count; i++) {
        const struct tmpl_value *item = &v->list->items[i];
        if (!tmpl_work(run, PUT_UNITS + tmpl_cost_copy(MIN_OF(item->s.len, s.len))))
            break;
        if (item->type == TMPL_STRING && holds(s, item->s))
            return tmpl_bool(true);
    }
    return tmpl_bool(false);
}

TMPL_BUILTIN(method_startswith, at_edge(run, v.s, args, slice_starts))
TMPL_BUILTIN(method_endswith, at_edge(run, v.s, args, slice_ends))

static bool push_text(struct tmpl_run *run, struct tmpl_seq *l, struct slice s)
{
    bool ok = tmpl_step(run, 1) && tmpl_seq_push(run->a, l, tmpl_string(s));
    if (!ok)
        tmpl_fail_memory(run);
    return ok;
}

/* split() without a separator: at runs of blanks, none at the edges. */
static void split_blanks(struct tmpl_run *run, struct slice s, int64_t limit, struct tmpl_seq *l)
{
    s = strip(run, s, NULL, STRIP_LEFT);
    while (s.len && !run->error) {
        size_t end = 0;
        if (limit-- == 0) {
            push_text(run, l, strip(run, s, NULL, STRIP_RIGHT));
            return;
        }
        while (end < s.len) {
            size_t n = edge_char(slice_sub(s, end, s.len), false);
            if (!tmpl_work(run, tmpl_cost_unicode(1)) || is_blank_char(slice_sub(s, end, n)))
                break;
            end += n;
        }
        push_text(run, l, slice_sub(s, 0, end));
        s = strip(run, slice_sub(s, end, s.len), NULL, STRIP_LEFT);
    }
}

static struct tmpl_value method_split(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    const struct tmpl_value *separator = tmpl_arg(args, 0, "sep"), *max = tmpl_arg(args, 1, "maxsplit");
    struct tmpl_seq *l = tmpl_seq_begin(run, 0);
    int64_t limit = -1;
    if (!l)
        return tmpl_none();
    if (max && !tmpl_integer(max, &limit))
        return tmpl_fail(run, "split takes an integer as its limit");
    if (!separator || separator->type == TMPL_NONE) {
        split_blanks(run, self.s, limit, l);
        return tmpl_list_of(run, l, TMPL_SEQ_LIST);
    }
    if (separator->type != TMPL_STRING || separator->s.len == 0)
        return tmpl_fail(run, "split needs a separator that is not empty");
    size_t from = 0, at;
    if (!tmpl_work(run, tmpl_cost_find(self.s.len) + tmpl_cost_copy(separator->s.len)))
        return tmpl_none();
    for (; limit != 0 && (at = slice_find(self.s, separator->s, from)) != SIZE_MAX; limit--) {
        if (!push_text(run, l, slice_sub(self.s, from, at - from)))
            break;
        from = at + separator->s.len;
    }
    push_text(run, l, slice_sub(self.s, from, self.s.len));
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

static struct tmpl_value method_rsplit(struct tmpl_run *run, struct tmpl_value self,
                                       const struct tmpl_args *args)
{
    const struct tmpl_value *separator = tmpl_arg(args, 0, "sep"), *max = tmpl_arg(args, 1, "maxsplit");
    int64_t limit = -1;
    if (!max || !tmpl_integer(max, &limit) || limit < 0)
        return method_split(run, self, args);
    struct tmpl_args once = {.count = 1, .items = {separator ? *separator : tmpl_none()}};
    struct tmpl_value all = method_split(run, self, &once);
    if (run->error || (int64_t)all.list->count <= limit + 1 || !separator || separator->type != TMPL_STRING)
        return all;
    /* The first parts become one again: they are adjacent in the text. */
    struct tmpl_seq *l = all.list;
    uint32_t joined = l->count - (uint32_t)limit;
    const struct slice last = l->items[joined - 1].s;
    l->items[0] = tmpl_string(slice_sub(self.s, 0, (size_t)(last.ptr + last.len - self.s.ptr)));
    memmove(&l->items[1], &l->items[joined], (size_t)limit * sizeof(*l->items));
    l->count = (uint32_t)limit + 1;
    return all;
}

static struct tmpl_value method_splitlines(struct tmpl_run *run, struct tmpl_value self,
                                           const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, 0);
    (void)args;
    if (!tmpl_work(run, tmpl_cost_chars(self.s.len)))
        return tmpl_none();
    for (size_t from = 0; l && from < self.s.len && !run->error;) {
        size_t end = from;
        while (end < self.s.len && self.s.ptr[end] != '\n' && self.s.ptr[end] != '\r')
            end++;
        push_text(run, l, slice_sub(self.s, from, end - from));
        from = end + (slice_starts(slice_sub(self.s, end, 2), SLICE("\r\n")) ? 2 : 1);
    }
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

static struct tmpl_value method_find(struct tmpl_run *run, struct tmpl_value self,
                                     const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "sub");
    if (!v || v->type != TMPL_STRING)
        return tmpl_fail(run, "find takes a string");
    if (!tmpl_work(run, tmpl_cost_find(self.s.len) + tmpl_cost_chars(self.s.len) + tmpl_cost_copy(v->s.len)))
        return tmpl_none();
    size_t at = slice_find(self.s, v->s, 0);
    return tmpl_int(at == SIZE_MAX ? -1 : (int64_t)tmpl_chars(slice_sub(self.s, 0, at)));
}

static struct tmpl_value method_count(struct tmpl_run *run, struct tmpl_value self,
                                      const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "sub");
    int64_t n = 0;
    if (!v || v->type != TMPL_STRING || v->s.len == 0)
        return tmpl_fail(run, "count takes a string that is not empty");
    if (!tmpl_work(run, tmpl_cost_find(self.s.len) + tmpl_cost_copy(v->s.len)))
        return tmpl_none();
    for (size_t at = 0; (at = slice_find(self.s, v->s, at)) != SIZE_MAX && tmpl_step(run, 1); at += v->s.len)
        n++;
    return tmpl_int(n);
}

static struct tmpl_value method_isdigit(struct tmpl_run *run, struct tmpl_value self,
                                        const struct tmpl_args *args)
{
    (void)args;
    if (!tmpl_work(run, tmpl_cost_chars(self.s.len)))
        return tmpl_none();
    for (size_t i = 0; i < self.s.len; i++)
        if (self.s.ptr[i] < '0' || self.s.ptr[i] > '9')
            return tmpl_bool(false);
    return tmpl_bool(self.s.len > 0);
}

static struct tmpl_value method_join(struct tmpl_run *run, struct tmpl_value self,
                                     const struct tmpl_args *args)
{
    const struct tmpl_value *v = tmpl_arg(args, 0, "iterable");
    struct tmpl_seq *l = v ? tmpl_iterate(run, v) : NULL;
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    if (!l)
        return tmpl_fail(run, "join takes a list");
    for (uint32_t i = 0; i < l->count && tmpl_step(run, 1); i++) {
        if (l->items[i].type != TMPL_STRING)
            return tmpl_fail(run, "join: item %u is no string but '%s'", i, tmpl_type_name(&l->items[i]));
        if (i > 0)
            tmpl_text_put(&t, self.s);
        tmpl_text_put(&t, l->items[i].s);
    }
    return tmpl_text_end(run, &t);
}

static struct tmpl_value method_get(struct tmpl_run *run, struct tmpl_value self,
                                    const struct tmpl_args *args)
{
    const struct tmpl_value *key = tmpl_arg(args, 0, "key"), *otherwise = tmpl_arg(args, 1, "default");
    if (!key)
        return tmpl_fail(run, "get takes a key");
    const struct tmpl_value *v = tmpl_dict_get(run, self.dict, key);
    return v ? *v : otherwise ? *otherwise : tmpl_none();
}

/* The keys of a dict, or its values. */
static struct tmpl_value listed(struct tmpl_run *run, const struct tmpl_value *items, uint32_t count)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, count);
    for (uint32_t i = 0; l && i < count && tmpl_step(run, 1); i++)
        l->items[l->count++] = items[i];
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

TMPL_BUILTIN(method_items, tmpl_pairs(run, v.dict))
TMPL_BUILTIN(method_keys, listed(run, v.dict->keys, v.dict->count))
TMPL_BUILTIN(method_values, listed(run, v.dict->values, v.dict->count))
/* The immutable sandbox forbids methods that change a value. */
TMPL_BUILTIN(method_unsafe, tmpl_fail(run, "a template may not change a %s", tmpl_type_name(&v)))

static const struct {
    enum tmpl_type type;
    const char *name;
    tmpl_builtin_fn *call;
} methods[] = {
    {TMPL_STRING, "capitalize", tmpl_filter_capitalize},
    {TMPL_STRING, "count", method_count},
    {TMPL_STRING, "endswith", method_endswith},
    {TMPL_STRING, "find", method_find},
    {TMPL_STRING, "format", tmpl_method_format},
    {TMPL_STRING, "isdigit", method_isdigit},
    {TMPL_STRING, "join", method_join},
    {TMPL_STRING, "lower", tmpl_filter_lower},
    {TMPL_STRING, "lstrip", method_lstrip},
    {TMPL_STRING, "replace", tmpl_filter_replace},
    {TMPL_STRING, "rsplit", method_rsplit},
    {TMPL_STRING, "rstrip", method_rstrip},
    {TMPL_STRING, "split", method_split},
    {TMPL_STRING, "splitlines", method_splitlines},
    {TMPL_STRING, "startswith", method_startswith},
    {TMPL_STRING, "strip", tmpl_filter_trim},
    {TMPL_STRING, "title", tmpl_filter_title},
    {TMPL_STRING, "upper", tmpl_filter_upper},
    {TMPL_DICT_VALUE, "get", method_get},
    {TMPL_DICT_VALUE, "items", method_items},
    {TMPL_DICT_VALUE, "keys", method_keys},
    {TMPL_DICT_VALUE, "values", method_values},
    {TMPL_DICT_VALUE, "clear", method_unsafe},
    {TMPL_DICT_VALUE, "pop", method_unsafe},
    {TMPL_DICT_VALUE, "popitem", method_unsafe},
    {TMPL_DICT_VALUE, "setdefault", method_unsafe},
    {TMPL_DICT_VALUE, "update", method_unsafe},
    {TMPL_SEQ, "append", method_unsafe},
    {TMPL_SEQ, "clear", method_unsafe},
    {TMPL_SEQ, "extend", method_unsafe},
    {TMPL_SEQ, "insert", method_unsafe},
    {TMPL_SEQ, "pop", method_unsafe},
    {TMPL_SEQ, "remove", method_unsafe},
    {TMPL_SEQ, "reverse", method_unsafe},
    {TMPL_SEQ, "sort", method_unsafe},
};

int tmpl_method_find(const struct tmpl_value *self, struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (methods[i].type == self->type && slice_eq(name, slice_of(methods[i].name)))
            return (int)i;
    return -1;
}

struct tmpl_value tmpl_method_call(struct tmpl_run *run, int method, const struct tmpl_value *self,
                                   const struct tmpl_args *args)
{
    ASSERT(method >= 0 && (size_t)method < COUNT_OF(methods) && methods[method].type == self->type);
    return tmpl_step(run, 1) ? methods[method].call(run, *self, args) : *self;
}
