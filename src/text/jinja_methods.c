/* jinja_methods.c - the methods of Python's str, dict, list and of loops. */
#include "text/jinja_value.h"

#include "base/check.h"
#include "text/jinja_args.h"
#include "text/jinja_lex.h"
#include "text/jinja_strings.h"
#include "text/utf8.h"

#include <errno.h>
#include <utf8proc.h>

/* ---- str ---- */

static int str_strip(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_strip(r, &c->self, &c->arg[0], JINJA_LEFT | JINJA_RIGHT, ret);
}

static int str_lstrip(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_strip(r, &c->self, &c->arg[0], JINJA_LEFT, ret);
}

static int str_rstrip(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_strip(r, &c->self, &c->arg[0], JINJA_RIGHT, ret);
}

static int str_lower(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_change_case(r, jinja_slice(&c->self), JINJA_LOWER, ret);
}

static int str_upper(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_change_case(r, jinja_slice(&c->self), JINJA_UPPER, ret);
}

static int str_capitalize(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_change_case(r, jinja_slice(&c->self), JINJA_CAPITALIZE, ret);
}

static int str_title(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_change_case(r, jinja_slice(&c->self), JINJA_TITLE, ret);
}

typedef bool edge_fn(struct slice s, struct slice part);

/* One text, or a tuple of them of which any will do. */
static int at_edge(struct jinja_run *r, struct jinja_call *c, edge_fn *holds, struct jinja_value *ret)
{
    const struct jinja_value *wanted = &c->arg[0];
    struct jinja_value *items = &c->arg[0];
    size_t len = 1;
    struct slice part;
    bool any = false;
    if (wanted->kind == VALUE_TUPLE && jinja_iterate(r, wanted, &items, &len) < 0)
        return r->error;
    for (size_t i = 0; i < len && !any; i++) {
        if (jinja_arg_str(r, &items[i], &part) < 0)
            return r->error;
        any = holds(jinja_slice(&c->self), part);
    }
    *ret = jinja_bool(any);
    return 0;
}

static int str_startswith(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return at_edge(r, c, slice_starts, ret);
}

static int str_endswith(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return at_edge(r, c, slice_ends, ret);
}

static int split(struct jinja_run *r, struct jinja_call *c, bool from_right, struct jinja_value *ret)
{
    int64_t max;
    if (jinja_arg_int(r, &c->arg[1], -1, &max) < 0)
        return r->error;
    return jinja_split(r, &c->self, &c->arg[0], max, from_right, ret);
}

static int str_split(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return split(r, c, false, ret);
}

static int str_rsplit(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return split(r, c, true, ret);
}

static int str_splitlines(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return jinja_split_lines(r, jinja_slice(&c->self), jinja_arg_bool(&c->arg[0], false), ret);
}

static int str_replace(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice old, new;
    int64_t max;
    if (jinja_arg_str(r, &c->arg[0], &old) < 0 || jinja_arg_str(r, &c->arg[1], &new) < 0 ||
        jinja_arg_int(r, &c->arg[2], -1, &max) < 0)
        return r->error;
    return jinja_replace(r, jinja_slice(&c->self), old, new, max, ret);
}

static int str_join(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value *items;
    struct slice s;
    size_t len;
    if (c->arg[0].kind == VALUE_UNDEFINED)
        return jinja_str(r, SLICE(""), ret);
    if (jinja_iterate(r, &c->arg[0], &items, &len) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        if (items[i].kind != VALUE_STR)
            return jinja_fail(r, "sequence item %zu: expected str instance, %s found", i,
                              jinja_type(&items[i]));
        s = jinja_slice(&items[i]);
        if (i > 0)
            jinja_text_put(&t, jinja_slice(&c->self));
        jinja_text_put(&t, s);
    }
    return jinja_text_value(&t, ret);
}

/* Offset of the first (last) `part`, or SIZE_MAX. */
static size_t find(struct slice s, struct slice part, bool last)
{
    if (!last)
        return slice_find(s, part, 0);
    for (size_t at = s.len >= part.len ? s.len - part.len + 1 : 0; at-- > 0;)
        if (part.len == 0 || memcmp(s.ptr + at, part.ptr, part.len) == 0)
            return at;
    return SIZE_MAX;
}

static int find_index(struct jinja_run *r, struct jinja_call *c, bool last, bool must,
                      struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self), part;
    if (jinja_arg_str(r, &c->arg[0], &part) < 0 || jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    size_t at = find(s, part, last);
    if (at == SIZE_MAX && must)
        return jinja_fail(r, "substring not found");
    struct jinja_str before = {.ptr = s.ptr, .len = at == SIZE_MAX ? 0 : at, .chars = SIZE_MAX};
    *ret = jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_chars(&before));
    return 0;
}

static int str_find(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return find_index(r, c, false, false, ret);
}

static int str_rfind(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return find_index(r, c, true, false, ret);
}

static int str_index(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return find_index(r, c, false, true, ret);
}

static int str_rindex(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return find_index(r, c, true, true, ret);
}

static int str_count(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self), part;
    int64_t count = 0;
    if (jinja_arg_str(r, &c->arg[0], &part) < 0 || jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    if (part.len == 0)
        count = (int64_t)jinja_chars(c->self.s) + 1;
    for (size_t at = 0; part.len > 0 && (at = slice_find(s, part, at)) != SIZE_MAX; at += part.len)
        count++;
    *ret = jinja_int(count);
    return 0;
}

static int partition(struct jinja_run *r, struct jinja_call *c, bool last, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self), part;
    if (jinja_arg_str(r, &c->arg[0], &part) < 0 || jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    if (part.len == 0)
        return jinja_fail(r, "empty separator");
    size_t at = find(s, part, last);
    bool found = at != SIZE_MAX;
    struct slice head = found ? slice_sub(s, 0, at) : last ? SLICE("") : s;
    struct slice middle = found ? part : SLICE("");
    struct slice tail = found ? slice_sub(s, at + part.len, s.len) : last ? s : SLICE("");
    if (jinja_list(r, VALUE_TUPLE, 3, ret) < 0 || jinja_str(r, head, &ret->l->items[0]) < 0 ||
        jinja_str(r, middle, &ret->l->items[1]) < 0)
        return r->error;
    return jinja_str(r, tail, &ret->l->items[2]);
}

static int str_partition(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return partition(r, c, false, ret);
}

static int str_rpartition(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return partition(r, c, true, ret);
}

static int str_removeprefix(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self), part;
    if (jinja_arg_str(r, &c->arg[0], &part) < 0)
        return r->error;
    return jinja_str(r, slice_starts(s, part) ? slice_sub(s, part.len, s.len) : s, ret);
}

static int str_removesuffix(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self), part;
    if (jinja_arg_str(r, &c->arg[0], &part) < 0)
        return r->error;
    return jinja_str(r, slice_ends(s, part) ? slice_sub(s, 0, s.len - part.len) : s, ret);
}

static int pad(struct jinja_run *r, struct jinja_call *c, unsigned sides, struct jinja_value *ret)
{
    struct slice fill = SLICE(" ");
    int64_t width;
    if (jinja_arg_int(r, &c->arg[0], 0, &width) < 0 ||
        (c->arg[1].kind != VALUE_MISSING && jinja_arg_str(r, &c->arg[1], &fill) < 0))
        return r->error;
    if (c->arg[1].kind == VALUE_STR && jinja_chars(c->arg[1].s) != 1)
        return jinja_fail(r, "The fill character must be exactly one character long");
    return jinja_pad(r, &c->self, width, fill, sides, ret);
}

static int str_ljust(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return pad(r, c, JINJA_RIGHT, ret);
}

static int str_rjust(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return pad(r, c, JINJA_LEFT, ret);
}

static int str_center(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return pad(r, c, JINJA_LEFT | JINJA_RIGHT, ret);
}

static int str_zfill(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value digits, padded, sign;
    int64_t width;
    struct slice s = jinja_slice(&c->self);
    bool is_signed = s.len > 0 && (*s.ptr == '-' || *s.ptr == '+');
    if (jinja_arg_int(r, &c->arg[0], 0, &width) < 0 ||
        jinja_str(r, slice_sub(s, is_signed, s.len), &digits) < 0 ||
        jinja_pad(r, &digits, width - is_signed, SLICE("0"), JINJA_LEFT, &padded) < 0 ||
        jinja_str(r, slice_sub(s, 0, is_signed), &sign) < 0)
        return r->error;
    return jinja_str_join(r, sign.s, padded.s, ret);
}

/* Not empty, and every character is in one of these general categories (a bit each). */
static int str_is(struct jinja_run *r, struct jinja_call *c, uint64_t categories, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self);
    bool all = s.len > 0;
    for (size_t at = 0; at < s.len && all;) {
        uint32_t code;
        at += utf8_next(s.ptr + at, &code);
        all = categories >> utf8proc_category((utf8proc_int32_t)code) & 1;
    }
    *ret = jinja_bool(all);
    return jinja_spend(r, s.len / 16);
}

#define LETTERS                                                                                              \
    (1u << UTF8PROC_CATEGORY_LU | 1u << UTF8PROC_CATEGORY_LL | 1u << UTF8PROC_CATEGORY_LT |                  \
     1u << UTF8PROC_CATEGORY_LM | 1u << UTF8PROC_CATEGORY_LO)
#define DIGITS   (1u << UTF8PROC_CATEGORY_ND)
#define NUMERALS (DIGITS | 1u << UTF8PROC_CATEGORY_NL | 1u << UTF8PROC_CATEGORY_NO)

static int str_isalpha(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return str_is(r, c, LETTERS, ret);
}

static int str_isdigit(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return str_is(r, c, DIGITS, ret);
}

static int str_isnumeric(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return str_is(r, c, NUMERALS, ret);
}

static int str_isalnum(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return str_is(r, c, LETTERS | NUMERALS, ret);
}

static int str_isspace(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct slice s = jinja_slice(&c->self);
    size_t at = 0, n;
    while (at < s.len && (n = jinja_space_at(s, at)) > 0)
        at += n;
    *ret = jinja_bool(s.len > 0 && at == s.len);
    return jinja_spend_bytes(r, at);
}

static int ask_test(struct jinja_run *r, struct jinja_call *c, const char *test, struct jinja_value *ret)
{
    return jinja_test_find(slice_of(test))->fn(r, c, ret);
}

static int str_islower(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return ask_test(r, c, "lower", ret);
}

static int str_isupper(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return ask_test(r, c, "upper", ret);
}

static const struct jinja_builtin str_methods[] = {
    {"capitalize", str_capitalize, {0}, 0, false},
    {"casefold", str_lower, {0}, 0, false},
    {"center", str_center, {"width", "fillchar"}, 1, false},
    {"count", str_count, {"sub"}, 1, false},
    {"endswith", str_endswith, {"suffix"}, 1, false},
    {"find", str_find, {"sub"}, 1, false},
    {"index", str_index, {"sub"}, 1, false},
    {"isalnum", str_isalnum, {0}, 0, false},
    {"isalpha", str_isalpha, {0}, 0, false},
    {"isdecimal", str_isdigit, {0}, 0, false},
    {"isdigit", str_isdigit, {0}, 0, false},
    {"islower", str_islower, {0}, 0, false},
    {"isnumeric", str_isnumeric, {0}, 0, false},
    {"isspace", str_isspace, {0}, 0, false},
    {"isupper", str_isupper, {0}, 0, false},
    {"join", str_join, {"iterable"}, 1, false},
    {"ljust", str_ljust, {"width", "fillchar"}, 1, false},
    {"lower", str_lower, {0}, 0, false},
    {"lstrip", str_lstrip, {"chars"}, 0, false},
    {"partition", str_partition, {"sep"}, 1, false},
    {"removeprefix", str_removeprefix, {"prefix"}, 1, false},
    {"removesuffix", str_removesuffix, {"suffix"}, 1, false},
    {"replace", str_replace, {"old", "new", "count"}, 2, false},
    {"rfind", str_rfind, {"sub"}, 1, false},
    {"rindex", str_rindex, {"sub"}, 1, false},
    {"rjust", str_rjust, {"width", "fillchar"}, 1, false},
    {"rpartition", str_rpartition, {"sep"}, 1, false},
    {"rsplit", str_rsplit, {"sep", "maxsplit"}, 0, false},
    {"rstrip", str_rstrip, {"chars"}, 0, false},
    {"split", str_split, {"sep", "maxsplit"}, 0, false},
    {"splitlines", str_splitlines, {"keepends"}, 0, false},
    {"startswith", str_startswith, {"prefix"}, 1, false},
    {"strip", str_strip, {"chars"}, 0, false},
    {"title", str_title, {0}, 0, false},
    {"upper", str_upper, {0}, 0, false},
    {"zfill", str_zfill, {"width"}, 1, false},
};

/* ---- dict ---- */

static int dict_get(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *found;
    if (jinja_dict_get(r, &c->self, &c->arg[0], &found) < 0)
        return r->error;
    *ret = found ? *found : c->arg[1].kind == VALUE_MISSING ? jinja_none() : c->arg[1];
    return 0;
}

static int dict_items(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_pair *pairs;
    if (jinja_pairs(r, &c->self, &pairs) < 0 || jinja_list(r, VALUE_VIEW, c->self.d->count, ret) < 0)
        return r->error;
    ret->l->name = "dict_items";
    for (size_t i = 0; i < ret->l->len; i++)
        if (jinja_pair(r, &pairs[i].key, &pairs[i].value, &ret->l->items[i]) < 0)
            return r->error;
    return 0;
}

static int dict_parts(struct jinja_run *r, struct jinja_call *c, bool keys, struct jinja_value *ret)
{
    struct jinja_pair *pairs;
    if (jinja_pairs(r, &c->self, &pairs) < 0 || jinja_list(r, VALUE_VIEW, c->self.d->count, ret) < 0)
        return r->error;
    ret->l->name = keys ? "dict_keys" : "dict_values";
    for (size_t i = 0; i < ret->l->len; i++)
        ret->l->items[i] = keys ? pairs[i].key : pairs[i].value;
    return 0;
}

static int dict_keys(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return dict_parts(r, c, true, ret);
}

static int dict_values(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return dict_parts(r, c, false, ret);
}

/* Nothing changes a dict or a list, so a copy is the thing itself. */
static int copy(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    (void)r;
    *ret = c->self;
    return 0;
}

static const struct jinja_builtin dict_methods[] = {
    {"copy", copy, {0}, 0, false},          {"get", dict_get, {"key", "default"}, 1, false},
    {"items", dict_items, {0}, 0, false},   {"keys", dict_keys, {0}, 0, false},
    {"values", dict_values, {0}, 0, false},
};
static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};

/* ---- list ---- */

static int list_index(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    if (jinja_items(r, &c->self, &items) < 0 || jinja_spend(r, c->self.l->len / 16) < 0)
        return r->error;
    for (size_t i = 0; i < c->self.l->len; i++) {
        bool same;
        if (jinja_equal(r, &items[i], &c->arg[0], &same) < 0)
            return r->error;
        if (!same)
            continue;
        *ret = jinja_int((int64_t)i);
        return 0;
    }
    return jinja_fail(r, "the value is not in the list");
}

static int list_count(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    int64_t count = 0;
    if (jinja_items(r, &c->self, &items) < 0 || jinja_spend(r, c->self.l->len / 16) < 0)
        return r->error;
    for (size_t i = 0; i < c->self.l->len; i++) {
        bool same;
        if (jinja_equal(r, &items[i], &c->arg[0], &same) < 0)
            return r->error;
        count += same;
    }
    *ret = jinja_int(count);
    return 0;
}

static const struct jinja_builtin list_methods[] = {
    {"copy", copy, {0}, 0, false},
    {"count", list_count, {"value"}, 1, false},
    {"index", list_index, {"value"}, 1, false},
};
static const char *const list_unsafe[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

/* ---- loop ---- */

static int loop_cycle(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    if (c->args->positional_count == 0 || c->args->named_count > 0)
        return jinja_fail(r, "no items for cycling given");
    *ret = c->args->positional[c->self.loop->index0 % c->args->positional_count];
    return 0;
}

static int loop_changed(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value now;
    bool same = false;
    if (jinja_list(r, VALUE_TUPLE, c->args->positional_count, &now) < 0)
        return r->error;
    for (size_t i = 0; i < now.l->len; i++)
        now.l->items[i] = c->args->positional[i];
    if (c->self.loop->changed.kind != VALUE_MISSING &&
        jinja_equal(r, &c->self.loop->changed, &now, &same) < 0)
        return r->error;
    c->self.loop->changed = now;
    *ret = jinja_bool(!same);
    return 0;
}

static const struct jinja_builtin loop_methods[] = {
    {"changed", loop_changed, {0}, 0, true},
    {"cycle", loop_cycle, {0}, 0, true},
};

/* ---- finding ---- */

static const struct jinja_builtin *find_in(const struct jinja_builtin *methods, size_t count,
                                           struct slice name)
{
    for (size_t i = 0; i < count; i++)
        if (slice_eq(slice_of(methods[i].name), name))
            return &methods[i];
    return NULL;
}

static bool is_in(const char *const *names, struct slice name)
{
    while (*names && !slice_eq(slice_of(*names), name))
        names++;
    return *names != NULL;
}

const struct jinja_builtin *jinja_method_find(enum jinja_kind kind, struct slice name, bool *unsafe)
{
    *unsafe = false;
    switch (kind) {
    case VALUE_STR:
        return find_in(str_methods, COUNT_OF(str_methods), name);
    case VALUE_DICT:
        *unsafe = is_in(dict_unsafe, name);
        return find_in(dict_methods, COUNT_OF(dict_methods), name);
    case VALUE_LIST:
        *unsafe = is_in(list_unsafe, name);
        return find_in(list_methods, COUNT_OF(list_methods), name);
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return find_in(list_methods + 1, COUNT_OF(list_methods) - 1, name);
    case VALUE_LOOP:
        return find_in(loop_methods, COUNT_OF(loop_methods), name);
    default:
        return NULL;
    }
}
