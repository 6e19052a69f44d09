/* family.c - the list of families. */
#include "model/family.h"

#include "base/check.h"

#include <stdio.h>

static const struct family *const files[] = {families_llama, families_qwen, families_gemma, families_olmo,
                                             families_glm};

static const struct family *find_in(const struct family *list, struct slice name)
{
    for (; list->names[0]; list++) {
        for (size_t i = 0; i < COUNT_OF(list->names) && list->names[i]; i++) {
            if (slice_eq(name, slice_of(list->names[i])))
                return list;
        }
    }
    return NULL;
}

const struct family *family_find(const char *model_type)
{
    struct slice name = slice_of(model_type);
    const struct family *found = NULL;
    if (slice_ends(name, SLICE("_text")))
        name.len -= 5;
    for (size_t i = 0; !found && i < COUNT_OF(files); i++)
        found = find_in(files[i], name);
    return found;
}

const char *family_list(char *ret, size_t bytes_max)
{
    size_t at = 0;
    ret[0] = 0;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        for (const struct family *f = files[i]; f->names[0]; f++) {
            for (size_t n = 0; n < COUNT_OF(f->names) && f->names[n] && at < bytes_max; n++)
                at += (size_t)snprintf(ret + at, bytes_max - at, "%s%s", at ? ", " : "", f->names[n]);
        }
    }
    return ret;
}
