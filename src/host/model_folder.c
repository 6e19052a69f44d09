/* model_folder.c - looks at names alone; what a model is, the listing finds out. Links are followed, which
 * the hub's cache consists of; the depth is fixed, so cycles end. */
#include "host/model_folder.h"

#include "base/check.h"
#include "base/slice.h"
#include "hub/hub_cache.h"

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

static bool is_model(const struct folder *f)
{
    static const char *const tails[] = {".safetensors", ".gguf"};
    bool is = false;
    for (int i = 0; i < f->count; i++) {
        is |= strcmp(f->entries[i]->d_name, "config.json") == 0;
        for (size_t k = 0; k < COUNT_OF(tails); k++)
            is |= slice_ends(slice_of(f->entries[i]->d_name), slice_of(tails[k]));
    }
    return is;
}

/* The current snapshot of one model of the hub's cache; without one, its folder. */
static int hub_model(const char *dir, const struct hub_name *name, model_found_fn *found, void *arg,
                     struct err *e)
{
    char snapshot[HUB_PATH_BYTES];
    bool whole = hub_cache_snapshot(dir, name->revision, snapshot, NULL) == 0;
    return found(arg, whole ? snapshot : dir, name->id, e);
}

static int each_below(const struct folder *f, unsigned depth, model_found_fn *found, void *arg,
                      struct err *e);

static int look_at(const char *dir, const char *name, unsigned depth, model_found_fn *found, void *arg,
                   struct err *e)
{
    int r = 0;
    char path[PATH_BYTES];
    struct folder f;
    if (!join(dir, name, path))
        return 0;
    if (!is_directory(path))
        return slice_ends(slice_of(name), SLICE(".gguf")) ? found(arg, path, name, e) : 0;
    struct hub_name hub;
    if (hub_name_of_folder(name, &hub))
        return hub_model(path, &hub, found, arg, e);
    if (folder_read(path, &f) < 0)
        return 0;
    if (is_model(&f))
        r = found(arg, path, name, e);
    else if (depth < DEPTH_MAX)
        r = each_below(&f, depth + 1, found, arg, e);
    folder_done(&f);
    return r;
}

static int each_below(const struct folder *f, unsigned depth, model_found_fn *found, void *arg, struct err *e)
{
    int r = 0;
    for (int i = 0; i < f->count && i < ENTRIES_MAX && r == 0; i++)
        r = look_at(f->path, f->entries[i]->d_name, depth, found, arg, e);
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
    bool config = false;
    for (int i = 0; i < f.count; i++)
        config |= strcmp(f.entries[i]->d_name, "config.json") == 0;
    if (config)
        r = found(arg, dir, id, e);
    else if (hub_name_of_folder(id, &hub))
        r = hub_model(dir, &hub, found, arg, e);
    else if (f.count > ENTRIES_MAX)
        r = err_set(e, -E2BIG, "%s has more than %d entries: name a folder of models", dir, ENTRIES_MAX);
    else
        r = each_below(&f, 1, found, arg, e);
    folder_done(&f);
    return r;
}
