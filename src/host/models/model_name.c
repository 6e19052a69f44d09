#include "host/models/model_name.h"

#include "host/models/model_ggufs.h"

#include "hub/hub_cache.h"

#include <stdio.h>
#include <string.h>

void model_name_of(const char *path, char *ret, size_t bytes)
{
    char text[HUB_NAME_BYTES];
    struct hub_name hub;
    if (hub_cache_name_of(path, &hub)) {
        hub_name_text(&hub, text);
        snprintf(ret, bytes, "%s", text);
        return;
    }
    const char *slash = strrchr(path, '/');
    if (!model_ggufs_id(path, 0, ret, bytes))
        snprintf(ret, bytes, "%s", slash && slash[1] ? slash + 1 : path);
}
