/* tmpl_builtins.c - filters and functions. Tests are in tmpl_tests.c, methods of strings in
 * tmpl_strings.c. */
#include "template/tmpl_builtins.h"

#include "template/tmpl_eval.h"
#include "template/tmpl_strings.h"

#include "base/check.h"
#include "base/err.h"
#include "base/json/json_source_load.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TMPL_RANGE_MAX 100000
/* Parsed values take up to sixty times the text, which the account of the general heap has room for. */
#define TMPL_FROM_JSON_BYTES_MAX (1 << 20)
#define FROM_JSON_UNITS          32 /* per byte */

static bool arg_true(const struct tmpl_args *args, uint32_t index, const char *name)
{
    const struct tmpl_value *v = tmpl_arg(args, index, name);
    return v && tmpl_truthy(v);
}

static int64_t arg_int(const struct tmpl_args *args, uint32_t index, const char *name, int64_t otherwise)
{
    const struct tmpl_value *v = tmpl_arg(args, index, name);
    int64_t i;
    return v && tmpl_integer(v, &i) ? i : otherwise;
}

/* x.a.b for the path "a.b", or x[number]; undefined when a step is missing. NULL: x itself. */
static struct tmpl_value attribute_path(struct tmpl_run *run, struct tmpl_value v,
                                        const struct tmpl_value *path)
{
    if (!path)
        return v;
    if (path->type != TMPL_STRING)
        return tmpl_get_item(run, v, *path);
    struct slice rest = path->s;
    while (tmpl_step(run, 1) && tmpl_work(run, tmpl_cost_find(rest.len))) {
        size_t point = slice_find(rest, SLICE("."), 0);
        struct slice name = slice_sub(rest, 0, point);
        uint64_t index;
        v = slice_u64(name, UINT32_MAX, &index) ? tmpl_get_item(run, v, tmpl_int((int64_t)index))
                                                : tmpl_get_item(run, v, tmpl_string(name));
        if (point == SIZE_MAX)
            break;
        rest = slice_sub(rest, point + 1, rest.len);
    }
    return v;
}

/* --- filters --- */

static struct tmpl_value filter_abs(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    int64_t i;
    (void)args;
    if (v.type == TMPL_FLOAT)
        return tmpl_float(fabs(v.f));
    if (!tmpl_integer(&v, &i) || i == INT64_MIN)
        return tmpl_fail(run, "bad operand type for abs: '%s'", tmpl_type_name(&v));
    return tmpl_int(i < 0 ? -i : i);
}

static struct tmpl_value filter_default(struct tmpl_run *run, struct tmpl_value v,
                                        const struct tmpl_args *args)
{
    const struct tmpl_value *d = tmpl_arg(args, 0, "default_value");
    bool missing = v.type == TMPL_UNDEFINED || (arg_true(args, 1, "boolean") && !tmpl_truthy(&v));
    (void)run;
    return !missing ? v : d ? *d : tmpl_string(SLICE(""));
}

static struct tmpl_value filter_items(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    (void)args;
    if (v.type == TMPL_UNDEFINED)
        return tmpl_list_of(run, tmpl_seq_begin(run, 0), TMPL_SEQ_GENERATOR);
    if (v.type != TMPL_DICT_VALUE)
        return tmpl_fail(run, "Can only get item pairs from a mapping.");
    return tmpl_pairs(run, v.dict);
}

/* Merge sort, stable: items by keys[]. */
struct sorter {
    struct tmpl_run *run;
    struct tmpl_value *items, *keys, *spare_items, *spare_keys;
    bool reverse, failed;
};

static bool sort_before(struct sorter *s, const struct tmpl_value *x, const struct tmpl_value *y)
{
    int order = 0;
    if (s->run->error)
        return true;
    if (!tmpl_compare(s->run, x, y, &order) && !s->failed) {
        s->failed = true;
        tmpl_fail(s->run, "'%s' and '%s' cannot be ordered", tmpl_type_name(x), tmpl_type_name(y));
    }
    return s->reverse ? order >= 0 : order <= 0;
}

static void sort_range(struct sorter *s, uint32_t begin, uint32_t end)
{
    ASSERT(begin <= end);
    if (end - begin < 2 || !tmpl_step(s->run, end - begin))
        return;
    uint32_t middle = begin + (end - begin) / 2, i = begin, j = middle;
    sort_range(s, begin, middle);
    sort_range(s, middle, end);
    for (uint32_t k = begin; k < end; k++) {
        bool left = j == end || (i < middle && sort_before(s, &s->keys[i], &s->keys[j]));
        uint32_t from = left ? i++ : j++;
        s->spare_items[k] = s->items[from];
        s->spare_keys[k] = s->keys[from];
    }
    memcpy(s->items + begin, s->spare_items + begin, (end - begin) * sizeof(*s->items));
    memcpy(s->keys + begin, s->spare_keys + begin, (end - begin) * sizeof(*s->keys));
}

/* A sorted copy: by attribute, ignoring case unless `case_sensitive`. */
static struct tmpl_value sorted(struct tmpl_run *run, const struct tmpl_seq *l,
                                const struct tmpl_value *attribute, bool case_sensitive, bool reverse)
{
    bool ok = tmpl_step(run, l->count);
    struct tmpl_value *all = ok ? ARENA_ARRAY(run->a, struct tmpl_value, (size_t)l->count * 4) : NULL;
    struct tmpl_seq *ret = all ? tmpl_seq_new(run->a, l->count) : NULL;
    if (!ret)
        return tmpl_fail_memory(run);
    struct sorter s = {run, ret->items, all, all + l->count, all + 2 * (size_t)l->count, reverse, false};
    for (uint32_t i = 0; i < l->count && !run->error; i++) {
        ret->items[i] = l->items[i];
        s.keys[i] = attribute_path(run, l->items[i], attribute);
        if (s.keys[i].type == TMPL_STRING && !case_sensitive)
            s.keys[i] = tmpl_lower(run, s.keys[i].s);
    }
    ret->count = l->count;
    if (!run->error)
        sort_range(&s, 0, l->count);
    return tmpl_list_of(run, ret, TMPL_SEQ_LIST);
}

static struct tmpl_value filter_sort(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    const struct tmpl_value *attribute = tmpl_arg(args, 2, "attribute");
    if (attribute && attribute->type == TMPL_NONE)
        attribute = NULL;
    return l ? sorted(run, l, attribute, arg_true(args, 1, "case_sensitive"), arg_true(args, 0, "reverse"))
             : v;
}

static struct tmpl_value filter_dictsort(struct tmpl_run *run, struct tmpl_value v,
                                         const struct tmpl_args *args)
{
    const struct tmpl_value *by = tmpl_arg(args, 1, "by");
    if (v.type != TMPL_DICT_VALUE)
        return tmpl_fail(run, "dictsort needs a mapping, not '%s'", tmpl_type_name(&v));
    struct tmpl_value pairs = tmpl_pairs(run, v.dict),
                      index = tmpl_int(by && by->type == TMPL_STRING && slice_eq(by->s, SLICE("value")));
    if (run->error)
        return v;
    return sorted(run, pairs.list, &index, arg_true(args, 0, "case_sensitive"), arg_true(args, 2, "reverse"));
}

static struct tmpl_value filter_unique(struct tmpl_run *run, struct tmpl_value v,
                                       const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    struct tmpl_seq *ret = l ? tmpl_seq_begin(run, l->count) : NULL;
    bool case_sensitive = arg_true(args, 0, "case_sensitive");
    for (uint32_t i = 0; ret && i < l->count && tmpl_step(run, 1); i++) {
        bool seen = false;
        for (uint32_t j = 0; j < ret->count && !seen && tmpl_step(run, 1); j++)
            seen = case_sensitive || l->items[i].type != TMPL_STRING || ret->items[j].type != TMPL_STRING
                       ? tmpl_equal(run, &l->items[i], &ret->items[j])
                       : tmpl_equal_caseless(run, l->items[i].s, ret->items[j].s);
        if (!seen)
            ret->items[ret->count++] = l->items[i];
    }
    return tmpl_list_of(run, ret, TMPL_SEQ_GENERATOR);
}

static struct tmpl_value edge(struct tmpl_run *run, struct tmpl_value v, bool last)
{
    if (last && v.type != TMPL_SEQ && v.type != TMPL_STRING && v.type != TMPL_DICT_VALUE &&
        v.type != TMPL_UNDEFINED)
        return tmpl_fail(run, "'%s' object is not reversible", tmpl_type_name(&v));
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    if (!l || l->count == 0)
        return tmpl_undefined(SLICE("an item of an empty sequence"));
    return l->items[last ? l->count - 1 : 0];
}

TMPL_BUILTIN(filter_first, edge(run, v, false))
TMPL_BUILTIN(filter_last, edge(run, v, true))

static struct tmpl_value filter_float(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    double f;
    const struct tmpl_value *d = tmpl_arg(args, 0, "default");
    if (tmpl_number(&v, &f) || (v.type == TMPL_STRING && tmpl_parse_float(run, v.s, &f)))
        return tmpl_float(f);
    return d ? *d : tmpl_float(0);
}

static struct tmpl_value filter_int(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    double f;
    const struct tmpl_value *d = tmpl_arg(args, 0, "default");
    if ((tmpl_number(&v, &f) || (v.type == TMPL_STRING && tmpl_parse_float(run, v.s, &f))) &&
        fabs(f) < 0x1p62)
        return v.type == TMPL_INT ? v : tmpl_int((int64_t)f);
    return d ? *d : tmpl_int(0);
}

static struct tmpl_value filter_join(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    const struct tmpl_value *separator = tmpl_arg(args, 0, "d"), *attribute = tmpl_arg(args, 1, "attribute");
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    for (uint32_t i = 0; l && i < l->count && tmpl_step(run, 1); i++) {
        struct tmpl_value item = attribute_path(run, l->items[i], attribute);
        if (i > 0 && separator)
            tmpl_print(&t, separator);
        tmpl_print(&t, &item);
    }
    return tmpl_text_end(run, &t);
}

static struct tmpl_value filter_length(struct tmpl_run *run, struct tmpl_value v,
                                       const struct tmpl_args *args)
{
    (void)args;
    switch (v.type) {
    case TMPL_STRING:
        return tmpl_work(run, tmpl_cost_chars(v.s.len)) ? tmpl_int((int64_t)tmpl_chars(v.s)) : v;
    case TMPL_DICT_VALUE:
        return tmpl_int(v.dict->count);
    case TMPL_UNDEFINED:
        return tmpl_int(0);
    case TMPL_SEQ:
        if (v.seq != TMPL_SEQ_GENERATOR)
            return tmpl_int(v.list->count);
        break;
    default:
        break;
    }
    return tmpl_fail(run, "object of type '%s' has no len()", tmpl_type_name(&v));
}

TMPL_BUILTIN(filter_list, tmpl_list_of(run, tmpl_iterate(run, &v), TMPL_SEQ_LIST))

static struct tmpl_value filter_reverse(struct tmpl_run *run, struct tmpl_value v,
                                        const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_iterate(run, &v),
                    *ret = l && tmpl_step(run, l->count) ? tmpl_seq_begin(run, l->count) : NULL;
    struct tmpl_text t;
    (void)args;
    tmpl_text_begin(run, &t);
    for (uint32_t i = l ? l->count : 0; ret && i-- > 0;) {
        ret->items[ret->count++] = l->items[i];
        if (v.type == TMPL_STRING)
            tmpl_text_put(&t, l->items[i].s);
    }
    return v.type == TMPL_STRING ? tmpl_text_end(run, &t) : tmpl_list_of(run, ret, TMPL_SEQ_GENERATOR);
}

/* The rest of the arguments, for a filter or test that is named by one. */
static struct tmpl_args args_from(const struct tmpl_args *args, uint32_t first)
{
    ASSERT(args->count <= TMPL_ARGS_MAX);
    struct tmpl_args rest = {.count = 0};
    for (uint32_t i = first; i < args->count; i++) {
        rest.items[rest.count] = args->items[i];
        rest.names[rest.count++] = args->names[i];
    }
    return rest;
}

/* The input of map, select and similar filters: empty where the value is falsy, even None. */
static struct tmpl_seq *lazy_items(struct tmpl_run *run, const struct tmpl_value *v)
{
    struct tmpl_value empty = tmpl_undefined(SLICE(""));
    return tmpl_iterate(run, tmpl_truthy(v) ? v : &empty);
}

static struct tmpl_value filter_map(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    const struct tmpl_value *attribute = tmpl_arg(args, TMPL_ARGS_MAX, "attribute"),
                            *d = tmpl_arg(args, TMPL_ARGS_MAX, "default");
    const struct tmpl_value *name = tmpl_arg(args, 0, "");
    int filter = name && name->type == TMPL_STRING ? tmpl_filter_find(name->s) : -1;
    if (!attribute && filter < 0)
        return tmpl_fail(run, "map needs attribute= or the name of a filter");
    struct tmpl_args rest = args_from(args, 1);
    struct tmpl_seq *l = lazy_items(run, &v), *ret = l ? tmpl_seq_begin(run, l->count) : NULL;
    for (uint32_t i = 0; ret && i < l->count && tmpl_step(run, 1); i++) {
        ASSERT(ret->count < ret->capacity);
        struct tmpl_value item = attribute ? attribute_path(run, l->items[i], attribute)
                                           : tmpl_filter_call(run, filter, l->items[i], &rest);
        ret->items[ret->count++] = item.type == TMPL_UNDEFINED && d ? *d : item;
    }
    return tmpl_list_of(run, ret, TMPL_SEQ_GENERATOR);
}

/* select, reject (by_attribute false), selectattr, rejectattr. */
static struct tmpl_value filtered(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args,
                                  bool by_attribute, bool keep)
{
    const struct tmpl_value *attribute = by_attribute ? tmpl_arg(args, 0, "") : NULL;
    const struct tmpl_value *name = tmpl_arg(args, by_attribute, "");
    int test = name && name->type == TMPL_STRING ? tmpl_test_find(name->s) : -1;
    if ((by_attribute && !attribute) || (name && test < 0))
        return tmpl_fail(run, "a filter over items needs the name of a test");
    struct tmpl_args rest = args_from(args, (uint32_t)by_attribute + 1);
    struct tmpl_seq *l = lazy_items(run, &v), *ret = l ? tmpl_seq_begin(run, l->count) : NULL;
    for (uint32_t i = 0; ret && i < l->count && tmpl_step(run, 1); i++) {
        ASSERT(ret->count < ret->capacity);
        struct tmpl_value item = attribute_path(run, l->items[i], attribute);
        bool yes = !run->error && (name ? tmpl_test_call(run, test, item, &rest) : tmpl_truthy(&item));
        if (yes == keep)
            ret->items[ret->count++] = l->items[i];
    }
    return tmpl_list_of(run, ret, TMPL_SEQ_GENERATOR);
}

TMPL_BUILTIN(filter_select, filtered(run, v, args, false, true))
TMPL_BUILTIN(filter_reject, filtered(run, v, args, false, false))
TMPL_BUILTIN(filter_selectattr, filtered(run, v, args, true, true))
TMPL_BUILTIN(filter_rejectattr, filtered(run, v, args, true, false))

static struct tmpl_value extreme(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args,
                                 int sign)
{
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    const struct tmpl_value *attribute = tmpl_arg(args, 1, "attribute");
    if (!l || l->count == 0)
        return tmpl_undefined(SLICE("an item of an empty sequence"));
    struct tmpl_value best = attribute_path(run, l->items[0], attribute);
    for (uint32_t i = 1; i < l->count && tmpl_step(run, 1); i++) {
        struct tmpl_value item = attribute_path(run, l->items[i], attribute);
        int order;
        if (!tmpl_compare(run, &item, &best, &order))
            return tmpl_fail(run, "'%s' and '%s' cannot be ordered", tmpl_type_name(&item),
                             tmpl_type_name(&best));
        if (order * sign > 0)
            best = item;
    }
    return best;
}

TMPL_BUILTIN(filter_max, extreme(run, v, args, 1))
TMPL_BUILTIN(filter_min, extreme(run, v, args, -1))

static struct tmpl_value filter_round(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    double f, scale = pow(10, (double)arg_int(args, 0, "precision", 0));
    const struct tmpl_value *method = tmpl_arg(args, 1, "method");
    if (!tmpl_number(&v, &f))
        return tmpl_fail(run, "'%s' cannot be rounded", tmpl_type_name(&v));
    if (method && method->type == TMPL_STRING && slice_eq(method->s, SLICE("ceil")))
        return tmpl_float(ceil(f * scale) / scale);
    if (method && method->type == TMPL_STRING && slice_eq(method->s, SLICE("floor")))
        return tmpl_float(floor(f * scale) / scale);
    return tmpl_float(rint(f * scale) / scale);
}

TMPL_BUILTIN(filter_string, tmpl_to_string(run, &v))

static struct tmpl_value filter_sum(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    struct tmpl_seq *l = tmpl_iterate(run, &v);
    const struct tmpl_value *attribute = tmpl_arg(args, 0, "attribute");
    int64_t whole = 0, i;
    double sum = 0, f;
    bool integers = true;
    for (uint32_t n = 0; l && n < l->count && tmpl_step(run, 1); n++) {
        struct tmpl_value item = attribute_path(run, l->items[n], attribute);
        if (!tmpl_number(&item, &f))
            return tmpl_fail(run, "'%s' cannot be summed", tmpl_type_name(&item));
        integers = integers && tmpl_integer(&item, &i) && !__builtin_add_overflow(whole, i, &whole);
        sum += f;
    }
    return integers ? tmpl_int(whole) : tmpl_float(sum);
}

static struct slice text_or_null(const struct tmpl_value *list, uint32_t index)
{
    bool there = list && list->type == TMPL_SEQ && index < list->list->count &&
                 list->list->items[index].type == TMPL_STRING;
    return there ? list->list->items[index].s : (struct slice){0};
}

static struct tmpl_value filter_tojson(struct tmpl_run *run, struct tmpl_value v,
                                       const struct tmpl_args *args)
{
    const struct tmpl_value *separators = tmpl_arg(args, 2, "separators");
    struct tmpl_json_opts opts = {
        .indent = (int)MIN_OF(MAX_OF(arg_int(args, 1, "indent", -1), (int64_t)-1), (int64_t)64),
        .sort_keys = arg_true(args, 3, "sort_keys"),
        .ensure_ascii = arg_true(args, 0, "ensure_ascii"),
        .item_separator = text_or_null(separators, 0),
        .key_separator = text_or_null(separators, 1)};
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    const char *bad = tmpl_tojson(&t, &v, &opts, 0);
    if (bad)
        return tmpl_fail(run, "Object of type %s is not JSON serializable", bad);
    return tmpl_text_end(run, &t);
}

static struct tmpl_value filter_from_json(struct tmpl_run *run, struct tmpl_value v,
                                          const struct tmpl_args *args)
{
    json_error_t e;
    struct tmpl_value ret, kept;
    (void)args;
    if (v.type != TMPL_STRING)
        return tmpl_fail(run, "from_json needs a string, not '%s'", tmpl_type_name(&v));
    if (v.s.len > TMPL_FROM_JSON_BYTES_MAX)
        return tmpl_fail(run, "from_json takes at most %d bytes", TMPL_FROM_JSON_BYTES_MAX);
    if (!tmpl_work(run, FROM_JSON_UNITS * (16 + v.s.len)))
        return v;
    json_t *json = json_source_load(v.s, JSON_DECODE_ANY, &e);
    if (!json)
        return tmpl_fail(run, "from_json: %s", e.text);
    /* The copy must not point into jansson's strings: write it out and keep those bytes. */
    bool ok = tmpl_from_json(run->a, json, 0, &ret) && tmpl_deep_copy(run->a, &ret, 0, &kept);
    json_decref(json);
    return ok ? kept : tmpl_fail_memory(run);
}

/* Lists of a given number of items; the last is filled up. */
static struct tmpl_value filter_batch(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    const struct tmpl_value *fill = tmpl_arg(args, 1, "fill_with");
    int64_t size = arg_int(args, 0, "linecount", 0);
    struct tmpl_seq *items = tmpl_iterate(run, &v), *batches = tmpl_seq_begin(run, 0);
    bool ok = items && batches;
    if (ok && (size < 1 || size > TMPL_RANGE_MAX))
        return tmpl_fail(run, "batch takes a number of 1 to %d", TMPL_RANGE_MAX);
    for (uint32_t i = 0; ok && i < items->count;) {
        struct tmpl_seq *one = tmpl_seq_begin(run, 0);
        ok = one != NULL;
        for (int64_t n = 0; ok && n < size && tmpl_step(run, 1); n++, i++) {
            if (i < items->count)
                ok = tmpl_seq_push(run->a, one, items->items[i]);
            else if (fill && fill->type != TMPL_NONE)
                ok = tmpl_seq_push(run->a, one, *fill);
        }
        ok = ok && !run->error && tmpl_seq_push(run->a, batches, tmpl_list_of(run, one, TMPL_SEQ_LIST));
    }
    return ok ? tmpl_list_of(run, batches, TMPL_SEQ_GENERATOR) : tmpl_fail_memory(run);
}

static struct tmpl_value filter_safe(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)
{
    (void)args;
    v = tmpl_to_string(run, &v);
    v.markup = true;
    return v;
}

static const struct {
    const char *name;
    tmpl_builtin_fn *call;
} filters[] = {
    {"abs", filter_abs},
    {"batch", filter_batch},
    {"capitalize", tmpl_filter_capitalize},
    {"center", tmpl_filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", tmpl_filter_escape},
    {"escape", tmpl_filter_escape},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", tmpl_filter_escape},
    {"format", tmpl_filter_format},
    {"from_json", filter_from_json},
    {"indent", tmpl_filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", tmpl_filter_lower},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", tmpl_filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", tmpl_filter_title},
    {"tojson", filter_tojson},
    {"trim", tmpl_filter_trim},
    {"truncate", tmpl_filter_truncate},
    {"unique", filter_unique},
    {"upper", tmpl_filter_upper},
    {"wordcount", tmpl_filter_wordcount},
};

int tmpl_filter_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(filters); i++)
        if (slice_eq(name, slice_of(filters[i].name)))
            return (int)i;
    return -1;
}

struct tmpl_value tmpl_filter_call(struct tmpl_run *run, int filter, struct tmpl_value v,
                                   const struct tmpl_args *args)
{
    ASSERT(filter >= 0 && (size_t)filter < COUNT_OF(filters));
    return tmpl_step(run, 1) ? filters[filter].call(run, v, args) : v;
}

/* --- global functions --- */

typedef struct tmpl_value function_fn(struct tmpl_run *run, const struct tmpl_args *args);

static struct tmpl_value dict_of_arguments(struct tmpl_run *run, const struct tmpl_args *args,
                                           enum tmpl_type type)
{
    ASSERT(args->count <= TMPL_ARGS_MAX && (type == TMPL_NAMESPACE || type == TMPL_DICT_VALUE));
    struct tmpl_dict *d = tmpl_dict_new(run->a, args->count);
    bool ok = d != NULL;
    for (uint32_t i = 0; i < args->count && ok; i++) {
        const struct tmpl_value *from = &args->items[i];
        if (args->names[i].ptr)
            ok = tmpl_dict_set(run, run->a, d, tmpl_string(args->names[i]), *from);
        for (uint32_t j = 0;
             !args->names[i].ptr && from->type == TMPL_DICT_VALUE && j < from->dict->count && ok; j++)
            ok = tmpl_dict_set(run, run->a, d, from->dict->keys[j], from->dict->values[j]);
    }
    if (!ok)
        tmpl_fail_memory(run);
    return type == TMPL_NAMESPACE && ok ? (struct tmpl_value){.type = type, .dict = d} : tmpl_dict_of(run, d);
}

static struct tmpl_value function_dict(struct tmpl_run *run, const struct tmpl_args *args)
{
    return dict_of_arguments(run, args, TMPL_DICT_VALUE);
}

static struct tmpl_value function_namespace(struct tmpl_run *run, const struct tmpl_args *args)
{
    return dict_of_arguments(run, args, TMPL_NAMESPACE);
}

static struct tmpl_value function_raise(struct tmpl_run *run, const struct tmpl_args *args)
{
    struct tmpl_value message = args->count ? tmpl_to_string(run, &args->items[0]) : tmpl_string(SLICE(""));
    /* The template's own message, for the client: without a line in front. */
    struct slice words = slice_sub(message.s, 0, 400);
    words.len = utf8_valid_bytes(words);
    if (words.len == 0 || words.ptr[0] == '\0')
        words = SLICE("The chat template refused this request without saying why.");
    if (run->error == 0)
        run->error = err_set(run->e, -EINVAL, "%.*s", SLICE_ARGS(words));
    return tmpl_none();
}

static struct tmpl_value function_range(struct tmpl_run *run, const struct tmpl_args *args)
{
    int64_t v[3] = {0, 0, 1};
    for (uint32_t i = 0; i < args->count && i < 3; i++)
        if (!tmpl_integer(&args->items[i], &v[i]))
            return tmpl_fail(run, "range needs integers");
    if (args->count == 0 || args->count > 3 || v[2] == 0)
        return tmpl_fail(run, "range takes 1 to 3 integers, and no step 0");
    int64_t from = args->count == 1 ? 0 : v[0], to = args->count == 1 ? v[0] : v[1];
    struct tmpl_seq *l = tmpl_seq_begin(run, 0);
    for (int64_t i = from; l && (v[2] > 0 ? i < to : i > to) && tmpl_step(run, 1);) {
        if (l->count == TMPL_RANGE_MAX)
            return tmpl_fail(run, "range is longer than %d", TMPL_RANGE_MAX);
        if (!tmpl_seq_push(run->a, l, tmpl_int(i)))
            return tmpl_fail_memory(run);
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

static struct tmpl_value function_strftime_now(struct tmpl_run *run, const struct tmpl_args *args)
{
    char text[256], format[128];
    time_t now = (time_t)run->now_s;
    struct tm tm;
    if (args->count != 1 || args->items[0].type != TMPL_STRING || args->items[0].s.len >= sizeof(format))
        return tmpl_fail(run, "strftime_now takes a format of at most 127 bytes");
    snprintf(format, sizeof(format), "%.*s", SLICE_ARGS(args->items[0].s));
    localtime_r(&now, &tm);
    size_t n = strftime(text, sizeof(text), format, &tm);
    ASSERT(n < sizeof(text));
    char *copy = arena_strndup(run->a, text, n);
    return copy ? tmpl_string((struct slice){copy, n}) : tmpl_fail_memory(run);
}

static const struct {
    const char *name;
    function_fn *call;
} functions[] = {
    {"dict", function_dict},   {"namespace", function_namespace},       {"raise_exception", function_raise},
    {"range", function_range}, {"strftime_now", function_strftime_now},
};

int tmpl_function_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (slice_eq(name, slice_of(functions[i].name)))
            return (int)i;
    return -1;
}

struct tmpl_value tmpl_function_call(struct tmpl_run *run, int function, const struct tmpl_args *args)
{
    ASSERT(function >= 0 && (size_t)function < COUNT_OF(functions));
    return functions[function].call(run, args);
}
