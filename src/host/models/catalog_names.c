#include "host/models/catalog_names.h"

#include "base/slice.h"
#include "hub/hub_cache.h"
#include "weights/weights_name.h"

#include <stdio.h>
#include <string.h>

#define PACKED_END ".plateau"

bool catalog_is_packed(const char *name)
{
    return slice_ends(slice_of(name), SLICE(PACKED_END)) && strlen(name) > strlen(PACKED_END);
}

bool catalog_file_id(const char *path, unsigned folders, char *ret, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *from = name;
    const bool packed = catalog_is_packed(name);
    if (!packed && !weights_name_is(name))
        return false;
    for (unsigned i = 0; i < folders && from > path + 1; i++) {
        from--;
        while (from > path && from[-1] != '/')
            from--;
    }
    const size_t own = packed ? strlen(name) - strlen(PACKED_END) : weights_name_model(name);
    size_t len = (size_t)(name - from) + own;
    if (len >= bytes)
        return false;
    memcpy(ret, from, len);
    ret[len] = 0;
    return true;
}

static bool has_twin(const struct catalog_named *list, uint32_t count, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        if (i != index && list[i].has_id && strcmp(list[i].id, list[index].id) == 0)
            return true;
    return false;
}

void catalog_name_twins(struct catalog_named *list, uint32_t count)
{
    for (unsigned folders = 1; folders <= 2; folders++) {
        for (uint32_t i = 0; i < count; i++)
            list[i].twin = list[i].renames && !strchr(list[i].id, ':') && has_twin(list, count, i);
        for (uint32_t i = 0; i < count; i++)
            if (list[i].twin)
                catalog_file_id(list[i].path, folders, list[i].id, list[i].id_bytes);
    }
}

void catalog_name_of(const char *path, char *ret, size_t bytes)
{
    char text[HUB_NAME_BYTES];
    struct hub_name hub;
    if (hub_cache_name_of(path, &hub)) {
        hub_name_text(&hub, text);
        snprintf(ret, bytes, "%s", text);
        return;
    }
    const char *slash = strrchr(path, '/');
    if (!catalog_file_id(path, 0, ret, bytes))
        snprintf(ret, bytes, "%s", slash && slash[1] ? slash + 1 : path);
}
