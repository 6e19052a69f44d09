/* family.c - the list of families. */
#include "model/family/family.h"

#include "base/check.h"

#include <stdio.h>

static const struct family *const files[] = {
    families_llama,    families_qwen,   families_gemma,   families_olmo,    families_glm, families_gpt_oss,
    families_mixtral,  families_cohere, families_granite, families_hunyuan, families_phi, families_lfm,
    families_deepseek, families_mamba,  families_gated,   families_kda,     families_bert};

/* Without "_text". */
static struct slice type_of(const char *model_type)
{
    struct slice name = slice_of(model_type);
    if (slice_ends(name, SLICE("_text")))
        name.len -= 5;
    return name;
}

/* The one of them that is `name`; NULL: none. */
static const char *one_of(const char *const names[FAMILY_NAMES_MAX], struct slice name)
{
    for (size_t i = 0; i < FAMILY_NAMES_MAX && names[i]; i++) {
        if (slice_eq(name, slice_of(names[i])))
            return names[i];
    }
    return NULL;
}

static const struct family *find_in(const struct family *list, struct slice name)
{
    while (list->names[0] && !one_of(list->names, name) && !one_of(list->parents, name))
        list++;
    return list->names[0] ? list : NULL;
}

const struct family *family_find(const char *model_type)
{
    const struct family *found = NULL;
    for (size_t i = 0; !found && i < COUNT_OF(files); i++)
        found = find_in(files[i], type_of(model_type));
    return found;
}

const char *family_name(const struct family *f, const char *model_type)
{
    const char *name = one_of(f->names, type_of(model_type));
    return name ? name : f->names[0];
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
