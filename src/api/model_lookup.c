/* model_lookup.c - an exact name first, so that no change of a name takes a request from the model that
 * has it.
 *
 * Each change is tried on all models before the next one. A change that fits two models ends the search,
 * because a further change has no better reason. */
#include "api/model_lookup.h"

#include "api/api_state.h"

#include "base/check.h"
#include "base/slice.h"
#include "gen/reject.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

#include <stdint.h>
#include <stdio.h>

#define NAMES_SHOWN_MAX 5u
#define NAME_SHOWN_MAX  80 /* bytes */

static bool is_like(const struct model_settings *s, struct slice name)
{
    bool found = slice_eq_any_case(slice_of(s->id), name);
    for (uint32_t i = 0; i < s->alias_count && !found; i++)
        found = slice_eq_any_case(slice_of(s->aliases[i]), name);
    return found;
}

/* The number of models with that name in any case; `index` is one of them. */
static uint32_t count_like(const struct api *a, struct slice name, int *index)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < api_model_count(a) && name.len > 0; i++) {
        if (is_like(registry_settings(a->opts.registry, i), name)) {
            *index = (int)i;
            found++;
        }
    }
    return found;
}

static struct slice without_tag(struct slice name)
{
    struct slice tag = SLICE(":latest");
    return slice_ends(name, tag) ? slice_sub(name, 0, name.len - tag.len) : name;
}

int model_lookup_find(const struct api *a, struct slice name)
{
    int index = registry_find(a->opts.registry, name);
    uint32_t found = index >= 0;
    while (found == 0) {
        found = count_like(a, name, &index);
        if (found == 0)
            found = count_like(a, without_tag(name), &index);
        size_t slash = slice_find(name, SLICE("/"), 0);
        if (slash == SIZE_MAX)
            break;
        name = slice_sub(name, slash + 1, name.len);
    }
    return found == 1 ? index : -1;
}

int model_lookup_serve(const struct api *a, struct slice name, bool *exact)
{
    const char *otherwise = a->opts.default_model;
    *exact = name.ptr && registry_find(a->opts.registry, name) >= 0;
    int index = name.ptr || !otherwise ? model_lookup_find(a, name) : -1;
    return index < 0 && otherwise ? registry_find(a->opts.registry, slice_of(otherwise)) : index;
}

bool model_lookup_refuse(const struct api *a, struct slice name, struct reject *why)
{
    char models[NAMES_SHOWN_MAX * (NAME_SHOWN_MAX + 8)] = "";
    uint32_t count = 0, shown = 0;
    size_t at = 0;
    name.len = MIN_OF(name.len, (size_t)200);
    for (uint32_t i = 0; i < api_model_count(a); i++)
        count += !api_is_replica(a, i);
    for (uint32_t i = 0; i < api_model_count(a) && count <= NAMES_SHOWN_MAX; i++) {
        if (api_is_replica(a, i))
            continue;
        at += (size_t)snprintf(models + at, sizeof(models) - at, "%s%.*s",
                               shown == 0           ? ""
                               : shown == count - 1 ? " and "
                                                    : ", ",
                               NAME_SHOWN_MAX, api_model_id(a, i));
        shown++;
    }
    if (count == 0 || count > NAMES_SHOWN_MAX)
        return reject_set(why, REJECT_MODEL_NOT_FOUND, "model",
                          "The model \"%.*s\" does not exist. GET /v1/models lists the models.",
                          SLICE_ARGS(name));
    return reject_set(why, REJECT_MODEL_NOT_FOUND, "model",
                      "The model \"%.*s\" does not exist. %s here: %s. An --alias adds a name, and "
                      "--default-model serves any name.",
                      SLICE_ARGS(name), count == 1 ? "The model" : "The models", models);
}
