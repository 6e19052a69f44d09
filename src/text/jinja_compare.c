/* jinja_compare.c - ==, < and `in`, as Python has them: numbers by value whatever their type, text by code point,
 * lists item by item, everything else only with its like. */
#include "text/jinja_value.h"

#include "base/check.h"

#include <errno.h>

static bool is_number(const struct jinja_value *v)
{
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL || v->kind == VALUE_FLOAT;
}

/* -1, 0, 1; 2 when one is not a number. Exact also between int and float. */
static int compare_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    int64_t i, k;
    double x = 0, y = 0;
    bool a_int = jinja_as_int(a, &i), b_int = jinja_as_int(b, &k);
    if (a_int && b_int)
        return (i > k) - (i < k);
    jinja_as_float(a, &x);
    jinja_as_float(b, &y);
    if (x != x || y != y)
        return 2;
    if (x != y || (!a_int && !b_int))
        return (x > y) - (x < y);
    /* Equal after rounding: the float is a whole number, so compare as integers where it fits. */
    if (x >= 9223372036854775808.0)
        return a_int ? -1 : 1;
    if (!a_int)
        i = (int64_t)x;
    if (!b_int)
        k = (int64_t)y;
    return (i > k) - (i < k);
}

static int equal_lists(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                       bool *ret)
{
    struct jinja_value *x, *y;
    *ret = a->l->len == b->l->len;
    if (!*ret || jinja_items(r, a, &x) < 0 || jinja_items(r, b, &y) < 0 || jinja_spend(r, a->l->len) < 0)
        return r->error;
    for (size_t i = 0; *ret && i < a->l->len; i++)
        if (jinja_equal(r, &x[i], &y[i], ret) < 0)
            return r->error;
    return 0;
}

static int equal_dicts(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                       bool *ret)
{
    struct jinja_pair *pairs;
    *ret = a->d->count == b->d->count;
    if (!*ret || jinja_pairs(r, a, &pairs) < 0 || jinja_spend(r, a->d->count) < 0)
        return r->error;
    for (size_t i = 0; *ret && i < a->d->count; i++) {
        struct jinja_value *other;
        if (jinja_dict_get(r, b, &pairs[i].key, &other) < 0)
            return r->error;
        *ret = other != NULL;
        if (other && jinja_equal(r, &pairs[i].value, other, ret) < 0)
            return r->error;
    }
    return 0;
}

static int equal_kind(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                      bool *ret)
{
    switch (a->kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        *ret = true;
        return 0;
    case VALUE_STR:
        *ret = slice_eq(jinja_slice(a), jinja_slice(b));
        return jinja_spend_bytes(r, *ret ? a->s->len : 0);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return equal_lists(r, a, b, ret);
    case VALUE_DICT:
        return equal_dicts(r, a, b, ret);
    case VALUE_METHOD:
        *ret = a->method->builtin == b->method->builtin && a->method->self.s == b->method->self.s;
        return 0;
    default: /* by identity */
        *ret = a->l == b->l;
        return 0;
    }
}

int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *ret)
{
    *ret = false;
    if (is_number(a) && is_number(b)) {
        *ret = compare_numbers(a, b) == 0;
        return 0;
    }
    if (a->kind != b->kind)
        return 0;
    if (jinja_enter(r) == 0)
        equal_kind(r, a, b, ret);
    jinja_leave(r);
    return r->error;
}

static int less_lists(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                      const char *op, bool *ret)
{
    struct jinja_value *x, *y;
    size_t len = MIN_OF(a->l->len, b->l->len);
    if (jinja_items(r, a, &x) < 0 || jinja_items(r, b, &y) < 0 || jinja_spend(r, len) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        bool same;
        if (jinja_equal(r, &x[i], &y[i], &same) < 0)
            return r->error;
        if (!same)
            return jinja_less(r, &x[i], &y[i], op, ret);
    }
    *ret = a->l->len < b->l->len;
    return 0;
}

int jinja_less(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, const char *op,
               bool *ret)
{
    *ret = false;
    if (is_number(a) && is_number(b)) {
        *ret = compare_numbers(a, b) == -1;
        return 0;
    }
    if (a->kind == VALUE_STR && b->kind == VALUE_STR) {
        size_t len = MIN_OF(a->s->len, b->s->len);
        int c = len ? memcmp(a->s->ptr, b->s->ptr, len) : 0; /* UTF-8 sorts as its code points do */
        *ret = c < 0 || (c == 0 && a->s->len < b->s->len);
        return jinja_spend_bytes(r, len);
    }
    if (a->kind == b->kind && (a->kind == VALUE_LIST || a->kind == VALUE_TUPLE)) {
        if (jinja_enter(r) == 0)
            less_lists(r, a, b, op, ret);
        jinja_leave(r);
        return r->error;
    }
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, a->kind == VALUE_UNDEFINED ? a : b);
    return jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, jinja_type(a),
                      jinja_type(b));
}

int jinja_contains(struct jinja_run *r, const struct jinja_value *haystack, const struct jinja_value *needle,
                   bool *ret)
{
    struct jinja_value *items;
    size_t len;
    *ret = false;
    if (haystack->kind == VALUE_STR) {
        if (needle->kind != VALUE_STR)
            return jinja_fail(r, "'in <string>' requires string as left operand, not %s", jinja_type(needle));
        *ret = slice_find(jinja_slice(haystack), jinja_slice(needle), 0) != SIZE_MAX;
        return jinja_spend_bytes(r, haystack->s->len);
    }
    if (haystack->kind == VALUE_DICT) {
        struct jinja_value *found;
        if (jinja_dict_get(r, haystack, needle, &found) < 0)
            return r->error;
        *ret = found != NULL;
        return 0;
    }
    if (haystack->kind < VALUE_LIST && haystack->kind != VALUE_UNDEFINED)
        return jinja_fail(r, "argument of type '%s' is not iterable", jinja_type(haystack));
    if (jinja_iterate(r, haystack, &items, &len) < 0 || jinja_spend(r, len / 16) < 0)
        return r->error;
    for (size_t i = 0; !*ret && i < len; i++)
        if (jinja_equal(r, &items[i], needle, ret) < 0)
            return r->error;
    return 0;
}
