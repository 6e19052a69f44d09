/* catalog.c - entries are collected first: whether a file's name is unique decides its id.
 *
 * Names are sorted, so that a list of models is the same at each start. The depth limit ends cycles of
 * links. */
#include "host/models/catalog.h"

#include "host/models/catalog_files.h"
#include "host/models/catalog_names.h"

#include "base/slice.h"
#include "weights/weights_name.h"
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX   8
#define LOOKS_MAX   4096
#define ENTRIES_MAX 4096

struct walk {
    struct catalog_entry **list;
    unsigned count, room, looks;
    struct err *e;
};

/* A directory that is being read. */
struct folder {
    const char *path;
    struct dirent **entries; /* visible ones, sorted */
    int count;
    unsigned depth;
    bool snapshot; /* it lies in a snapshot of the hub's cache */
    bool config, safetensors, ggufs, bins;
};

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static bool join(const char *dir, const char *name, char ret[CATALOG_PATH_BYTES])
{
    return snprintf(ret, CATALOG_PATH_BYTES, "%s/%s", dir, name) < CATALOG_PATH_BYTES;
}

/* ---- entries ---- */

static int add(struct walk *w, const char *path, enum catalog_kind kind, struct catalog_entry **ret)
{
    if (w->count == ENTRIES_MAX)
        return err_set(w->e, -E2BIG, "more than %d models: name a directory with fewer", ENTRIES_MAX);
    if (w->count == w->room) {
        const unsigned room = w->room ? 2 * w->room : 64;
        struct catalog_entry **list = realloc(w->list, room * sizeof(*list));
        if (!list)
            return err_set(w->e, -ENOMEM, "no memory for a list of models");
        w->list = list;
        w->room = room;
    }
    struct catalog_entry *m = calloc(1, sizeof(*m));
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return err_set(w->e, -ENOMEM, "no memory for a list of models");
    }
    catalog_name_of(path, m->id, sizeof(m->id));
    m->kind = kind;
    w->list[w->count++] = m;
    if (ret)
        *ret = m;
    return 0;
}

/* The folder's own name, of "." too. */
static void name_top(const char *path, char ret[CATALOG_ID_BYTES])
{
    char *real = realpath(path, NULL);
    catalog_name_of(real ? real : path, ret, CATALOG_ID_BYTES);
    free(real);
}

static int add_folder(struct walk *w, const struct folder *f, enum catalog_kind kind)
{
    struct catalog_entry *m;
    int r = add(w, f->path, kind, &m);
    if (r == 0 && f->depth == 0)
        name_top(m->path, m->id);
    return r;
}

/* ---- the walk ---- */

static void look_at(struct folder *f, const char *name)
{
    f->config |= strcmp(name, "config.json") == 0;
    f->safetensors |= slice_ends(slice_of(name), SLICE(".safetensors"));
    f->bins |= slice_ends(slice_of(name), SLICE(".bin"));
    f->ggufs |= weights_name_is(name) || catalog_is_packed(name);
}

/* A GGUF file brings its configuration: config.json beside it says nothing of a model in the folder. At the
 * top, weights alone do not make the folder a model. */
static bool find_kind(const struct folder *f, enum catalog_kind *ret)
{
    char path[CATALOG_PATH_BYTES];
    const bool readable = f->config && join(f->path, "config.json", path) && access(path, R_OK) == 0;
    if (readable && f->safetensors)
        *ret = CATALOG_DIRECTORY;
    else if (f->config && !f->ggufs && !f->safetensors && f->bins)
        *ret = CATALOG_BIN;
    else if ((f->config && !f->ggufs) || (f->safetensors && f->depth > 0))
        *ret = CATALOG_PARTIAL;
    else
        return false;
    return true;
}

static int found_file(void *arg, const char *path, const char *id, struct err *e)
{
    (void)id, (void)e;
    return add(arg, path, CATALOG_FILE, NULL);
}

/* Vision encoders of a snapshot belong to its models. */
static int add_file(struct walk *w, const struct folder *f, int index)
{
    char path[CATALOG_PATH_BYTES];
    const char *name = f->entries[index]->d_name;
    if (!weights_name_is_mmproj(name))
        return catalog_file_entry(f->path, f->entries, index, found_file, w, w->e);
    return !f->snapshot && join(f->path, name, path) ? add(w, path, CATALOG_ENCODER, NULL) : 0;
}

static int walk_folder(struct walk *w, const char *dir, unsigned depth, bool snapshot);

/* The current snapshot alone of a model in the hub's cache. */
static int walk_hub(struct walk *w, const char *dir, const struct hub_name *name, unsigned depth)
{
    char snapshot[HUB_PATH_BYTES];
    struct err why = {{0}};
    struct catalog_entry *m;
    const unsigned before = w->count;
    if (hub_cache_snapshot(dir, "main", snapshot, &why) == 0) {
        int r = walk_folder(w, snapshot, depth, true);
        return r == 0 && w->count == before ? add(w, snapshot, CATALOG_PARTIAL, NULL) : r;
    }
    int r = add(w, dir, CATALOG_HUB, &m);
    if (r < 0)
        return r;
    snprintf(m->id, sizeof(m->id), "%s", name->id);
    m->why = strdup(why.text);
    return m->why ? 0 : err_set(w->e, -ENOMEM, "no memory for a list of models");
}

/* The hub's cache has folders of other repositories, too. */
static bool is_other_repository(const char *name)
{
    return slice_starts(slice_of(name), SLICE("datasets--")) ||
           slice_starts(slice_of(name), SLICE("spaces--"));
}

static int walk_child(struct walk *w, const struct folder *f, const char *name)
{
    char path[CATALOG_PATH_BYTES];
    struct hub_name hub;
    struct stat st;
    if (f->depth == DEPTH_MAX || is_other_repository(name) || !join(f->path, name, path) ||
        stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    return hub_name_of_folder(name, &hub) ? walk_hub(w, path, &hub, f->depth + 1)
                                          : walk_folder(w, path, f->depth + 1, f->snapshot);
}

static int walk_entries(struct walk *w, struct folder *f)
{
    enum catalog_kind kind;
    for (int i = 0; i < f->count; i++)
        look_at(f, f->entries[i]->d_name);
    const bool is = find_kind(f, &kind);
    int r = is ? add_folder(w, f, kind) : 0;
    for (int i = 0; i < f->count && r == 0; i++) {
        r = add_file(w, f, i);
        if (r == 0 && !(is && kind == CATALOG_DIRECTORY))
            r = walk_child(w, f, f->entries[i]->d_name);
    }
    return r;
}

static int walk_folder(struct walk *w, const char *dir, unsigned depth, bool snapshot)
{
    struct folder f = {.path = dir, .depth = depth, .snapshot = snapshot};
    if (++w->looks > LOOKS_MAX)
        return err_set(w->e, -E2BIG, "more than %d directories: name one that has the models and little else",
                       LOOKS_MAX);
    f.count = scandir(dir, &f.entries, visible, alphasort);
    if (f.count < 0)
        return depth > 0 ? 0 : err_set(w->e, -ENOENT, "%s cannot be read: %s", dir, strerror(errno));
    int r = walk_entries(w, &f);
    for (int i = 0; i < f.count; i++)
        free(f.entries[i]);
    free(f.entries);
    return r;
}

/* A folder of the hub's cache that is named itself. */
static int walk_top(struct walk *w, const char *dir)
{
    char config[CATALOG_PATH_BYTES], *real = realpath(dir, NULL);
    const char *path = real ? real : dir, *slash = strrchr(path, '/');
    struct hub_name hub;
    const bool model = join(dir, "config.json", config) && access(config, F_OK) == 0;
    const bool is_hub = !model && hub_name_of_folder(slash ? slash + 1 : path, &hub);
    free(real);
    return is_hub ? walk_hub(w, dir, &hub, 0) : walk_folder(w, dir, 0, false);
}

/* ---- names ---- */

static int name_twins(const struct walk *w)
{
    struct catalog_named *list = calloc(w->count + 1, sizeof(*list));
    if (!list)
        return err_set(w->e, -ENOMEM, "no memory for the names of models");
    for (unsigned i = 0; i < w->count; i++)
        list[i] = (struct catalog_named){.path = w->list[i]->path,
                                         .id = w->list[i]->id,
                                         .id_bytes = sizeof(w->list[i]->id),
                                         .has_id = catalog_is_model(w->list[i]),
                                         .renames = w->list[i]->kind == CATALOG_FILE};
    catalog_name_twins(list, w->count);
    free(list);
    return 0;
}

int catalog_walk(const char *dir, int (*found)(void *arg, const struct catalog_entry *m, struct err *e),
                 void *arg, struct err *e)
{
    struct walk w = {.e = e};
    int r = walk_top(&w, dir);
    if (r == 0)
        r = name_twins(&w);
    for (unsigned i = 0; i < w.count; i++) {
        if (r == 0)
            r = found(arg, w.list[i], e);
        free(w.list[i]->path);
        free(w.list[i]->why);
        free(w.list[i]);
    }
    free(w.list);
    return r;
}

struct each {
    catalog_found_fn *found;
    void *arg;
};

static int found_any(void *arg, const struct catalog_entry *m, struct err *e)
{
    const struct each *to = arg;
    return to->found(to->arg, m->path, m->id, e);
}

int catalog_each(const char *dir, catalog_found_fn *found, void *arg, struct err *e)
{
    struct each to = {found, arg};
    return catalog_walk(dir, found_any, &to, e);
}
