/* jinja_value.c - making values and looking into them.
 *
 * Everything lies in the rendering's arena; nothing is freed before its end. What keeps that cheap is that values
 * share: text from JSON and from the template is never copied, a slice of a text points into it, and `+` grows in
 * place when its left side is the newest user of its tail. */
#include "text/jinja_value.h"

#include "base/check.h"
#include "text/jinja_ast.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Joining reserves this much more than it needs, so that the next `+` finds room. */
#define TAIL_TEXT_MIN  128
#define TAIL_ITEMS_MIN 8

/* ---- failing and bounds ---- */

int jinja_fail(struct jinja_run *r, const char *format, ...)
{
    char text[440];
    va_list ap;
    if (r->error)
        return r->error;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return r->error = err_set(r->e, -EINVAL, "line %u of the chat template: %s", r->line, text);
}

int jinja_fail_undefined(struct jinja_run *r, const struct jinja_value *v)
{
    const struct jinja_undefined *u = v->u;
    int len = (int)MIN_OF(u->name.len, (size_t)120);
    switch (u->why) {
    case UNDEFINED_NAME:
        return jinja_fail(r, "'%.*s' is undefined", len, u->name.ptr);
    case UNDEFINED_ATTRIBUTE:
        return jinja_fail(r, "'%s object' has no attribute '%.*s'", u->owner, len, u->name.ptr);
    case UNDEFINED_ELEMENT:
        return jinja_fail(r, "%s object has no element %.*s", u->owner, len, u->name.ptr);
    case UNDEFINED_UNSAFE:
        return jinja_fail(r, "access to attribute '%.*s' of '%s' object is unsafe", len, u->name.ptr,
                          u->owner);
    default:
        return jinja_fail(r, "%.*s", len, u->name.ptr);
    }
}

int jinja_spend(struct jinja_run *r, size_t steps)
{
    if (r->error)
        return r->error;
    if (steps <= r->steps) {
        r->steps -= steps;
        return 0;
    }
    r->steps = 0;
    return r->error = err_set(r->e, -E2BIG, "line %u of the chat template: more than %llu steps", r->line,
                              (unsigned long long)r->limits.steps_max);
}

int jinja_enter(struct jinja_run *r)
{
    if (++r->depth > r->limits.depth_max && !r->error)
        r->error = err_set(r->e, -E2BIG, "line %u of the chat template: nested deeper than %u levels",
                           r->line, r->limits.depth_max);
    return r->error;
}

void *jinja_alloc(struct jinja_run *r, size_t bytes)
{
    size_t used = arena_used_bytes(r->a) - r->arena_start;
    void *m = NULL;
    if (r->error)
        return NULL;
    if (bytes > r->limits.memory_bytes_max || used > r->limits.memory_bytes_max - bytes) {
        r->error = err_set(r->e, -E2BIG, "line %u of the chat template: more than %zu bytes of memory",
                           r->line, r->limits.memory_bytes_max);
        return NULL;
    }
    m = arena_alloc_align(r->a, bytes, 8);
    if (!m)
        r->error = err_set(r->e, -ENOMEM, "no memory left to render the chat template");
    return m;
}

void *jinja_alloc_array(struct jinja_run *r, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    return jinja_alloc(r, bytes);
}

/* ---- making ---- */

int jinja_undefined(struct jinja_run *r, int why, struct slice name, const char *owner,
                    struct jinja_value *ret)
{
    struct jinja_undefined *u = jinja_alloc(r, sizeof(*u));
    if (!u)
        return r->error;
    u->name = name;
    u->why = why;
    u->owner = owner;
    *ret = (struct jinja_value){VALUE_UNDEFINED, {.u = u}};
    return 0;
}

int jinja_str(struct jinja_run *r, struct slice text, struct jinja_value *ret)
{
    struct jinja_str *s = jinja_alloc(r, sizeof(*s));
    if (!s)
        return r->error;
    *s = (struct jinja_str){.ptr = text.ptr ? text.ptr : "", .len = text.len, .chars = SIZE_MAX};
    *ret = (struct jinja_value){VALUE_STR, {.s = s}};
    return 0;
}

int jinja_str_copy(struct jinja_run *r, struct slice text, struct jinja_value *ret)
{
    char *copy = jinja_alloc(r, text.len + 1);
    if (!copy)
        return r->error;
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    return jinja_str(r, (struct slice){copy, text.len}, ret);
}

int jinja_str_join(struct jinja_run *r, const struct jinja_str *a, const struct jinja_str *b,
                   struct jinja_value *ret)
{
    struct jinja_tail *tail = a->tail;
    struct jinja_value v;
    if (jinja_spend_bytes(r, b->len) < 0 || jinja_str(r, (struct slice){a->ptr, a->len}, &v) < 0)
        return r->error;
    if (!tail || a->ptr + a->len != tail->base + tail->used || tail->capacity - tail->used < b->len) {
        size_t len = a->len + b->len;
        if (jinja_spend_bytes(r, a->len) < 0)
            return r->error;
        tail = jinja_alloc(r, sizeof(*tail));
        if (!tail)
            return r->error;
        tail->capacity = len + MAX_OF(len / 2, (size_t)TAIL_TEXT_MIN);
        tail->base = jinja_alloc(r, tail->capacity);
        if (!tail->base)
            return r->error;
        memcpy(tail->base, a->ptr, a->len);
        tail->used = a->len;
        v.s->ptr = tail->base;
    }
    memcpy(tail->base + tail->used, b->ptr, b->len);
    tail->used += b->len;
    v.s->len = a->len + b->len;
    v.s->tail = tail;
    if (a->chars != SIZE_MAX && b->chars != SIZE_MAX)
        v.s->chars = a->chars + b->chars;
    *ret = v;
    return 0;
}

int jinja_list(struct jinja_run *r, enum jinja_kind kind, size_t len, struct jinja_value *ret)
{
    struct jinja_list *l = jinja_alloc(r, sizeof(*l));
    if (!l || jinja_spend(r, len / 16) < 0)
        return r->error;
    l->len = len;
    l->items = jinja_alloc_array(r, len, sizeof(*l->items));
    if (!l->items)
        return r->error;
    *ret = (struct jinja_value){kind, {.l = l}};
    return 0;
}

int jinja_list_join(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                    struct jinja_value *ret)
{
    struct jinja_value *left, *right;
    struct jinja_tail *tail = a->l->tail;
    struct jinja_list *l = jinja_alloc(r, sizeof(*l));
    if (!l || jinja_items(r, a, &left) < 0 || jinja_items(r, b, &right) < 0 ||
        jinja_spend(r, b->l->len / 16) < 0)
        return r->error;
    size_t len = a->l->len + b->l->len;
    l->items = left;
    if (!tail || (char *)(left + a->l->len) != tail->base + tail->used * sizeof(*left) ||
        tail->capacity - tail->used < b->l->len) {
        if (jinja_spend(r, a->l->len / 16) < 0)
            return r->error;
        tail = jinja_alloc(r, sizeof(*tail));
        if (!tail)
            return r->error;
        tail->capacity = len + MAX_OF(len / 2, (size_t)TAIL_ITEMS_MIN);
        l->items = jinja_alloc_array(r, tail->capacity, sizeof(*left));
        if (!l->items)
            return r->error;
        tail->base = (char *)l->items;
        if (a->l->len)
            memcpy(l->items, left, a->l->len * sizeof(*left));
        tail->used = a->l->len;
    }
    if (b->l->len)
        memcpy(tail->base + tail->used * sizeof(*left), right, b->l->len * sizeof(*left));
    tail->used += b->l->len;
    l->len = len;
    l->tail = tail;
    *ret = (struct jinja_value){a->kind, {.l = l}};
    return 0;
}

int jinja_pair(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
               struct jinja_value *ret)
{
    if (jinja_list(r, VALUE_TUPLE, 2, ret) < 0)
        return r->error;
    ret->l->items[0] = *a;
    ret->l->items[1] = *b;
    return 0;
}

int jinja_dict(struct jinja_run *r, enum jinja_kind kind, size_t capacity, struct jinja_value *ret)
{
    struct jinja_dict *d = jinja_alloc(r, sizeof(*d));
    if (!d || jinja_spend(r, capacity / 16) < 0)
        return r->error;
    d->pairs = jinja_alloc_array(r, capacity, sizeof(*d->pairs));
    if (!d->pairs)
        return r->error;
    d->capacity = capacity;
    *ret = (struct jinja_value){kind, {.d = d}};
    return 0;
}

int jinja_json(struct jinja_run *r, const json_t *json, struct jinja_value *ret)
{
    switch (json_typeof(json)) {
    case JSON_STRING:
        return jinja_str(r, (struct slice){json_string_value(json), json_string_length(json)}, ret);
    case JSON_ARRAY:
        if (jinja_list(r, VALUE_LIST, 0, ret) < 0)
            return r->error;
        ret->l->items = NULL;
        ret->l->src = json;
        ret->l->len = json_array_size(json);
        return 0;
    case JSON_OBJECT:
        if (jinja_dict(r, VALUE_DICT, 0, ret) < 0)
            return r->error;
        ret->d->src = json;
        ret->d->count = json_object_size(json);
        return 0;
    case JSON_INTEGER:
        *ret = jinja_int(json_integer_value(json));
        return 0;
    case JSON_REAL:
        *ret = jinja_float(json_real_value(json));
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        *ret = jinja_bool(json_is_true(json));
        return 0;
    default:
        *ret = jinja_none();
        return 0;
    }
}

/* ---- looking ---- */

const char *jinja_type(const struct jinja_value *v)
{
    static const char *const names[] = {[VALUE_MISSING] = "Undefined", [VALUE_UNDEFINED] = "Undefined",
                                        [VALUE_NONE] = "NoneType",     [VALUE_BOOL] = "bool",
                                        [VALUE_INT] = "int",           [VALUE_FLOAT] = "float",
                                        [VALUE_STR] = "str",           [VALUE_LIST] = "list",
                                        [VALUE_TUPLE] = "tuple",       [VALUE_RANGE] = "range",
                                        [VALUE_VIEW] = "dict_items",   [VALUE_GENERATOR] = "generator",
                                        [VALUE_DICT] = "dict",         [VALUE_NAMESPACE] = "Namespace",
                                        [VALUE_LOOP] = "LoopContext",  [VALUE_MACRO] = "Macro",
                                        [VALUE_METHOD] = "method",     [VALUE_FUNCTION] = "function"};
    return v->kind == VALUE_VIEW ? v->l->name : names[v->kind];
}

bool jinja_truth(const struct jinja_value *v)
{
    switch (v->kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v->b;
    case VALUE_INT:
        return v->i != 0;
    case VALUE_FLOAT:
        return v->f != 0;
    case VALUE_STR:
        return v->s->len > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW:
        return v->l->len > 0;
    case VALUE_DICT:
        return v->d->count > 0;
    case VALUE_LOOP:
        return v->loop->len > 0;
    default:
        return true;
    }
}

bool jinja_as_int(const struct jinja_value *v, int64_t *ret)
{
    if (v->kind == VALUE_INT)
        *ret = v->i;
    else if (v->kind == VALUE_BOOL)
        *ret = v->b;
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

bool jinja_as_float(const struct jinja_value *v, double *ret)
{
    int64_t i;
    if (v->kind == VALUE_FLOAT)
        return *ret = v->f, true;
    if (!jinja_as_int(v, &i))
        return false;
    *ret = (double)i;
    return true;
}

size_t jinja_chars(struct jinja_str *s)
{
    if (s->chars == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < s->len; i++)
            n += ((unsigned char)s->ptr[i] & 0xC0) != 0x80;
        s->chars = n;
    }
    return s->chars;
}

size_t jinja_char_offset(struct jinja_str *s, size_t index)
{
    if (jinja_chars(s) == s->len)
        return index;
    size_t at = 0;
    for (uint32_t c; index > 0; index--)
        at += utf8_next(s->ptr + at, &c);
    return at;
}

int jinja_items(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret)
{
    struct jinja_list *l = v->l;
    if (!l->items) {
        struct jinja_value *items = jinja_alloc_array(r, l->len, sizeof(*items));
        if (!items || jinja_spend(r, l->len / 16) < 0)
            return r->error;
        for (size_t i = 0; i < l->len; i++)
            if (jinja_json(r, json_array_get(l->src, i), &items[i]) < 0)
                return r->error;
        l->items = items;
    }
    *ret = l->items;
    return 0;
}

int jinja_pairs(struct jinja_run *r, const struct jinja_value *v, struct jinja_pair **ret)
{
    struct jinja_dict *d = v->d;
    if (d->src) {
        struct jinja_pair *pairs = jinja_alloc_array(r, d->count, sizeof(*pairs));
        size_t i = 0;
        if (!pairs || jinja_spend(r, d->count / 16) < 0)
            return r->error;
        json_t *object = (json_t *)d->src; /* iterating changes nothing; jansson has no const for it */
        for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it), i++) {
            struct slice key = {json_object_iter_key(it), json_object_iter_key_len(it)};
            if (jinja_str(r, key, &pairs[i].key) < 0 ||
                jinja_json(r, json_object_iter_value(it), &pairs[i].value) < 0)
                return r->error;
        }
        d->pairs = pairs;
        d->capacity = d->count;
        d->src = NULL;
    }
    *ret = d->pairs;
    return 0;
}

static int iterate_dict(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret,
                        size_t *len)
{
    struct jinja_pair *pairs;
    if (jinja_pairs(r, v, &pairs) < 0)
        return r->error;
    struct jinja_value *keys = jinja_alloc_array(r, v->d->count, sizeof(*keys));
    for (size_t i = 0; keys && i < v->d->count; i++)
        keys[i] = pairs[i].key;
    *ret = keys;
    *len = v->d->count;
    return r->error;
}

static int iterate_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret,
                       size_t *len)
{
    size_t count = jinja_chars(v->s), at = 0;
    struct jinja_value *items = jinja_alloc_array(r, count, sizeof(*items));
    if (!items || jinja_spend(r, count / 16) < 0)
        return r->error;
    for (size_t i = 0; i < count; i++) {
        uint32_t c;
        size_t n = utf8_next(v->s->ptr + at, &c);
        if (jinja_str(r, (struct slice){v->s->ptr + at, n}, &items[i]) < 0)
            return r->error;
        items[i].s->chars = 1;
        at += n;
    }
    *ret = items;
    *len = count;
    return 0;
}

int jinja_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **ret, size_t *len)
{
    switch (v->kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
        *ret = NULL;
        *len = 0;
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW:
    case VALUE_GENERATOR:
        if (jinja_items(r, v, ret) < 0)
            return r->error;
        *len = v->l->len;
        if (v->kind == VALUE_GENERATOR)
            v->l->len = 0;
        return 0;
    case VALUE_DICT:
        return iterate_dict(r, v, ret, len);
    case VALUE_STR:
        return iterate_str(r, v, ret, len);
    default:
        return jinja_fail(r, "'%s' object is not iterable", jinja_type(v));
    }
}

/* Keys that Python can hash. */
static int check_key(struct jinja_run *r, const struct jinja_value *key)
{
    if (key->kind == VALUE_LIST || key->kind == VALUE_DICT)
        return jinja_fail(r, "unhashable type: '%s'", jinja_type(key));
    return 0;
}

static int dict_find(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                     struct jinja_value **ret)
{
    struct jinja_pair *pairs;
    *ret = NULL;
    if (check_key(r, key) < 0 || jinja_pairs(r, v, &pairs) < 0 || jinja_spend(r, v->d->count / 16) < 0)
        return r->error;
    for (size_t i = 0; i < v->d->count; i++) {
        bool same = false;
        if (pairs[i].key.kind == VALUE_STR && key->kind == VALUE_STR)
            same = slice_eq(jinja_slice(&pairs[i].key), jinja_slice(key));
        else if (jinja_equal(r, &pairs[i].key, key, &same) < 0)
            return r->error;
        if (same) {
            *ret = &pairs[i].value;
            return 0;
        }
    }
    return 0;
}

int jinja_dict_get(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                   struct jinja_value **ret)
{
    return dict_find(r, v, key, ret);
}

int jinja_dict_get_name(struct jinja_run *r, const struct jinja_value *v, struct slice name,
                        struct jinja_value **ret)
{
    struct jinja_str s = {.ptr = name.ptr, .len = name.len, .chars = SIZE_MAX};
    struct jinja_value key = {VALUE_STR, {.s = &s}};
    return dict_find(r, v, &key, ret);
}

int jinja_dict_put(struct jinja_run *r, struct jinja_value *v, const struct jinja_value *key,
                   const struct jinja_value *value)
{
    struct jinja_dict *d = v->d;
    struct jinja_value *at;
    if (dict_find(r, v, key, &at) < 0)
        return r->error;
    if (at) {
        *at = *value;
        return 0;
    }
    if (d->count == d->capacity) {
        size_t capacity = MAX_OF((size_t)4, 2 * d->capacity);
        struct jinja_pair *pairs = jinja_alloc_array(r, capacity, sizeof(*pairs));
        if (!pairs)
            return r->error;
        if (d->count)
            memcpy(pairs, d->pairs, d->count * sizeof(*pairs));
        d->pairs = pairs;
        d->capacity = capacity;
    }
    d->pairs[d->count++] = (struct jinja_pair){*key, *value};
    return 0;
}

/* ---- text that grows ---- */

static bool text_grow(struct jinja_text *t, size_t more)
{
    if (t->r->error)
        return false;
    if (more <= t->capacity - t->len)
        return true;
    size_t capacity = MAX_OF((size_t)256, t->len + more);
    capacity += t->len; /* at least double */
    char *ptr = jinja_alloc(t->r, capacity);
    if (!ptr)
        return false;
    if (t->len)
        memcpy(ptr, t->ptr, t->len);
    t->ptr = ptr;
    t->capacity = capacity;
    return true;
}

void jinja_text_put(struct jinja_text *t, struct slice s)
{
    if (s.len == 0 || !text_grow(t, s.len) || jinja_spend_bytes(t->r, s.len) < 0)
        return;
    memcpy(t->ptr + t->len, s.ptr, s.len);
    t->len += s.len;
}

void jinja_text_putc(struct jinja_text *t, char c)
{
    if (text_grow(t, 1))
        t->ptr[t->len++] = c;
}

void jinja_text_puts(struct jinja_text *t, const char *s)
{
    jinja_text_put(t, slice_of(s));
}

int jinja_text_value(struct jinja_text *t, struct jinja_value *ret)
{
    if (t->r->error)
        return t->r->error;
    return jinja_str(t->r, (struct slice){t->ptr, t->len}, ret);
}
