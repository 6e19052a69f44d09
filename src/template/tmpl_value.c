/* tmpl_value.c - Python's values, as far as chat templates use them.
 *
 * Dicts are searched linearly: a message has a handful of keys, and templates print insertion order. */
#include "template/tmpl_value.h"

#include "template/tmpl_eval.h"

#include "base/check.h"
#include "base/wide_integer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Charges in addition to the bytes. */
#define PUT_UNITS   16
#define ITEM_UNITS  8
#define INT_UNITS   100
#define FLOAT_UNITS 8000 /* up to 17 tries, each written and parsed */

void tmpl_text_init(struct tmpl_text *t, struct arena *a, size_t bytes_max)
{
    *t = (struct tmpl_text){.a = a, .bytes_max = bytes_max};
}

void tmpl_text_begin(struct tmpl_run *run, struct tmpl_text *t)
{
    tmpl_text_init(t, run->a, run->text_bytes_max);
    t->run = run;
}

struct tmpl_value tmpl_text_end(struct tmpl_run *run, const struct tmpl_text *t)
{
    return t->failed ? tmpl_fail_memory(run) : tmpl_string(tmpl_text_slice(t));
}

void tmpl_text_put(struct tmpl_text *t, struct slice s)
{
    ASSERT(t->len <= t->capacity && t->capacity <= t->bytes_max);
    if (t->failed || s.len == 0)
        return;
    t->full = s.len > t->bytes_max - t->len;
    if (t->full || !tmpl_work(t->run, PUT_UNITS + tmpl_cost_copy(s.len))) {
        t->failed = true;
        return;
    }
    if (s.len > t->capacity - t->len) {
        size_t want = MIN_OF(MAX_OF(MAX_OF(t->capacity * 2, (size_t)64), t->len + s.len), t->bytes_max);
        char *p = arena_alloc_align(t->a, want, 1);
        if (!p) {
            t->failed = true;
            return;
        }
        if (t->len)
            memcpy(p, t->ptr, t->len);
        t->ptr = p;
        t->capacity = want;
    }
    memcpy(t->ptr + t->len, s.ptr, s.len);
    t->len += s.len;
}

void tmpl_text_putc(struct tmpl_text *t, char c)
{
    tmpl_text_put(t, (struct slice){&c, 1});
}

static void put_cstr(struct tmpl_text *t, const char *s)
{
    tmpl_text_put(t, slice_of(s));
}

struct tmpl_seq *tmpl_seq_new(struct arena *a, uint32_t capacity)
{
    struct tmpl_seq *l = ARENA_NEW(a, struct tmpl_seq);
    if (!l)
        return NULL;
    l->items = ARENA_ARRAY(a, struct tmpl_value, capacity);
    l->capacity = capacity;
    return l->items ? l : NULL;
}

struct tmpl_seq *tmpl_seq_begin(struct tmpl_run *run, uint32_t capacity)
{
    struct tmpl_seq *l = tmpl_seq_new(run->a, capacity);
    if (!l)
        tmpl_fail_memory(run);
    return l;
}

bool tmpl_seq_push(struct arena *a, struct tmpl_seq *l, struct tmpl_value v)
{
    ASSERT(l->count <= l->capacity);
    if (l->count == l->capacity) {
        uint32_t want = l->capacity < 8 ? 16 : l->capacity * 2;
        struct tmpl_value *items = ARENA_ARRAY(a, struct tmpl_value, want);
        if (!items)
            return false;
        memcpy(items, l->items, l->count * sizeof(*items));
        l->items = items;
        l->capacity = want;
    }
    l->items[l->count++] = v;
    return true;
}

/* The depth of a container of these values. */
static uint32_t depth_around(const struct tmpl_value *items, uint32_t count)
{
    uint32_t depth = 1;
    for (uint32_t i = 0; i < count; i++)
        depth = MAX_OF(depth, 1 + tmpl_depth(&items[i]));
    return depth;
}

static bool depth_fits(struct tmpl_run *run, uint32_t depth)
{
    if (depth > TMPL_VALUE_DEPTH_MAX && run->error == 0)
        run->error =
            err_set(run->e, -E2BIG, "the chat template nests values deeper than %d", TMPL_VALUE_DEPTH_MAX);
    return depth <= TMPL_VALUE_DEPTH_MAX;
}

struct tmpl_value tmpl_list_of(struct tmpl_run *run, struct tmpl_seq *l, enum tmpl_seq_kind kind)
{
    if (!l)
        return tmpl_none();
    if (l->depth == 0)
        l->depth = depth_around(l->items, l->count);
    ASSERT(l->count <= l->capacity && l->depth > 0);
    return depth_fits(run, l->depth) ? (struct tmpl_value){.type = TMPL_SEQ, .seq = kind, .list = l}
                                     : tmpl_none();
}

struct tmpl_value tmpl_dict_of(struct tmpl_run *run, struct tmpl_dict *d)
{
    if (!d)
        return tmpl_none();
    ASSERT(d->count <= d->capacity && d->depth > 0);
    return depth_fits(run, d->depth) ? (struct tmpl_value){.type = TMPL_DICT_VALUE, .dict = d} : tmpl_none();
}

struct tmpl_dict *tmpl_dict_new(struct arena *a, uint32_t capacity)
{
    struct tmpl_dict *d = ARENA_NEW(a, struct tmpl_dict);
    if (!d)
        return NULL;
    d->keys = ARENA_ARRAY(a, struct tmpl_value, capacity);
    d->values = ARENA_ARRAY(a, struct tmpl_value, capacity);
    d->capacity = capacity;
    d->depth = 1;
    return d->keys && d->values ? d : NULL;
}

const struct tmpl_value *tmpl_dict_get(struct tmpl_run *run, const struct tmpl_dict *d,
                                       const struct tmpl_value *key)
{
    for (uint32_t i = 0; i < d->count && tmpl_work(run, ITEM_UNITS); i++)
        if (tmpl_equal(run, &d->keys[i], key))
            return &d->values[i];
    return NULL;
}

const struct tmpl_value *tmpl_dict_find(struct tmpl_run *run, const struct tmpl_dict *d, struct slice key)
{
    struct tmpl_value k = tmpl_string(key);
    return tmpl_dict_get(run, d, &k);
}

bool tmpl_dict_set(struct tmpl_run *run, struct arena *a, struct tmpl_dict *d, struct tmpl_value key,
                   struct tmpl_value v)
{
    struct tmpl_value *there = (struct tmpl_value *)tmpl_dict_get(run, d, &key);
    d->depth = MAX_OF(d->depth, 1 + MAX_OF(tmpl_depth(&key), tmpl_depth(&v)));
    ASSERT(d->count <= d->capacity);
    if (there) {
        *there = v;
        return true;
    }
    if (d->count == d->capacity) {
        struct tmpl_dict *bigger = tmpl_dict_new(a, d->capacity < 8 ? 16 : d->capacity * 2);
        if (!bigger)
            return false;
        memcpy(bigger->keys, d->keys, d->count * sizeof(*d->keys));
        memcpy(bigger->values, d->values, d->count * sizeof(*d->values));
        bigger->count = d->count;
        bigger->depth = d->depth;
        bigger->message = d->message;
        *d = *bigger;
    }
    d->keys[d->count] = key;
    d->values[d->count++] = v;
    return true;
}

static bool from_json_object(struct arena *a, const json_t *json, uint32_t depth, struct tmpl_value *ret)
{
    const char *key;
    json_t *member;
    uint32_t i = 0;
    struct tmpl_dict *d = tmpl_dict_new(a, (uint32_t)json_object_size(json));
    if (!d)
        return false;
    /* Keys of a JSON object differ already: no search. */
    json_object_foreach((json_t *)json, key, member) {
        d->keys[i] = tmpl_string(slice_of(key));
        if (!tmpl_from_json(a, member, depth + 1, &d->values[i++]))
            return false;
    }
    d->count = i;
    ASSERT(d->count <= d->capacity);
    d->depth = depth_around(d->values, i);
    *ret = (struct tmpl_value){.type = TMPL_DICT_VALUE, .dict = d};
    return true;
}

bool tmpl_from_json(struct arena *a, const json_t *json, uint32_t depth, struct tmpl_value *ret)
{
    size_t i;
    json_t *member;
    if (depth > TMPL_VALUE_DEPTH_MAX)
        return false;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return from_json_object(a, json, depth, ret);
    case JSON_ARRAY: {
        struct tmpl_seq *l = tmpl_seq_new(a, (uint32_t)json_array_size(json));
        if (!l)
            return false;
        json_array_foreach(json, i, member)
            if (!tmpl_from_json(a, member, depth + 1, &l->items[i]))
                return false;
        l->count = (uint32_t)json_array_size(json);
        l->depth = depth_around(l->items, l->count);
        *ret = (struct tmpl_value){.type = TMPL_SEQ, .seq = TMPL_SEQ_LIST, .list = l};
        return true;
    }
    case JSON_STRING:
        *ret = tmpl_string((struct slice){json_string_value(json), json_string_length(json)});
        return true;
    case JSON_INTEGER:
        *ret = tmpl_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *ret = tmpl_float(json_real_value(json));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *ret = tmpl_bool(json_is_true(json));
        return true;
    case JSON_NULL:
        *ret = tmpl_none();
        return true;
    }
    return false;
}

bool tmpl_truthy(const struct tmpl_value *v)
{
    switch (v->type) {
    case TMPL_UNDEFINED:
    case TMPL_NONE:
        return false;
    case TMPL_BOOL:
        return v->b;
    case TMPL_INT:
        return v->i != 0;
    case TMPL_FLOAT:
        return v->f != 0;
    case TMPL_STRING:
        return v->s.len > 0;
    case TMPL_SEQ:
        return v->seq == TMPL_SEQ_GENERATOR || v->list->count > 0;
    case TMPL_DICT_VALUE:
        return v->dict->count > 0;
    default:
        return true;
    }
}

bool tmpl_integer(const struct tmpl_value *v, int64_t *ret)
{
    if (v->type == TMPL_INT)
        *ret = v->i;
    else if (v->type == TMPL_BOOL)
        *ret = v->b;
    else
        return false;
    return true;
}

bool tmpl_number(const struct tmpl_value *v, double *ret)
{
    int64_t i;
    if (v->type == TMPL_FLOAT) {
        *ret = v->f;
        return true;
    }
    if (!tmpl_integer(v, &i))
        return false;
    *ret = (double)i;
    return true;
}

static bool equal_strings(struct tmpl_run *run, struct slice x, struct slice y)
{
    return x.len == y.len && tmpl_work(run, tmpl_cost_copy(x.len)) && slice_eq(x, y);
}

static bool equal_lists(struct tmpl_run *run, const struct tmpl_seq *x, const struct tmpl_seq *y)
{
    if (x->count != y->count)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        if (!tmpl_work(run, ITEM_UNITS) || !tmpl_equal(run, &x->items[i], &y->items[i]))
            return false;
    return true;
}

static bool equal_dicts(struct tmpl_run *run, const struct tmpl_dict *x, const struct tmpl_dict *y)
{
    if (x->count != y->count)
        return false;
    for (uint32_t i = 0; i < x->count; i++) {
        const struct tmpl_value *other = tmpl_dict_get(run, y, &x->keys[i]);
        if (!other || !tmpl_equal(run, &x->values[i], other))
            return false;
    }
    return true;
}

/* Recursion is as deep as the values are. */
bool tmpl_equal(struct tmpl_run *run, const struct tmpl_value *x, const struct tmpl_value *y)
{
    int64_t i, j;
    double f, g;
    if (tmpl_integer(x, &i) && tmpl_integer(y, &j))
        return i == j;
    if (tmpl_number(x, &f) && tmpl_number(y, &g))
        return f == g;
    if (x->type != y->type)
        return false;
    switch (x->type) {
    case TMPL_UNDEFINED:
    case TMPL_NONE:
        return true;
    case TMPL_STRING:
        return equal_strings(run, x->s, y->s);
    case TMPL_SEQ:
        return x->seq == y->seq && equal_lists(run, x->list, y->list);
    case TMPL_DICT_VALUE:
        return equal_dicts(run, x->dict, y->dict);
    default:
        return x->dict == y->dict;
    }
}

const char *tmpl_type_name(const struct tmpl_value *v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",       "int",       "float",
                                        "str",       "list",     "dict",       "Namespace", "Macro",
                                        "function",  "method",   "LoopContext"};
    ASSERT((size_t)v->type < COUNT_OF(names));
    if (v->type == TMPL_SEQ && v->seq != TMPL_SEQ_LIST)
        return v->seq == TMPL_SEQ_TUPLE ? "tuple" : "generator";
    return names[v->type];
}

static bool charged(struct tmpl_text *t, size_t units)
{
    if (!t->failed && !tmpl_work(t->run, units))
        t->failed = true;
    return !t->failed;
}

/* Python's repr of a float: the fewest digits that parse to the same value, with ".0" or an exponent. */
static void put_float(struct tmpl_text *t, double f)
{
    char text[40], out[64];
    struct slice integer = wide_integer_text(f);
    if (isnan(f) || isinf(f)) {
        put_cstr(t, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    if (integer.len) {
        tmpl_text_put(t, integer);
        return;
    }
    int digits = 1;
    if (!charged(t, FLOAT_UNITS))
        return;
    while (digits < 17 && (snprintf(text, sizeof(text), "%.*e", digits - 1, f), strtod(text, NULL) != f))
        digits++;
    ASSERT(digits >= 1 && digits <= 17);
    snprintf(text, sizeof(text), "%.*e", digits - 1, f);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        snprintf(out, sizeof(out), "%.*f", MAX_OF(digits - 1 - exponent, 1), f);
    } else {
        *strchr(text, 'e') = 0;
        snprintf(out, sizeof(out), "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
    }
    put_cstr(t, out);
}

/* Python's quotes: single, unless the text has single and no double ones. Controls are escaped, other
 * characters kept. */
static void put_quoted(struct tmpl_text *t, struct slice s)
{
    if (!charged(t, 2 * tmpl_cost_find(s.len)))
        return;
    char quote =
        slice_find(s, SLICE("'"), 0) != SIZE_MAX && slice_find(s, SLICE("\""), 0) == SIZE_MAX ? '"' : '\'';
    tmpl_text_putc(t, quote);
    for (size_t i = 0; i < s.len && !t->failed; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        char hex[8];
        if (c == quote || c == '\\') {
            tmpl_text_putc(t, '\\');
            tmpl_text_putc(t, (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            put_cstr(t, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(hex, sizeof(hex), "\\x%02x", c);
            put_cstr(t, hex);
        } else {
            tmpl_text_putc(t, (char)c);
        }
    }
    tmpl_text_putc(t, quote);
}

static void put_repr(struct tmpl_text *t, const struct tmpl_value *v, uint32_t depth);

static void repr_seq(struct tmpl_text *t, const struct tmpl_value *v, uint32_t depth)
{
    ASSERT(v->type == TMPL_SEQ && v->seq != TMPL_SEQ_GENERATOR);
    bool tuple = v->seq == TMPL_SEQ_TUPLE;
    tmpl_text_putc(t, tuple ? '(' : '[');
    for (uint32_t i = 0; i < v->list->count && !t->failed; i++) {
        if (i > 0)
            put_cstr(t, ", ");
        put_repr(t, &v->list->items[i], depth + 1);
    }
    if (tuple && v->list->count == 1)
        tmpl_text_putc(t, ',');
    tmpl_text_putc(t, tuple ? ')' : ']');
}

static void repr_dict(struct tmpl_text *t, const struct tmpl_dict *d, uint32_t depth)
{
    tmpl_text_putc(t, '{');
    for (uint32_t i = 0; i < d->count && !t->failed; i++) {
        if (i > 0)
            put_cstr(t, ", ");
        put_repr(t, &d->keys[i], depth + 1);
        put_cstr(t, ": ");
        put_repr(t, &d->values[i], depth + 1);
    }
    tmpl_text_putc(t, '}');
}

static void put_repr(struct tmpl_text *t, const struct tmpl_value *v, uint32_t depth)
{
    char number[32];
    ASSERT(depth <= TMPL_VALUE_DEPTH_MAX);
    switch (v->type) {
    case TMPL_UNDEFINED:
        put_cstr(t, depth > 0 ? "Undefined" : "");
        break;
    case TMPL_NONE:
        put_cstr(t, "None");
        break;
    case TMPL_BOOL:
        put_cstr(t, v->b ? "True" : "False");
        break;
    case TMPL_INT:
        if (!charged(t, INT_UNITS))
            break;
        snprintf(number, sizeof(number), "%lld", (long long)v->i);
        put_cstr(t, number);
        break;
    case TMPL_FLOAT:
        put_float(t, v->f);
        break;
    case TMPL_STRING:
        put_quoted(t, v->s);
        break;
    case TMPL_SEQ:
        if (v->seq == TMPL_SEQ_GENERATOR)
            put_cstr(t, "<generator object>");
        else
            repr_seq(t, v, depth);
        break;
    case TMPL_DICT_VALUE:
        repr_dict(t, v->dict, depth);
        break;
    default:
        tmpl_text_putc(t, '<');
        put_cstr(t, tmpl_type_name(v));
        tmpl_text_putc(t, '>');
    }
}

void tmpl_print(struct tmpl_text *t, const struct tmpl_value *v)
{
    if (v->type == TMPL_STRING)
        tmpl_text_put(t, v->s);
    else
        put_repr(t, v, 0);
}

void tmpl_print_repr(struct tmpl_text *t, const struct tmpl_value *v)
{
    if (v->type == TMPL_UNDEFINED)
        put_cstr(t, "Undefined");
    else
        put_repr(t, v, 0);
}

static void json_unicode(struct tmpl_text *t, struct slice s, size_t *at)
{
    unsigned char c = (unsigned char)s.ptr[*at];
    unsigned length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    uint32_t code = c & (0x7f >> length);
    for (unsigned i = 1; i < length && *at + i < s.len; i++)
        code = code << 6 | ((unsigned char)s.ptr[*at + i] & 0x3f);
    char text[16];
    if (code >= 0x10000)
        snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + (code & 0x3ff));
    else
        snprintf(text, sizeof(text), "\\u%04x", code);
    put_cstr(t, text);
    *at += length - 1;
}

static void json_string_put(struct tmpl_text *t, struct slice s, bool ensure_ascii)
{
    tmpl_text_putc(t, '"');
    for (size_t i = 0; i < s.len && !t->failed; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
        const char *at = c ? strchr(plain, c) : NULL;
        char hex[8];
        if (at) {
            tmpl_text_putc(t, '\\');
            tmpl_text_putc(t, letters[at - plain]);
        } else if (c < 0x20) {
            snprintf(hex, sizeof(hex), "\\u%04x", c);
            put_cstr(t, hex);
        } else if (c >= 0x80 && ensure_ascii) {
            json_unicode(t, s, &i);
        } else {
            tmpl_text_putc(t, (char)c);
        }
    }
    tmpl_text_putc(t, '"');
}

static void json_newline(struct tmpl_text *t, const struct tmpl_json_opts *o, uint32_t depth)
{
    if (o->indent < 0)
        return;
    tmpl_text_putc(t, '\n');
    for (int64_t i = (int64_t)o->indent * depth; i > 0 && !t->failed; i--)
        tmpl_text_putc(t, ' ');
}

static void json_separator(struct tmpl_text *t, const struct tmpl_json_opts *o)
{
    if (o->item_separator.ptr)
        tmpl_text_put(t, o->item_separator);
    else
        put_cstr(t, o->indent < 0 ? ", " : ",");
}

static int compare_keys(const void *x, const void *y)
{
    const struct tmpl_value *const *a = x, *const *b = y;
    size_t n = MIN_OF((*a)->s.len, (*b)->s.len);
    int r = n ? memcmp((*a)->s.ptr, (*b)->s.ptr, n) : 0;
    return r ? r : ((*a)->s.len > (*b)->s.len) - ((*a)->s.len < (*b)->s.len);
}

/* A key of another type is written as a string, as in Python for numbers, booleans and None. */
static void json_key(struct tmpl_text *t, const struct tmpl_value *key, bool ensure_ascii)
{
    if (key->type == TMPL_STRING) {
        json_string_put(t, key->s, ensure_ascii);
        return;
    }
    struct tmpl_json_opts flat = {.indent = -1};
    tmpl_text_putc(t, '"');
    (void)tmpl_tojson(t, key, &flat, 0);
    tmpl_text_putc(t, '"');
}

/* A comparison reads at most the shorter key; there are log2(count) for each key. */
static size_t sort_units(const struct tmpl_dict *d, bool sorts)
{
    size_t units = (size_t)d->count * ITEM_UNITS, rounds = 1;
    for (uint32_t n = d->count; n > 1; n /= 2)
        rounds++;
    for (uint32_t i = 0; sorts && i < d->count; i++)
        units += rounds * (ITEM_UNITS + tmpl_cost_copy(d->keys[i].s.len));
    return units;
}

static const char *json_dict(struct tmpl_text *t, const struct tmpl_dict *d, const struct tmpl_json_opts *o,
                             uint32_t depth)
{
    if (!charged(t, sort_units(d, o->sort_keys)))
        return NULL;
    const struct tmpl_value **order = ARENA_ARRAY(t->a, const struct tmpl_value *, d->count);
    if (!order) {
        t->failed = true;
        return NULL;
    }
    for (uint32_t i = 0; i < d->count; i++)
        order[i] = &d->keys[i];
    if (o->sort_keys && d->count > 1)
        qsort(order, d->count, sizeof(*order), compare_keys);
    tmpl_text_putc(t, '{');
    for (uint32_t i = 0; i < d->count; i++) {
        if (t->failed)
            return NULL;
        if (i > 0)
            json_separator(t, o);
        json_newline(t, o, depth + 1);
        json_key(t, order[i], o->ensure_ascii);
        tmpl_text_put(t, o->key_separator.ptr ? o->key_separator : SLICE(": "));
        const char *bad = tmpl_tojson(t, &d->values[order[i] - d->keys], o, depth + 1);
        if (bad)
            return bad;
    }
    if (d->count > 0)
        json_newline(t, o, depth);
    tmpl_text_putc(t, '}');
    return NULL;
}

static const char *json_seq(struct tmpl_text *t, const struct tmpl_seq *l, const struct tmpl_json_opts *o,
                            uint32_t depth)
{
    tmpl_text_putc(t, '[');
    for (uint32_t i = 0; i < l->count; i++) {
        if (t->failed)
            return NULL;
        if (i > 0)
            json_separator(t, o);
        json_newline(t, o, depth + 1);
        const char *bad = tmpl_tojson(t, &l->items[i], o, depth + 1);
        if (bad)
            return bad;
    }
    if (l->count > 0)
        json_newline(t, o, depth);
    tmpl_text_putc(t, ']');
    return NULL;
}

const char *tmpl_tojson(struct tmpl_text *t, const struct tmpl_value *v, const struct tmpl_json_opts *o,
                        uint32_t depth)
{
    ASSERT(depth <= TMPL_VALUE_DEPTH_MAX);
    switch (v->type) {
    case TMPL_NONE:
        put_cstr(t, "null");
        return NULL;
    case TMPL_BOOL:
        put_cstr(t, v->b ? "true" : "false");
        return NULL;
    case TMPL_FLOAT:
        if (!isfinite(v->f))
            put_cstr(t, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
        else
            put_float(t, v->f);
        return NULL;
    case TMPL_INT:
        put_repr(t, v, 0);
        return NULL;
    case TMPL_STRING:
        json_string_put(t, v->s, o->ensure_ascii);
        return NULL;
    case TMPL_SEQ:
        return v->seq == TMPL_SEQ_GENERATOR ? "generator" : json_seq(t, v->list, o, depth);
    case TMPL_DICT_VALUE:
        return json_dict(t, v->dict, o, depth);
    default:
        return tmpl_type_name(v);
    }
}

size_t tmpl_chars(struct slice s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
    return n;
}

size_t tmpl_char_at(struct slice s, size_t index)
{
    size_t i = 0;
    for (; i < s.len; i++)
        if (((unsigned char)s.ptr[i] & 0xc0) != 0x80 && index-- == 0)
            return i;
    return i;
}
