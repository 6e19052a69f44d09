/* jinja_args.h - reading the arguments of a builtin. */
#ifndef PLATEAU_TEXT_JINJA_ARGS_H
#define PLATEAU_TEXT_JINJA_ARGS_H

#include "text/jinja_value.h"

/* Left out or none: `absent`. Else an int, or a failure. */
int jinja_arg_int(struct jinja_run *r, const struct jinja_value *v, int64_t absent, int64_t *ret);
/* Left out: `absent`. Else what it counts as. */
static inline bool jinja_arg_bool(const struct jinja_value *v, bool absent)
{
    return v->kind == VALUE_MISSING ? absent : jinja_truth(v);
}
/* A str, or a failure. */
int jinja_arg_str(struct jinja_run *r, const struct jinja_value *v, struct slice *ret);

/* x.a.b for an attribute written as "a.b" or an index; VALUE_MISSING or none: x itself. What is undefined becomes
 * `absent`, unless that is VALUE_MISSING. */
int jinja_arg_attribute(struct jinja_run *r, const struct jinja_value *x, const struct jinja_value *attribute,
                        const struct jinja_value *absent, struct jinja_value *ret);

#endif
