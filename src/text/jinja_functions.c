/* jinja_functions.c - the functions that every template can call. */
#include "text/jinja_value.h"

#include "base/check.h"
#include "text/jinja_args.h"
#include "text/jinja_text.h"

#include <errno.h>
#include <time.h>

/* As the sandbox has it. */
#define RANGE_MAX 100000

/* The message is the template's own and goes to the client as it is. */
static int function_raise_exception(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value text;
    (void)ret;
    if (jinja_to_str(r, &c->arg[0], &text) < 0)
        return r->error;
    return r->error =
               err_set(r->e, -EINVAL, "%.*s", (int)MIN_OF(text.s->len, sizeof(r->e->text)), text.s->ptr);
}

static int function_strftime_now(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    char format[256], text[1024];
    struct slice s;
    struct tm tm;
    time_t now = (time_t)r->now_s;
    if (jinja_arg_str(r, &c->arg[0], &s) < 0)
        return r->error;
    if (s.len >= sizeof(format) || memchr(s.ptr, 0, s.len))
        return jinja_fail(r, "strftime_now() wants a format of less than %zu bytes", sizeof(format));
    memcpy(format, s.ptr, s.len);
    format[s.len] = 0;
    if (!gmtime_r(&now, &tm))
        return jinja_fail(r, "the time is out of range");
    size_t len = strftime(text, sizeof(text), format, &tm);
    if (len == 0 && s.len > 0 && !slice_eq(s, SLICE("%p")))
        return jinja_fail(r, "strftime_now() gives nothing for this format");
    return jinja_str_copy(r, (struct slice){text, len}, ret);
}

/* namespace(dict, a=b) and dict(...): both collect members. */
static int collect(struct jinja_run *r, struct jinja_call *c, enum jinja_kind kind, struct jinja_value *ret)
{
    const struct jinja_args *args = c->args;
    struct jinja_pair *pairs;
    struct jinja_value key;
    if (args->positional_count > 1 || (args->positional_count && args->positional[0].kind != VALUE_DICT))
        return jinja_fail(r, "expected named arguments, or a dict before them");
    if (jinja_dict(r, kind, args->named_count, ret) < 0)
        return r->error;
    if (args->positional_count) {
        if (jinja_pairs(r, &args->positional[0], &pairs) < 0)
            return r->error;
        for (size_t i = 0; i < args->positional[0].d->count; i++)
            if (jinja_dict_put(r, ret, &pairs[i].key, &pairs[i].value) < 0)
                return r->error;
    }
    for (size_t i = 0; i < args->named_count; i++)
        if (jinja_str(r, args->named[i].name, &key) < 0 ||
            jinja_dict_put(r, ret, &key, &args->named[i].value) < 0)
            return r->error;
    return 0;
}

static int function_namespace(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return collect(r, c, VALUE_NAMESPACE, ret);
}

static int function_dict(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return collect(r, c, VALUE_DICT, ret);
}

/* range(stop), range(start, stop), range(start, stop, step) */
static int function_range(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    int64_t start = 0, stop, step = 1;
    bool one = c->arg[1].kind == VALUE_MISSING;
    for (int i = 0; i < 3; i++)
        if (c->arg[i].kind == VALUE_NONE)
            return jinja_fail(r, "'NoneType' object cannot be interpreted as an integer");
    if (jinja_arg_int(r, &c->arg[one ? 0 : 1], 0, &stop) < 0 ||
        (!one && jinja_arg_int(r, &c->arg[0], 0, &start) < 0) || jinja_arg_int(r, &c->arg[2], 1, &step) < 0)
        return r->error;
    if (step == 0)
        return jinja_fail(r, "range() arg 3 must not be zero");
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t len = (step > 0 ? stop > start : stop < start) ? (span - 1) / stride + 1 : 0;
    if (len > RANGE_MAX)
        return jinja_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          RANGE_MAX);
    if (jinja_list(r, VALUE_RANGE, (size_t)len, ret) < 0)
        return r->error;
    ret->l->name = "range";
    for (size_t i = 0; i < len; i++)
        ret->l->items[i] = jinja_int((int64_t)((uint64_t)start + i * (uint64_t)step));
    return 0;
}

static const struct jinja_builtin functions[] = {
    {"raise_exception", function_raise_exception, {"message"}, 1, false},
    {"strftime_now", function_strftime_now, {"format"}, 1, false},
    {"namespace", function_namespace, {0}, 0, true},
    {"dict", function_dict, {0}, 0, true},
    {"range", function_range, {"start", "stop", "step"}, 1, false},
};

const struct jinja_builtin *jinja_function_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (slice_eq(slice_of(functions[i].name), name))
            return &functions[i];
    return NULL;
}
