/* jinja_access.c - object.name, object[index] and object[a:b:c].
 *
 * Jinja looks for `x.y` among Python's attributes first and then among the items, for `x['y']` the other way round. What
 * Python's types have as attributes is the list of methods here; those that would change a value exist only to be
 * refused when they are called, as in the immutable sandbox. */
#include "text/jinja_exec.h"

#include "base/check.h"
#include "text/utf8.h"

#include <errno.h>

static int loop_attribute(struct jinja_run *r, const struct jinja_value *v, struct slice name,
                          struct jinja_value *ret)
{
    const struct jinja_loop *l = v->loop;
    const struct {
        struct slice name;
        struct jinja_value value;
    } members[] = {{SLICE("index0"), jinja_int((int64_t)l->index0)},
                   {SLICE("index"), jinja_int((int64_t)l->index0 + 1)},
                   {SLICE("first"), jinja_bool(l->index0 == 0)},
                   {SLICE("last"), jinja_bool(l->index0 + 1 >= l->len)},
                   {SLICE("length"), jinja_int((int64_t)l->len)},
                   {SLICE("revindex"), jinja_int((int64_t)l->len - (int64_t)l->index0)},
                   {SLICE("revindex0"), jinja_int((int64_t)l->len - (int64_t)l->index0 - 1)},
                   {SLICE("depth"), jinja_int((int64_t)l->depth0 + 1)},
                   {SLICE("depth0"), jinja_int(l->depth0)}};
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        if (slice_eq(members[i].name, name)) {
            *ret = members[i].value;
            return 0;
        }
    }
    if (slice_eq(name, SLICE("previtem"))) {
        if (l->index0 == 0)
            return jinja_undefined(r, UNDEFINED_HINT, SLICE("there is no previous item"), NULL, ret);
        *ret = l->items[l->index0 - 1];
        return 0;
    }
    if (slice_eq(name, SLICE("nextitem"))) {
        if (l->index0 + 1 >= l->len)
            return jinja_undefined(r, UNDEFINED_HINT, SLICE("there is no next item"), NULL, ret);
        *ret = l->items[l->index0 + 1];
        return 0;
    }
    ret->kind = VALUE_MISSING;
    return 0;
}

/* Python's attribute `name`; VALUE_MISSING: there is none. */
static int python_attribute(struct jinja_run *r, const struct jinja_value *object, struct slice name,
                            struct jinja_value *ret)
{
    bool unsafe = false;
    ret->kind = VALUE_MISSING;
    if (object->kind == VALUE_NAMESPACE) {
        struct jinja_value *found;
        if (jinja_dict_get_name(r, object, name, &found) < 0)
            return r->error;
        if (found && name.ptr[0] == '_')
            return jinja_undefined(r, UNDEFINED_UNSAFE, name, jinja_type(object), ret);
        if (found)
            *ret = *found;
        return 0;
    }
    if (object->kind == VALUE_LOOP && loop_attribute(r, object, name, ret) < 0)
        return r->error;
    if (object->kind == VALUE_MACRO && slice_eq(name, SLICE("name")))
        return jinja_str(r, object->macro->node->name, ret);
    const struct jinja_builtin *builtin = jinja_method_find(object->kind, name, &unsafe);
    if (unsafe)
        return jinja_undefined(r, UNDEFINED_UNSAFE, name, jinja_type(object), ret);
    if (!builtin)
        return 0;
    struct jinja_method *m = jinja_alloc(r, sizeof(*m));
    if (!m)
        return r->error;
    *m = (struct jinja_method){*object, builtin};
    *ret = (struct jinja_value){VALUE_METHOD, {.method = m}};
    return 0;
}

/* The item of a dict under `key`; VALUE_MISSING: there is none. */
static int dict_item(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value *key,
                     struct jinja_value *ret)
{
    struct jinja_value *found;
    ret->kind = VALUE_MISSING;
    if (key->kind == VALUE_LIST || key->kind == VALUE_DICT)
        return 0;
    if (jinja_dict_get(r, object, key, &found) < 0)
        return r->error;
    if (found)
        *ret = *found;
    return 0;
}

int jinja_attribute(struct jinja_run *r, const struct jinja_value *object, struct slice name,
                    struct jinja_value *ret)
{
    if (object->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, object);
    if (python_attribute(r, object, name, ret) < 0)
        return r->error;
    if (ret->kind == VALUE_MISSING && object->kind == VALUE_DICT) {
        struct jinja_value *found;
        if (jinja_dict_get_name(r, object, name, &found) < 0)
            return r->error;
        if (found)
            *ret = *found;
    }
    if (ret->kind == VALUE_MISSING)
        return jinja_undefined(r, UNDEFINED_ATTRIBUTE, name, jinja_type(object), ret);
    return 0;
}

/* A place counted from either end; false: outside. */
static bool place(const struct jinja_value *index, size_t len, size_t *ret)
{
    int64_t i;
    if (!jinja_as_int(index, &i) || i >= (int64_t)len || i < -(int64_t)len)
        return false;
    *ret = (size_t)(i < 0 ? i + (int64_t)len : i);
    return true;
}

static int str_item(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value *index,
                    struct jinja_value *ret)
{
    size_t at;
    uint32_t code;
    ret->kind = VALUE_MISSING;
    if (jinja_spend_bytes(r, object->s->len) < 0 || !place(index, jinja_chars(object->s), &at))
        return r->error;
    at = jinja_char_offset(object->s, at);
    unsigned bytes = utf8_next(object->s->ptr + at, &code);
    return jinja_str(r, (struct slice){object->s->ptr + at, bytes}, ret);
}

static int list_item(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value *index,
                     struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t at;
    ret->kind = VALUE_MISSING;
    if (!place(index, object->l->len, &at) || jinja_items(r, object, &items) < 0)
        return r->error;
    *ret = items[at];
    return 0;
}

int jinja_item(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value *index,
               struct jinja_value *ret)
{
    struct jinja_value found = {0};
    struct slice name = SLICE("?");
    switch (object->kind) {
    case VALUE_UNDEFINED:
        return jinja_fail_undefined(r, object);
    case VALUE_STR:
        str_item(r, object, index, &found);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        list_item(r, object, index, &found);
        break;
    case VALUE_DICT:
        dict_item(r, object, index, &found);
        break;
    default:
        break;
    }
    if (r->error)
        return r->error;
    if (index->kind == VALUE_STR) {
        name = jinja_slice(index);
        if (found.kind == VALUE_MISSING && python_attribute(r, object, name, &found) < 0)
            return r->error;
    }
    *ret = found;
    if (found.kind != VALUE_MISSING)
        return 0;
    if (index->kind == VALUE_STR)
        return jinja_undefined(r, UNDEFINED_ATTRIBUTE, name, jinja_type(object), ret);
    return jinja_undefined(r, UNDEFINED_ELEMENT, SLICE("at this index"), jinja_type(object), ret);
}

/* ---- slices ---- */

static int bound(struct jinja_run *r, const struct jinja_value *v, int64_t absent, int64_t *ret)
{
    *ret = absent;
    if (v->kind != VALUE_MISSING && v->kind != VALUE_NONE && !jinja_as_int(v, ret))
        return v->kind == VALUE_UNDEFINED
                   ? jinja_fail_undefined(r, v)
                   : jinja_fail(r, "slice indices must be integers or None or have an __index__ method");
    return 0;
}

static int64_t clamp(int64_t i, int64_t len, int64_t low, int64_t high)
{
    if (i < 0)
        i = i < -len ? -1 : i + len;
    return i < low ? low : i > high ? high : i;
}

/* Python's slice.indices(): the first place, the step, and how many places there are. */
static int resolve(struct jinja_run *r, const struct jinja_value bounds[3], size_t size, int64_t *start,
                   int64_t *step, size_t *count)
{
    int64_t len = (int64_t)size, stop;
    if (bound(r, &bounds[2], 1, step) < 0)
        return r->error;
    if (*step == 0)
        return jinja_fail(r, "slice step cannot be zero");
    /* No larger step reaches further, and the sums below stay in range. */
    *step = *step > len + 1 ? len + 1 : *step < -len - 1 ? -len - 1 : *step;
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? len - 1 : len;
    if (bound(r, &bounds[0], INT64_MAX, start) < 0 || bound(r, &bounds[1], INT64_MAX, &stop) < 0)
        return r->error;
    bool from = bounds[0].kind != VALUE_MISSING && bounds[0].kind != VALUE_NONE;
    bool to = bounds[1].kind != VALUE_MISSING && bounds[1].kind != VALUE_NONE;
    *start = from ? clamp(*start, len, low, high) : *step < 0 ? high : low;
    stop = to ? clamp(stop, len, low, high) : *step < 0 ? low : high;
    int64_t span = *step > 0 ? stop - *start : *start - stop;
    int64_t stride = *step > 0 ? *step : -*step;
    *count = span > 0 ? (size_t)((span + stride - 1) / stride) : 0;
    return 0;
}

static int cut_str(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value bounds[3],
                   struct jinja_value *ret)
{
    int64_t start, step;
    size_t count;
    struct jinja_value *chars;
    struct jinja_text t = {.r = r};
    if (jinja_spend_bytes(r, object->s->len) < 0 ||
        resolve(r, bounds, jinja_chars(object->s), &start, &step, &count) < 0)
        return r->error;
    if (count == 0)
        return jinja_str(r, SLICE(""), ret);
    if (step == 1) {
        size_t from = jinja_char_offset(object->s, (size_t)start);
        size_t to = jinja_char_offset(object->s, (size_t)start + count);
        return jinja_str(r, (struct slice){object->s->ptr + from, to - from}, ret);
    }
    size_t len;
    if (jinja_iterate(r, object, &chars, &len) < 0)
        return r->error;
    for (size_t i = 0; i < count; i++, start += step)
        jinja_text_put(&t, jinja_slice(&chars[start]));
    return jinja_text_value(&t, ret);
}

int jinja_cut(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value bounds[3],
              struct jinja_value *ret)
{
    int64_t start, step;
    size_t count;
    struct jinja_value *items;
    if (object->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, object);
    if (object->kind == VALUE_STR)
        return cut_str(r, object, bounds, ret);
    if (object->kind != VALUE_LIST && object->kind != VALUE_TUPLE && object->kind != VALUE_RANGE)
        return jinja_fail(r, "'%s' object is not subscriptable", jinja_type(object));
    if (resolve(r, bounds, object->l->len, &start, &step, &count) < 0 || jinja_items(r, object, &items) < 0 ||
        jinja_list(r, object->kind, count, ret) < 0)
        return r->error;
    for (size_t i = 0; i < count; i++, start += step)
        ret->l->items[i] = items[start];
    return 0;
}
