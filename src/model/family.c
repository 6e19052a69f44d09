/* family.c - the table of families. */
#include "model/family.h"

#include "base/check.h"

#include <stdio.h>

static const struct family *const families[] = {&family_llama, &family_qwen3_vl, &family_qwen3_5};

const struct family *family_find(const char *model_type)
{
    struct slice name = slice_of(model_type);
    if (slice_ends(name, SLICE("_text")))
        name.len -= 5;
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        for (const char *const *n = families[i]->names; *n; n++) {
            if (slice_eq(name, slice_of(*n)))
                return families[i];
        }
    }
    return NULL;
}

const char *family_list(char *ret, size_t bytes_max)
{
    size_t at = 0;
    ret[0] = 0;
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        for (const char *const *n = families[i]->names; *n && at < bytes_max; n++)
            at += (size_t)snprintf(ret + at, bytes_max - at, "%s%s", at ? ", " : "", *n);
    }
    return ret;
}
