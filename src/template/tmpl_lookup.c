/* tmpl_lookup.c - v.name and v[key]. */
#include "template/tmpl_eval.h"
#include "template/tmpl_methods.h"
#include "template/tmpl_value.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/slice.h"

#include <stdint.h>

#define NAME(type, name, function) {type, name},
static const struct {
    enum tmpl_type type;
    const char *name;
} methods[] = {TMPL_METHODS(NAME)};

static int find_method(const struct tmpl_value *self, struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (methods[i].type == self->type && slice_eq(name, slice_of(methods[i].name)))
            return (int)i;
    return -1;
}

static struct tmpl_value loop_attribute(const struct tmpl_loop *l, struct slice name)
{
    const struct tmpl_seq *items = l->items;
    uint32_t i = l->index0;
    ASSERT(i < items->count);
    if (slice_eq(name, SLICE("index0")))
        return tmpl_int(i);
    if (slice_eq(name, SLICE("index")))
        return tmpl_int((int64_t)i + 1);
    if (slice_eq(name, SLICE("first")))
        return tmpl_bool(i == 0);
    if (slice_eq(name, SLICE("last")))
        return tmpl_bool(i + 1 == items->count);
    if (slice_eq(name, SLICE("length")))
        return tmpl_int(items->count);
    if (slice_eq(name, SLICE("revindex")))
        return tmpl_int((int64_t)items->count - i);
    if (slice_eq(name, SLICE("revindex0")))
        return tmpl_int((int64_t)items->count - i - 1);
    if (slice_eq(name, SLICE("previtem")))
        return i > 0 ? items->items[i - 1] : tmpl_undefined(SLICE("there is no previous item"));
    if (slice_eq(name, SLICE("nextitem")))
        return i + 1 < items->count ? items->items[i + 1] : tmpl_undefined(SLICE("there is no next item"));
    if (slice_eq(name, SLICE("depth")))
        return tmpl_int(1); /* counts recursive loops, which are not supported */
    if (slice_eq(name, SLICE("depth0")))
        return tmpl_int(0);
    return tmpl_undefined(name);
}

struct tmpl_value tmpl_get_attribute(struct tmpl_run *run, struct tmpl_value v, struct slice name)
{
    if (v.type == TMPL_UNDEFINED)
        return tmpl_undefined_access(run, v);
    int method = find_method(&v, name);
    if (method >= 0) {
        struct tmpl_value *self = ARENA_NEW(run->a, struct tmpl_value);
        if (!self)
            return tmpl_fail_memory(run);
        *self = v;
        return (struct tmpl_value){.type = TMPL_METHOD, .i = method, .s = name, .self = self};
    }
    if (v.type == TMPL_LOOP)
        return loop_attribute(v.loop, name);
    const struct tmpl_value *item = NULL;
    if (v.type == TMPL_DICT_VALUE || v.type == TMPL_NAMESPACE)
        item = tmpl_dict_find(run, v.dict, name);
    return item ? *item : tmpl_undefined(name);
}

static struct tmpl_value get_index(struct tmpl_run *run, struct tmpl_value v, int64_t i)
{
    ASSERT(v.type == TMPL_STRING || v.type == TMPL_SEQ);
    /* Its characters are counted, and one is looked for. */
    if (v.type == TMPL_STRING && !tmpl_work(run, 2 * tmpl_cost_chars(v.s.len)))
        return v;
    size_t count = v.type == TMPL_STRING ? tmpl_chars(v.s) : v.list->count;
    if (i < 0)
        i += (int64_t)count;
    if (i < 0 || (size_t)i >= count)
        return tmpl_undefined(SLICE("an index out of range"));
    if (v.type == TMPL_SEQ)
        return v.list->items[i];
    size_t begin = tmpl_char_at(v.s, (size_t)i), end = begin + 1;
    while (end < v.s.len && ((unsigned char)v.s.ptr[end] & 0xc0) == 0x80)
        end++;
    return tmpl_string(slice_sub(v.s, begin, end - begin));
}

struct tmpl_value tmpl_get_item(struct tmpl_run *run, struct tmpl_value v, struct tmpl_value key)
{
    int64_t i;
    if (v.type == TMPL_UNDEFINED)
        return tmpl_undefined_access(run, v);
    if ((v.type == TMPL_SEQ || v.type == TMPL_STRING) && tmpl_integer(&key, &i))
        return get_index(run, v, i);
    if (v.type == TMPL_DICT_VALUE) {
        const struct tmpl_value *item = tmpl_dict_get(run, v.dict, &key);
        if (item)
            return *item;
    }
    if (key.type == TMPL_STRING)
        return tmpl_get_attribute(run, v, key.s);
    return tmpl_undefined(SLICE("a missing item"));
}
