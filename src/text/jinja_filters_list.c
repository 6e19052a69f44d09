/* jinja_filters_list.c - filters over many values.
 *
 * Those that are lazy in Jinja are worked off at once here and their result called a generator: it is true, has no
 * length, and is empty after one walk, which is all that a template can see of the difference. */
#include "text/jinja_filters.h"

#include "base/check.h"
#include "text/jinja_args.h"
#include "text/jinja_exec.h"
#include "text/jinja_list.h"
#include "text/jinja_strings.h"
#include "text/jinja_text.h"

#include <errno.h>

static const struct jinja_value missing = {VALUE_MISSING, {0}};

static int walk(struct jinja_run *r, const struct jinja_call *c, struct jinja_value **items, size_t *len)
{
    if (jinja_iterate(r, &c->self, items, len) < 0)
        return r->error;
    return jinja_spend(r, *len / 16);
}

int jinja_filter_length(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    const struct jinja_value *v = &c->self;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        *ret = jinja_int(0);
        return 0;
    case VALUE_STR:
        *ret = jinja_int((int64_t)jinja_chars(v->s));
        return jinja_spend_bytes(r, v->s->len);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW:
        *ret = jinja_int((int64_t)v->l->len);
        return 0;
    case VALUE_DICT:
        *ret = jinja_int((int64_t)v->d->count);
        return 0;
    case VALUE_LOOP:
        *ret = jinja_int((int64_t)v->loop->len);
        return 0;
    default:
        return jinja_fail(r, "object of type '%s' has no len()", jinja_type(v));
    }
}

int jinja_filter_list(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len;
    if (walk(r, c, &items, &len) < 0 || jinja_list(r, VALUE_LIST, len, ret) < 0)
        return r->error;
    if (len)
        memcpy(ret->l->items, items, len * sizeof(*items));
    return 0;
}

int jinja_filter_join(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value *items, between, v, text;
    size_t len;
    if (c->arg[0].kind == VALUE_MISSING)
        jinja_str(r, SLICE(""), &between);
    else
        jinja_to_str(r, &c->arg[0], &between);
    if (r->error || walk(r, c, &items, &len) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        if (jinja_arg_attribute(r, &items[i], &c->arg[1], &missing, &v) < 0 || jinja_to_str(r, &v, &text) < 0)
            return r->error;
        if (i > 0)
            jinja_text_put(&t, jinja_slice(&between));
        jinja_text_put(&t, jinja_slice(&text));
    }
    return jinja_text_value(&t, ret);
}

static int end_item(struct jinja_run *r, struct jinja_call *c, bool last, struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len;
    if (last && c->self.kind == VALUE_GENERATOR)
        return jinja_fail(r, "'generator' object is not reversible");
    if (walk(r, c, &items, &len) < 0)
        return r->error;
    if (len == 0)
        return jinja_undefined(r, UNDEFINED_HINT,
                               last ? SLICE("No last item, sequence was empty.")
                                    : SLICE("No first item, sequence was empty."),
                               NULL, ret);
    *ret = items[last ? len - 1 : 0];
    /* What `first` took is gone, the rest is still there. */
    if (c->self.kind == VALUE_GENERATOR) {
        c->self.l->items = items + 1;
        c->self.l->len = len - 1;
    }
    return 0;
}

int jinja_filter_first(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return end_item(r, c, false, ret);
}

int jinja_filter_last(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return end_item(r, c, true, ret);
}

int jinja_filter_reverse(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    struct jinja_value *items;
    size_t len;
    if (walk(r, c, &items, &len) < 0)
        return r->error;
    if (c->self.kind == VALUE_STR) {
        while (len-- > 0)
            jinja_text_put(&t, jinja_slice(&items[len]));
        return jinja_text_value(&t, ret);
    }
    if (jinja_list(r, VALUE_GENERATOR, len, ret) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++)
        ret->l->items[i] = items[len - 1 - i];
    return 0;
}

int jinja_filter_items(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_pair *pairs;
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_list(r, VALUE_GENERATOR, 0, ret);
    if (c->self.kind != VALUE_DICT)
        return jinja_fail(r, "Can only get item pairs from a mapping.");
    if (jinja_pairs(r, &c->self, &pairs) < 0 || jinja_list(r, VALUE_GENERATOR, c->self.d->count, ret) < 0)
        return r->error;
    for (size_t i = 0; i < ret->l->len; i++)
        if (jinja_pair(r, &pairs[i].key, &pairs[i].value, &ret->l->items[i]) < 0)
            return r->error;
    return 0;
}

int jinja_filter_batch(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len;
    int64_t size;
    bool fill = c->arg[1].kind != VALUE_MISSING && c->arg[1].kind != VALUE_NONE;
    if (jinja_arg_int(r, &c->arg[0], 1, &size) < 0 || walk(r, c, &items, &len) < 0)
        return r->error;
    if (size < 1)
        return jinja_fail(r, "batch() wants a size of at least 1");
    size_t width = MIN_OF((size_t)size, fill ? SIZE_MAX : MAX_OF(len, (size_t)1));
    if (jinja_list(r, VALUE_GENERATOR, len / width + (len % width != 0), ret) < 0)
        return r->error;
    for (size_t i = 0; i < ret->l->len; i++) {
        size_t some = fill ? width : MIN_OF(width, len - i * width);
        if (jinja_list(r, VALUE_LIST, some, &ret->l->items[i]) < 0)
            return r->error;
        for (size_t k = 0; k < some; k++)
            ret->l->items[i].l->items[k] = i * width + k < len ? items[i * width + k] : c->arg[1];
    }
    return 0;
}

/* ---- by key ---- */

/* What an item is compared by. */
static int item_key(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *attribute,
                    bool case_sensitive, struct jinja_value *ret)
{
    struct jinja_value v;
    if (jinja_arg_attribute(r, item, attribute, &missing, &v) < 0)
        return r->error;
    if (!case_sensitive && v.kind == VALUE_STR)
        return jinja_change_case(r, jinja_slice(&v), JINJA_LOWER, ret);
    *ret = v;
    return 0;
}

/* The same for sort(attribute='a,b'): the list of both. */
static int item_keys(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *attribute,
                     bool case_sensitive, struct jinja_value *ret)
{
    if (attribute->kind != VALUE_STR || slice_find(jinja_slice(attribute), SLICE(","), 0) == SIZE_MAX)
        return item_key(r, item, attribute, case_sensitive, ret);
    struct jinja_value comma, names;
    if (jinja_str(r, SLICE(","), &comma) < 0 || jinja_split(r, attribute, &comma, -1, false, &names) < 0 ||
        jinja_list(r, VALUE_LIST, names.l->len, ret) < 0)
        return r->error;
    for (size_t i = 0; i < names.l->len; i++)
        if (item_key(r, item, &names.l->items[i], case_sensitive, &ret->l->items[i]) < 0)
            return r->error;
    return 0;
}

static int keyed_list(struct jinja_run *r, const struct jinja_keyed *keyed, size_t len,
                      struct jinja_value *ret)
{
    if (jinja_list(r, VALUE_LIST, len, ret) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++)
        ret->l->items[i] = keyed[i].item;
    return 0;
}

/* (reverse, case_sensitive, attribute) */
int jinja_filter_sort(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len;
    if (walk(r, c, &items, &len) < 0)
        return r->error;
    struct jinja_keyed *keyed = jinja_alloc_array(r, len, sizeof(*keyed));
    for (size_t i = 0; keyed && i < len; i++) {
        keyed[i].item = items[i];
        if (item_keys(r, &items[i], &c->arg[2], jinja_arg_bool(&c->arg[1], false), &keyed[i].key) < 0)
            return r->error;
    }
    if (!keyed || jinja_sort(r, keyed, len, jinja_arg_bool(&c->arg[0], false)) < 0)
        return r->error;
    return keyed_list(r, keyed, len, ret);
}

/* (case_sensitive, by, reverse) */
int jinja_filter_dictsort(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_pair *pairs;
    struct slice by = SLICE("key");
    if (c->self.kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, &c->self);
    if (c->self.kind != VALUE_DICT)
        return jinja_fail(r, "'%s' object has no attribute 'items'", jinja_type(&c->self));
    if (c->arg[1].kind != VALUE_MISSING && jinja_arg_str(r, &c->arg[1], &by) < 0)
        return r->error;
    if (!slice_eq(by, SLICE("key")) && !slice_eq(by, SLICE("value")))
        return jinja_fail(r, "You can only sort by either \"key\" or \"value\"");
    size_t len = c->self.d->count;
    struct jinja_keyed *keyed = jinja_alloc_array(r, len, sizeof(*keyed));
    if (!keyed || jinja_pairs(r, &c->self, &pairs) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        const struct jinja_value *key = slice_eq(by, SLICE("key")) ? &pairs[i].key : &pairs[i].value;
        if (jinja_pair(r, &pairs[i].key, &pairs[i].value, &keyed[i].item) < 0 ||
            item_key(r, key, &missing, jinja_arg_bool(&c->arg[0], false), &keyed[i].key) < 0)
            return r->error;
    }
    if (jinja_sort(r, keyed, len, jinja_arg_bool(&c->arg[2], false)) < 0)
        return r->error;
    return keyed_list(r, keyed, len, ret);
}

/* (case_sensitive, attribute) */
int jinja_filter_unique(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len, kept = 0;
    if (walk(r, c, &items, &len) < 0 || jinja_list(r, VALUE_GENERATOR, len, ret) < 0)
        return r->error;
    struct jinja_value *keys = jinja_alloc_array(r, len, sizeof(*keys));
    for (size_t i = 0; keys && i < len; i++) {
        bool seen = false;
        if (item_key(r, &items[i], &c->arg[1], jinja_arg_bool(&c->arg[0], false), &keys[kept]) < 0 ||
            jinja_spend(r, kept / 4) < 0)
            return r->error;
        for (size_t k = 0; k < kept && !seen; k++)
            if (jinja_equal(r, &keys[k], &keys[kept], &seen) < 0)
                return r->error;
        if (!seen)
            ret->l->items[kept++] = items[i];
    }
    ret->l->len = kept;
    return r->error;
}

/* (case_sensitive, attribute) */
static int extreme(struct jinja_run *r, struct jinja_call *c, bool greatest, struct jinja_value *ret)
{
    struct jinja_value *items, best, key;
    size_t len, at = 0;
    bool case_sensitive = jinja_arg_bool(&c->arg[0], false);
    if (walk(r, c, &items, &len) < 0)
        return r->error;
    if (len == 0)
        return jinja_undefined(r, UNDEFINED_HINT, SLICE("No aggregated item, sequence was empty."), NULL,
                               ret);
    if (item_key(r, &items[0], &c->arg[1], case_sensitive, &best) < 0)
        return r->error;
    for (size_t i = 1; i < len; i++) {
        bool better;
        if (item_key(r, &items[i], &c->arg[1], case_sensitive, &key) < 0 ||
            jinja_less(r, greatest ? &best : &key, greatest ? &key : &best, greatest ? ">" : "<", &better) <
                0)
            return r->error;
        if (better) {
            best = key;
            at = i;
        }
    }
    *ret = items[at];
    return 0;
}

int jinja_filter_min(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return extreme(r, c, false, ret);
}

int jinja_filter_max(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return extreme(r, c, true, ret);
}

/* (attribute, start) */
int jinja_filter_sum(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items, v, sum = c->arg[1].kind == VALUE_MISSING ? jinja_int(0) : c->arg[1];
    size_t len;
    if (sum.kind == VALUE_STR)
        return jinja_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    if (walk(r, c, &items, &len) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        struct jinja_value left = sum;
        if (jinja_arg_attribute(r, &items[i], &c->arg[0], &missing, &v) < 0 ||
            jinja_math(r, OP_ADD, &left, &v, &sum) < 0)
            return r->error;
    }
    *ret = sum;
    return 0;
}

/* ---- map and select ---- */

static const struct jinja_named *named_arg(const struct jinja_args *args, struct slice name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (slice_eq(args->named[i].name, name))
            return &args->named[i];
    return NULL;
}

static int map_attribute(struct jinja_run *r, struct jinja_call *c, const struct jinja_value *items,
                         size_t len, struct jinja_value *ret)
{
    const struct jinja_named *attribute = named_arg(c->args, SLICE("attribute"));
    const struct jinja_named *absent = named_arg(c->args, SLICE("default"));
    if (c->args->named_count != 1u + (absent != NULL))
        return jinja_fail(r, "map() got an unexpected keyword argument");
    for (size_t i = 0; i < len; i++)
        if (jinja_arg_attribute(r, &items[i], &attribute->value, absent ? &absent->value : &missing,
                                &ret->l->items[i]) < 0)
            return r->error;
    return 0;
}

/* All arguments but the first `count`. */
static struct jinja_args rest(const struct jinja_args *args, size_t count)
{
    struct jinja_args some = *args;
    some.positional += count;
    some.positional_count -= count;
    return some;
}

int jinja_filter_map(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value *items;
    struct slice name;
    size_t len;
    /* Nothing is walked when there is nothing: Jinja asks `if value` first. */
    if (!jinja_truth(&c->self))
        return jinja_list(r, VALUE_GENERATOR, 0, ret);
    if (walk(r, c, &items, &len) < 0 || jinja_list(r, VALUE_GENERATOR, len, ret) < 0)
        return r->error;
    if (c->args->positional_count == 0 && named_arg(c->args, SLICE("attribute")))
        return map_attribute(r, c, items, len, ret);
    if (c->args->positional_count == 0)
        return jinja_fail(r, "map requires a filter argument");
    if (jinja_arg_str(r, &c->args->positional[0], &name) < 0)
        return r->error;
    const struct jinja_builtin *filter = jinja_filter_find(name);
    if (!filter)
        return jinja_fail(r, "No filter named '%.*s'.", SLICE_ARGS(slice_sub(name, 0, 80)));
    struct jinja_args args = rest(c->args, 1);
    for (size_t i = 0; i < len; i++) {
        /* A filter may name a filter: map('map', ...). */
        if (jinja_enter(r) == 0 && jinja_spend(r, 1) == 0)
            jinja_call_builtin(r, filter, &items[i], &args, &ret->l->items[i]);
        jinja_leave(r);
        if (r->error)
            return r->error;
    }
    return 0;
}

/* What select and the like ask of each value. */
struct question {
    const struct jinja_value *attribute;
    const struct jinja_builtin *test; /* NULL: whether it is true */
    struct jinja_args args;
};

static int read_question(struct jinja_run *r, struct jinja_call *c, bool attribute, struct question *q)
{
    size_t used = attribute ? 1 : 0;
    struct slice name;
    *q = (struct question){.attribute = &missing};
    if (c->args->positional_count < used)
        return jinja_fail(r, "Missing parameter for attribute name");
    if (attribute)
        q->attribute = &c->args->positional[0];
    q->args = rest(c->args, used);
    if (q->args.positional_count == 0)
        return 0;
    if (jinja_arg_str(r, &q->args.positional[0], &name) < 0)
        return r->error;
    q->test = jinja_test_find(name);
    if (!q->test)
        return jinja_fail(r, "No test named '%.*s'.", SLICE_ARGS(slice_sub(name, 0, 80)));
    q->args = rest(&q->args, 1);
    return 0;
}

static int ask(struct jinja_run *r, const struct question *q, const struct jinja_value *item, bool *ret)
{
    struct jinja_value v, answer;
    if (jinja_spend(r, 1) < 0 || jinja_arg_attribute(r, item, q->attribute, &missing, &v) < 0)
        return r->error;
    answer = v;
    if (q->test && jinja_call_builtin(r, q->test, &v, &q->args, &answer) < 0)
        return r->error;
    *ret = jinja_truth(&answer);
    return 0;
}

static int choose(struct jinja_run *r, struct jinja_call *c, bool attribute, bool wanted,
                  struct jinja_value *ret)
{
    struct jinja_value *items;
    struct question q;
    size_t len, kept = 0;
    if (!jinja_truth(&c->self))
        return jinja_list(r, VALUE_GENERATOR, 0, ret);
    if (read_question(r, c, attribute, &q) < 0 || walk(r, c, &items, &len) < 0 ||
        jinja_list(r, VALUE_GENERATOR, len, ret) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++) {
        bool yes = false;
        if (ask(r, &q, &items[i], &yes) < 0)
            return r->error;
        if (yes == wanted)
            ret->l->items[kept++] = items[i];
    }
    ret->l->len = kept;
    return 0;
}

int jinja_filter_select(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return choose(r, c, false, true, ret);
}

int jinja_filter_reject(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return choose(r, c, false, false, ret);
}

int jinja_filter_selectattr(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return choose(r, c, true, true, ret);
}

int jinja_filter_rejectattr(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return choose(r, c, true, false, ret);
}
