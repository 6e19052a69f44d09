/* model_folder.c - looks at names alone; what a model is, the listing finds out. Links are followed, which
 * the hub's cache consists of; the depth is fixed, so cycles end. */
#include "host/models/model_folder.h"

#include "host/models/model_ggufs.h"

#include "base/slice.h"
#include "hub/hub_cache.h"
#include "hub/hub_ggufs.h"
#include "gguf/gguf_name.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 4096
#define DEPTH_MAX   2 /* ORG/NAME, as in the folders of LM Studio */
#define PATH_BYTES  4096
#define ID_BYTES    256

struct folder {
    char path[PATH_BYTES];
    struct dirent **entries; /* visible ones, sorted */
    int count;
};

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void folder_done(struct folder *f)
{
    for (int i = 0; i < f->count; i++)
        free(f->entries[i]);
    free(f->entries);
}

/* 0 or the system's error. */
static int folder_read(const char *path, struct folder *ret)
{
    snprintf(ret->path, sizeof(ret->path), "%s", path);
    ret->count = scandir(path, &ret->entries, visible, alphasort);
    if (ret->count >= 0)
        return 0;
    int r = -errno;
    *ret = (struct folder){.entries = NULL};
    return r;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool join(const char *dir, const char *name, char ret[PATH_BYTES])
{
    int n = snprintf(ret, PATH_BYTES, "%s/%s", dir, name);
    return n > 0 && n < PATH_BYTES;
}

struct contents {
    bool config, safetensors, gguf;
};

static struct contents contents_of(const struct folder *f)
{
    struct contents c = {false};
    for (int i = 0; i < f->count; i++) {
        const char *name = f->entries[i]->d_name;
        c.config |= strcmp(name, "config.json") == 0;
        c.safetensors |= slice_ends(slice_of(name), SLICE(".safetensors"));
        c.gguf |= gguf_name_is(name) || model_ggufs_packed(name);
    }
    return c;
}

/* A GGUF file brings its configuration: config.json beside it says nothing of a model in the folder. */
static bool is_model(struct contents c)
{
    return c.safetensors || (c.config && !c.gguf);
}

/* A GGUF model, or a vision encoder, which the listing refuses with a reason. */
static int look_at_gguf(const struct folder *f, int index, model_found_fn *found, void *arg, struct err *e)
{
    char path[PATH_BYTES], id[PATH_BYTES];
    const char *name = f->entries[index]->d_name;
    if (!gguf_name_is_mmproj(name))
        return model_ggufs_entry(f->path, f->entries, index, found, arg, e);
    return join(f->path, name, path) && model_ggufs_id(path, 0, id, sizeof(id)) ? found(arg, path, id, e) : 0;
}

static int each_gguf(const struct folder *f, model_found_fn *found, void *arg, struct err *e)
{
    int r = 0;
    for (int i = 0; i < f->count && r == 0; i++)
        r = look_at_gguf(f, i, found, arg, e);
    return r;
}

/* The GGUF models of a snapshot; their vision encoders belong to them. */
static int each_of_snapshot(const char *snapshot, const struct hub_ggufs *g, struct hub_name *name,
                            model_found_fn *found, void *arg, struct err *e)
{
    char path[PATH_BYTES], id[HUB_NAME_BYTES];
    int r = 0;
    for (uint32_t i = 0; i < g->count && r == 0; i++) {
        memcpy(name->quant, g->list[i].quant, sizeof(name->quant));
        hub_name_text(name, id);
        if (join(snapshot, g->list[i].file, path))
            r = found(arg, path, id, e);
    }
    return r;
}

/* The current snapshot of one model of the hub's cache; without one, its folder. */
static int hub_model(const char *dir, const struct hub_name *hub, model_found_fn *found, void *arg,
                     struct err *e)
{
    char snapshot[HUB_PATH_BYTES];
    struct hub_name name = *hub;
    struct hub_ggufs g;
    if (hub_cache_snapshot(dir, name.revision, snapshot, NULL) < 0)
        return found(arg, dir, name.id, e);
    int r = hub_ggufs_of_snapshot(snapshot, &g, e);
    if (r == 0 && (g.safetensors || g.count == 0))
        r = found(arg, snapshot, name.id, e);
    if (r == 0)
        r = each_of_snapshot(snapshot, &g, &name, found, arg, e);
    hub_ggufs_done(&g);
    return r;
}

static int each_below(const struct folder *f, unsigned depth, model_found_fn *found, void *arg,
                      struct err *e);

/* The files of a model, or the models below a folder. */
static int each_in(const struct folder *f, const char *id, unsigned depth, model_found_fn *found, void *arg,
                   struct err *e)
{
    if (!is_model(contents_of(f)))
        return each_below(f, depth, found, arg, e);
    int r = found(arg, f->path, id, e);
    return r == 0 ? each_gguf(f, found, arg, e) : r;
}

static int look_at(const char *dir, const char *name, unsigned depth, model_found_fn *found, void *arg,
                   struct err *e)
{
    char path[PATH_BYTES];
    struct folder f;
    if (!join(dir, name, path) || !is_directory(path))
        return 0;
    struct hub_name hub;
    if (hub_name_of_folder(name, &hub))
        return hub_model(path, &hub, found, arg, e);
    if (folder_read(path, &f) < 0)
        return 0;
    int r = each_in(&f, name, depth + 1, found, arg, e);
    folder_done(&f);
    return r;
}

static int each_below(const struct folder *f, unsigned depth, model_found_fn *found, void *arg, struct err *e)
{
    int r = 0;
    for (int i = 0; i < f->count && i < ENTRIES_MAX && r == 0; i++) {
        r = look_at_gguf(f, i, found, arg, e);
        if (r == 0 && depth <= DEPTH_MAX)
            r = look_at(f->path, f->entries[i]->d_name, depth, found, arg, e);
    }
    return r;
}

/* The folder's own name, of "." too. */
static void own_id(const char *dir, char ret[ID_BYTES])
{
    char *real = realpath(dir, NULL);
    const char *path = real ? real : dir, *slash = strrchr(path, '/');
    snprintf(ret, ID_BYTES, "%s", slash && slash[1] ? slash + 1 : path);
    free(real);
}

int model_folder_each(const char *dir, model_found_fn *found, void *arg, struct err *e)
{
    struct folder f;
    char id[ID_BYTES];
    struct hub_name hub;
    int r = folder_read(dir, &f);
    if (r < 0)
        return err_set(e, -ENOENT, "%s cannot be read: %s", dir, strerror(-r));
    own_id(dir, id);
    const struct contents c = contents_of(&f);
    if (c.config && is_model(c))
        r = each_in(&f, id, 1, found, arg, e);
    else if (hub_name_of_folder(id, &hub))
        r = hub_model(dir, &hub, found, arg, e);
    else if (f.count > ENTRIES_MAX)
        r = err_set(e, -E2BIG, "%s has more than %d entries: name a folder of models", dir, ENTRIES_MAX);
    else
        r = each_below(&f, 1, found, arg, e);
    folder_done(&f);
    return r;
}
