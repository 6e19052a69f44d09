/* model_dirs.c - names are sorted, so that a list of models is the same at each start. Links are followed: the depth bounds those that
 * lead back. */
#include "cli/model_dirs.h"

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

static int search(struct search *s, const char *dir, unsigned depth);

static int search_child(struct search *s, const char *dir, const char *name, unsigned depth)
{
    char path[MODEL_DIRS_PATH_BYTES];
    struct stat st;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return 0;
    return depth < DEPTH_MAX && stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? search(s, path, depth + 1) : 0;
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
    if (is_model(dir, entries, count))
        r = s->found(s->arg, dir, s->e);
    else
        for (int i = 0; i < count && r == 0; i++)
            r = search_child(s, dir, entries[i]->d_name, depth);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return r;
}

int model_dirs_find(const char *dir, int (*found)(void *arg, const char *path, struct err *e), void *arg,
                    struct err *e)
{
    struct search s = {found, arg, e, 0};
    int r = search(&s, dir, 0);
    return r < 0 ? err_prefix(e, r, "--model-dir %s", dir) : 0;
}
