/* tmpl_args.c - the arguments of a filter, test, method or function. */
#include "text/tmpl_builtins.h"

const struct tmpl_value *tmpl_arg(const struct tmpl_args *args, uint32_t index, const char *name)
{
    uint32_t position = 0;
    for (uint32_t i = 0; i < args->count; i++) {
        bool named = args->names[i].ptr != NULL;
        if (named ? slice_eq(args->names[i], slice_of(name)) : position++ == index)
            return &args->items[i];
    }
    return NULL;
}
