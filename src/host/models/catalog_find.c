/* catalog_find.c - what exists here comes before what the cache has, so a directory is never hidden by a
 * name. */
#include "host/models/catalog.h"

#include "host/models/catalog_names.h"

#include "base/check.h"
#include "hub/hub_cache.h"
#include "hub/hub_variants.h"
#include "weights/model_files.h"
#include "weights/model_fingerprint.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

_Static_assert(CATALOG_PATH_BYTES == HUB_PATH_BYTES, "paths of the cache are paths of the catalog");

static int keep(const char *path, char ret[HUB_PATH_BYTES], struct err *e)
{
    if (snprintf(ret, HUB_PATH_BYTES, "%s", path) >= HUB_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the model's path is longer than %d bytes", HUB_PATH_BYTES - 1);
    return 0;
}

/* ---- the hub's cache ---- */

/* The model of a snapshot: its directory, or the GGUF file that the name chooses. */
static int in_snapshot(const char *snapshot, const struct hub_name *name, char ret[HUB_PATH_BYTES],
                       struct err *e)
{
    char path[HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2];
    struct hub_variants g;
    const struct hub_variant *m = NULL;
    int r = hub_variants_of_snapshot(snapshot, &g, e);
    if (r == 0 && (name->quant[0] || (g.count > 0 && !g.safetensors)))
        r = hub_variants_find(&g, name, &m, e);
    if (r == -ENOENT)
        err_prefix(e, r, "%s:%s is not in the hub's cache, and plateau pull %s:%s fetches it", name->id,
                   name->quant, name->id, name->quant);
    snprintf(path, sizeof(path), "%s%s%s", snapshot, m ? "/" : "", m ? m->file : "");
    hub_variants_done(&g);
    return r == 0 ? keep(path, ret, e) : r;
}

/* The path of a model's folder in the hub's cache, and not of a snapshot in it. */
static bool is_hub_folder(const char *path, struct hub_name *ret)
{
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    size_t from = len;
    while (from > 0 && path[from - 1] != '/')
        from--;
    char last[HUB_ID_BYTES + 16];
    snprintf(last, sizeof(last), "%.*s", (int)MIN_OF(len - from, sizeof(last) - 1), path + from);
    return hub_name_of_folder(last, ret);
}

static int in_folder(const char *path, const struct hub_name *name, char ret[HUB_PATH_BYTES], struct err *e)
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
        r = in_snapshot(snapshot, name, ret, e);
    return r < 0 ? err_prefix(e, r, "%s", path) : 0;
}

int catalog_find_in_hub(const struct hub_name *name, char ret[HUB_PATH_BYTES], struct err *e)
{
    char cache[HUB_PATH_BYTES], folder[HUB_PATH_BYTES], snapshot[HUB_PATH_BYTES], text[HUB_NAME_BYTES];
    int r = hub_cache_dir(cache, e);
    if (r == 0)
        r = hub_cache_folder(cache, name, folder, e);
    if (r == 0)
        r = hub_cache_snapshot(folder, name->revision, snapshot, e);
    if (r == 0)
        return in_snapshot(snapshot, name, ret, e);
    hub_name_text(name, text);
    if (r == -ENOENT)
        return err_set(
            e, r,
            "%s is not a directory here and not in the hub's cache (%s): plateau pull %s fetches it "
            "from the hub%s",
            text, cache, text, hub_is_offline() ? ", once HF_HUB_OFFLINE is not set" : "");
    return r;
}

/* ---- names ---- */

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
        (void)catalog_each_source(compare_id, &w, NULL);
    return w.found ? 0 : keep(model, ret, e);
}

/* A name ORG/NAME:TAG may also be one of Ollama's store. */
static int find_hub_name(const char *model, const struct hub_name *name, char ret[HUB_PATH_BYTES],
                         struct err *e)
{
    int r = catalog_find_in_hub(name, ret, e);
    struct wanted_id w = {.id = model, .path = ret};
    if (r == -ENOENT && name->quant[0])
        (void)catalog_each_source(compare_id, &w, NULL);
    return w.found ? 0 : r;
}

int catalog_find(const char *model, char ret[HUB_PATH_BYTES], struct err *e)
{
    char cache[HUB_PATH_BYTES];
    struct hub_name name;
    struct stat st;
    if (stat(model, &st) == 0)
        return S_ISDIR(st.st_mode) && is_hub_folder(model, &name) ? in_folder(model, &name, ret, e)
                                                                  : keep(model, ret, e);
    if (strcmp(model, CATALOG_BUNDLED) == 0)
        return catalog_bundled(ret, e);
    if (strcmp(model, CATALOG_STARTER) == 0 && catalog_starter(ret))
        return 0;
    if (hub_name_parse(model, &name))
        return find_hub_name(model, &name, ret, e);
    if (strchr(model, '/') || hub_cache_dir(cache, NULL) < 0)
        return keep_listed(model, ret, e);
    int r = hub_cache_find_name(cache, model, &name, e);
    if (r == 0)
        r = catalog_find_in_hub(&name, ret, e);
    return r == -ENOENT || r == -ENODATA ? keep_listed(model, ret, e) : r;
}

int catalog_fingerprint(const char *path, uint8_t ret[32], struct err *e)
{
    struct model_files *files;
    int r = model_files_open(path, &files, e);
    if (r < 0)
        return r;
    r = model_fingerprint(files, ret, e);
    model_files_close(files);
    return r;
}
