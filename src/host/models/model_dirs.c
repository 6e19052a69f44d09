/* model_dirs.c - names are sorted, so that a list of models is the same at each start. Links are followed:
 * the depth limit ends cycles. */
#include "host/models/model_dirs.h"

#include "host/models/model_ggufs.h"

#include "hub/hub_cache.h"
#include "gguf/gguf_name.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8
#define LOOKS_MAX 4096

struct search {
    int (*found)(void *arg, const char *path, struct err *e);
    void *arg;
    struct err *e;
    struct model_dirs_others *others;
    unsigned looks;
};

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static bool ends_in(const char *name, const char *tail)
{
    size_t len = strlen(name), n = strlen(tail);
    return len > n && strcmp(name + len - n, tail) == 0;
}

static bool is_model(const char *dir, struct dirent *const *entries, int count)
{
    char path[MODEL_DIRS_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/config.json", dir);
    bool weights = false;
    for (int i = 0; i < count; i++)
        weights |= ends_in(entries[i]->d_name, ".safetensors");
    return weights && access(path, R_OK) == 0;
}

/* Vision encoders beside GGUF files, and PyTorch's weights where a config.json lies beside them. */
static void note_others(struct search *s, const char *dir, struct dirent *const *entries, int count)
{
    bool config = false;
    for (int i = 0; i < count; i++)
        config |= strcmp(entries[i]->d_name, "config.json") == 0;
    for (int i = 0; s->others && i < count; i++) {
        const char *name = entries[i]->d_name;
        bool mmproj = gguf_name_is_mmproj(name), bin = config && ends_in(name, ".bin");
        if ((mmproj || bin) && s->others->mmprojs + s->others->bins == 0)
            snprintf(s->others->first, sizeof(s->others->first), "%s/%s", dir, name);
        s->others->mmprojs += mmproj;
        s->others->bins += bin;
    }
}

static int search(struct search *s, const char *dir, unsigned depth);

static int found_gguf(void *arg, const char *path, const char *id, struct err *e)
{
    const struct search *s = arg;
    (void)id;
    return s->found(s->arg, path, e);
}

/* Searches the current snapshot alone of a model in the hub's cache. */
static int search_hub(struct search *s, const char *dir, unsigned depth)
{
    char snapshot[HUB_PATH_BYTES];
    struct err why = {{0}};
    if (hub_cache_snapshot(dir, "main", snapshot, &why) == 0)
        return search(s, snapshot, depth);
    if (s->others && s->others->hub_models++ == 0)
        s->others->hub_why = why;
    return 0;
}

static int search_child(struct search *s, const char *dir, const char *name, unsigned depth)
{
    char path[MODEL_DIRS_PATH_BYTES];
    struct stat st;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return 0;
    if (depth == DEPTH_MAX || stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    struct hub_name hub;
    return hub_name_of_folder(name, &hub) ? search_hub(s, path, depth + 1) : search(s, path, depth + 1);
}

static int search(struct search *s, const char *dir, unsigned depth)
{
    struct dirent **entries;
    int r = 0;
    if (++s->looks > LOOKS_MAX)
        return err_set(s->e, -E2BIG, "more than %d directories: name one that has the models and little else",
                       LOOKS_MAX);
    int count = scandir(dir, &entries, visible, alphasort);
    if (count < 0)
        return depth > 0 ? 0 : err_set(s->e, -ENOENT, "%s cannot be read: %s", dir, strerror(errno));
    bool model = is_model(dir, entries, count);
    if (model)
        r = s->found(s->arg, dir, s->e);
    else
        note_others(s, dir, entries, count);
    for (int i = 0; i < count && r == 0; i++) {
        r = model_ggufs_entry(dir, entries, i, found_gguf, s, s->e);
        if (r == 0 && !model)
            r = search_child(s, dir, entries[i]->d_name, depth);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return r;
}

int model_dirs_find(const char *dir, int (*found)(void *arg, const char *path, struct err *e), void *arg,
                    struct model_dirs_others *others, struct err *e)
{
    if (others)
        *others = (struct model_dirs_others){0};
    struct search s = {found, arg, e, others, 0};
    int r = search(&s, dir, 0);
    return r < 0 ? err_prefix(e, r, "--model-dir %s", dir) : 0;
}
