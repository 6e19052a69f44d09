/* tmpl_builtins.h - filters, tests, methods and functions of templates, by name. */
#ifndef PLATEAU_TEMPLATE_TMPL_BUILTINS_H
#define PLATEAU_TEMPLATE_TMPL_BUILTINS_H

#include "template/tmpl_value.h"

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

#define TMPL_ARGS_MAX 16

struct tmpl_args {
    struct tmpl_value items[TMPL_ARGS_MAX];
    struct slice names[TMPL_ARGS_MAX]; /* ptr NULL: positional */
    uint32_t count;
};

/* Gets a value and the arguments: a filter, or a method of the value. */
typedef struct tmpl_value tmpl_builtin_fn(struct tmpl_run *run, struct tmpl_value v,
                                          const struct tmpl_args *args);
/* One whose result is one expression of these. */
#define TMPL_BUILTIN(name, expression)                                                                       \
    static struct tmpl_value name(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args)   \
    {                                                                                                        \
        (void)run, (void)args;                                                                               \
        return expression;                                                                                   \
    }

/* Positional argument `index`, else the one named `name`, else NULL. */
const struct tmpl_value *tmpl_arg(const struct tmpl_args *args, uint32_t index, const char *name);

/* Index of a builtin of that name, or -1. */
int tmpl_filter_find(struct slice name);
int tmpl_test_find(struct slice name);
int tmpl_function_find(struct slice name);

/* Each sets the run's error on failure; its result is ignored then. */
struct tmpl_value tmpl_filter_call(struct tmpl_run *run, int filter, struct tmpl_value v,
                                   const struct tmpl_args *args);
bool tmpl_test_call(struct tmpl_run *run, int test, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_function_call(struct tmpl_run *run, int function, const struct tmpl_args *args);
struct tmpl_value tmpl_method_call(struct tmpl_run *run, int method, const struct tmpl_value *self,
                                   const struct tmpl_args *args);

#endif
