/* jinja_call.c - arguments to parameters, for everything that is built in. */
#include "text/jinja_value.h"

#include "base/check.h"

#include <errno.h>

static size_t parameter_count(const struct jinja_builtin *f)
{
    size_t n = 0;
    while (n < JINJA_PARAMETERS_MAX && f->parameters[n])
        n++;
    return n;
}

static int bind_named(struct jinja_run *r, const struct jinja_builtin *f, const struct jinja_named *named,
                      struct jinja_call *c)
{
    for (size_t i = 0; i < parameter_count(f); i++) {
        if (!slice_eq(named->name, slice_of(f->parameters[i])))
            continue;
        if (c->arg[i].kind != VALUE_MISSING)
            return jinja_fail(r, "%s() got multiple values for argument '%s'", f->name, f->parameters[i]);
        c->arg[i] = named->value;
        return 0;
    }
    return jinja_fail(r, "%s() got an unexpected keyword argument '%.*s'", f->name,
                      SLICE_ARGS(slice_sub(named->name, 0, 80)));
}

static int bind(struct jinja_run *r, const struct jinja_builtin *f, const struct jinja_args *args,
                struct jinja_call *c)
{
    size_t count = parameter_count(f);
    if (args->positional_count > count)
        return jinja_fail(r, "%s() takes at most %zu argument(s), not %zu", f->name, count,
                          args->positional_count);
    for (size_t i = 0; i < args->positional_count; i++)
        c->arg[i] = args->positional[i];
    for (size_t i = 0; i < args->named_count; i++)
        if (bind_named(r, f, &args->named[i], c) < 0)
            return r->error;
    for (size_t i = 0; i < f->required; i++)
        if (c->arg[i].kind == VALUE_MISSING)
            return jinja_fail(r, "%s() misses its argument '%s'", f->name, f->parameters[i]);
    return 0;
}

int jinja_call_builtin(struct jinja_run *r, const struct jinja_builtin *f, const struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_call c = {.self = *self, .args = args};
    if (!f->free_form && bind(r, f, args, &c) < 0)
        return r->error;
    return f->fn(r, &c, ret);
}
