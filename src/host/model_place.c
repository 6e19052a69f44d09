/* model_place.c - what exists here comes before what the cache has, so a directory is never hidden by a
 * name. */
#include "host/model_place.h"

#include "base/check.h"
#include "host/model_sources.h"
#include "weights/gguf_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int keep(const char *path, char ret[HUB_PATH_BYTES], struct err *e)
{
    if (snprintf(ret, HUB_PATH_BYTES, "%s", path) >= HUB_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the model's path is longer than %d bytes", HUB_PATH_BYTES - 1);
    return 0;
}

/* models--ORG--NAME itself, and not a snapshot in it. */
static bool is_hub_folder(const char *path)
{
    struct hub_name name;
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    size_t from = len;
    while (from > 0 && path[from - 1] != '/')
        from--;
    char last[HUB_ID_BYTES + 16];
    snprintf(last, sizeof(last), "%.*s", (int)MIN_OF(len - from, sizeof(last) - 1), path + from);
    return hub_name_of_folder(last, &name);
}

static int in_folder(const char *path, char ret[HUB_PATH_BYTES], struct err *e)
{
    char folder[HUB_PATH_BYTES], snapshot[HUB_PATH_BYTES], config[HUB_PATH_BYTES + 16];
    struct stat st;
    int r = keep(path, folder, e);
    if (r < 0)
        return r;
    for (size_t len = strlen(folder); len > 1 && folder[len - 1] == '/';)
        folder[--len] = 0;
    snprintf(config, sizeof(config), "%s/config.json", folder);
    if (stat(config, &st) == 0)
        return keep(folder, ret, e);
    r = hub_cache_snapshot(folder, "main", snapshot, e);
    if (r == 0)
        return keep(snapshot, ret, e);
    return err_prefix(e, r, "%s", path);
}

int model_place_in_hub(const struct hub_name *name, char ret[HUB_PATH_BYTES], struct err *e)
{
    char cache[HUB_PATH_BYTES], folder[HUB_PATH_BYTES];
    int r = hub_cache_dir(cache, e);
    if (r == 0)
        r = hub_cache_folder(cache, name, folder, e);
    if (r == 0)
        r = hub_cache_snapshot(folder, name->revision, ret, e);
    if (r == -ENOENT)
        return err_set(
            e, r,
            "%s is not a directory here and not in the hub's cache (%s): plateau pull %s fetches it "
            "from the hub%s",
            name->id, cache, name->id, hub_is_offline() ? ", once HF_HUB_OFFLINE is not set" : "");
    return r;
}

struct wanted_id {
    const char *id;
    char *path;
    bool found;
};

static int compare_id(void *arg, const char *path, const char *id, struct err *e)
{
    struct wanted_id *w = arg;
    if (strcmp(id, w->id) != 0)
        return 0;
    w->found = keep(path, w->path, e) == 0;
    return 1; /* enough */
}

/* The model that the command models lists under this name, else the name as a path. */
static int keep_listed(const char *model, char ret[HUB_PATH_BYTES], struct err *e)
{
    struct wanted_id w = {.id = model, .path = ret};
    if (model[0] != '.' && model[0] != '/')
        (void)model_sources_each(compare_id, &w, NULL);
    return w.found ? 0 : keep(model, ret, e);
}

int model_place_find(const char *model, char ret[HUB_PATH_BYTES], struct err *e)
{
    char cache[HUB_PATH_BYTES], snapshot[HUB_PATH_BYTES];
    struct hub_name name;
    struct stat st;
    if (stat(model, &st) == 0)
        return S_ISDIR(st.st_mode) && is_hub_folder(model) ? in_folder(model, ret, e) : keep(model, ret, e);
    if (hub_name_parse(model, &name))
        return model_place_in_hub(&name, ret, e);
    if (strchr(model, '/') || hub_cache_dir(cache, NULL) < 0)
        return keep_listed(model, ret, e);
    int r = hub_cache_find(cache, model, &name, e);
    if (r == -ENOTUNIQ)
        return r;
    if (r == 0 && model_place_in_hub(&name, snapshot, NULL) == 0)
        return keep(snapshot, ret, e);
    return keep_listed(model, ret, e);
}

bool model_place_starter(char ret[HUB_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool named = cache && cache[0];
    int n = snprintf(ret, HUB_PATH_BYTES, "%s%s/plateau/smollm2",
                     named  ? cache
                     : home ? home
                            : "",
                     named ? "" : "/.cache");
    return n > 0 && n < HUB_PATH_BYTES && gguf_file_is(ret);
}
