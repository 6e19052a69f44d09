/* tmpl_run.c - what all parts of a run use: its end, the count of its work, arguments. */
#include "template/tmpl_builtins.h"
#include "template/tmpl_eval.h"

#include "base/check.h"
#include "base/err.h"
#include "base/wanted.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define UNITS_PER_STEP 64
/* A step takes 50 to 100 ns. */
#define STEPS_PER_LOOK 4096

struct tmpl_value tmpl_fail(struct tmpl_run *run, const char *format, ...)
{
    if (run->error == 0) {
        char text[400];
        va_list ap;
        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        run->error = err_set(run->e, -EINVAL, "line %u of the chat template: %s", run->line, text);
    }
    return tmpl_undefined(SLICE(""));
}

struct tmpl_value tmpl_fail_memory(struct tmpl_run *run)
{
    if (run->error == 0)
        run->error = err_set(run->e, -E2BIG, "the chat template's output or memory is over its limit");
    return tmpl_none();
}

bool tmpl_step(struct tmpl_run *run, uint32_t steps)
{
    if (run->error)
        return false;
    if (steps > run->steps_left) {
        run->error = err_set(run->e, -E2BIG, "the chat template takes too many steps");
        return false;
    }
    run->steps_left -= steps;
    if (run->steps_left > run->look_below)
        return true;
    run->look_below = run->steps_left - MIN_OF(run->steps_left, (uint32_t)STEPS_PER_LOOK);
    int r = wanted_check(run->wanted);
    if (r < 0)
        run->error = err_set(run->e, r, "the rendering was not wanted any more");
    return r == 0;
}

bool tmpl_work(struct tmpl_run *run, size_t units)
{
    if (!run)
        return true;
    if (run->error)
        return false;
    run->units += units;
    if (run->units < UNITS_PER_STEP)
        return true;
    size_t steps = run->units / UNITS_PER_STEP;
    run->units %= UNITS_PER_STEP;
    return tmpl_step(run, (uint32_t)MIN_OF(steps, (size_t)UINT32_MAX));
}

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
