/* jinja_args.c - reading the arguments of a builtin. */
#include "text/jinja_args.h"

#include "text/jinja_exec.h"

#include <errno.h>

int jinja_arg_int(struct jinja_run *r, const struct jinja_value *v, int64_t absent, int64_t *ret)
{
    *ret = absent;
    if (v->kind == VALUE_MISSING || v->kind == VALUE_NONE || jinja_as_int(v, ret))
        return 0;
    if (v->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, v);
    return jinja_fail(r, "'%s' object cannot be interpreted as an integer", jinja_type(v));
}

int jinja_arg_str(struct jinja_run *r, const struct jinja_value *v, struct slice *ret)
{
    if (v->kind != VALUE_STR)
        return jinja_fail(r, "expected a str, found '%s'", jinja_type(v));
    *ret = jinja_slice(v);
    return 0;
}

static int part_value(struct jinja_run *r, struct slice part, struct jinja_value *ret)
{
    uint64_t index;
    if (slice_u64(part, INT32_MAX, &index)) {
        *ret = jinja_int((int64_t)index);
        return 0;
    }
    return jinja_str(r, part, ret);
}

int jinja_arg_attribute(struct jinja_run *r, const struct jinja_value *x, const struct jinja_value *attribute,
                        const struct jinja_value *absent, struct jinja_value *ret)
{
    struct jinja_value value = *x, part;
    if (attribute->kind == VALUE_MISSING || attribute->kind == VALUE_NONE) {
        *ret = value;
        return 0;
    }
    struct slice rest = attribute->kind == VALUE_STR ? jinja_slice(attribute) : (struct slice){0};
    for (bool more = true; more;) {
        size_t dot = attribute->kind == VALUE_STR ? slice_find(rest, SLICE("."), 0) : SIZE_MAX;
        struct jinja_value object = value;
        more = dot != SIZE_MAX;
        if (attribute->kind != VALUE_STR)
            part = *attribute;
        else if (part_value(r, slice_sub(rest, 0, dot), &part) < 0)
            return r->error;
        if (jinja_spend(r, 1) < 0 || jinja_item(r, &object, &part, &value) < 0)
            return r->error;
        if (value.kind == VALUE_UNDEFINED && absent->kind != VALUE_MISSING && absent->kind != VALUE_NONE)
            value = *absent;
        rest = more ? slice_sub(rest, dot + 1, rest.len) : rest;
    }
    *ret = value;
    return 0;
}
