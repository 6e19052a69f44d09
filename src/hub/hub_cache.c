/* hub_cache.c - a folder counts as a model when its name is one; links are followed, for the cache
 * consists of them. */
#include "hub/hub_cache.h"

#include "hub/hub_variants.h"

#include "base/check.h"
#include "base/files/small_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static int join(char ret[HUB_PATH_BYTES], struct err *e, const char *a, const char *b, const char *c)
{
    int n = snprintf(ret, HUB_PATH_BYTES, "%s%s%s", a, b, c);
    return n >= 0 && n < HUB_PATH_BYTES ? 0 : err_set(e, -ENAMETOOLONG, "the path %.200s... is too long", a);
}

int hub_cache_dir(char ret[HUB_PATH_BYTES], struct err *e)
{
    const char *place;
    if ((place = variable("HF_HUB_CACHE")))
        return join(ret, e, place, "", "");
    if ((place = variable("HF_HOME")))
        return join(ret, e, place, "/hub", "");
    if ((place = variable("XDG_CACHE_HOME")))
        return join(ret, e, place, "/huggingface/hub", "");
    place = variable("HOME");
    return join(ret, e, place ? place : "", "/.cache/huggingface/hub", "");
}

int hub_cache_folder(const char *cache, const struct hub_name *n, char ret[HUB_PATH_BYTES], struct err *e)
{
    char name[HUB_ID_BYTES + 16];
    hub_name_folder(n, name);
    return join(ret, e, cache, "/", name);
}

bool hub_is_offline(void)
{
    const char *set = getenv("HF_HUB_OFFLINE");
    static const char *const yes[] = {"1", "true", "yes", "on"};
    for (size_t i = 0; set && i < COUNT_OF(yes); i++)
        if (strcasecmp(set, yes[i]) == 0)
            return true;
    return false;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    if (count >= 0)
        free(entries);
}

/* The content of refs/REVISION; false: it is missing, or is not a name. */
static bool read_ref(const char *folder, const char *revision, char ret[HUB_REVISION_BYTES], struct err *e)
{
    char path[HUB_PATH_BYTES], refs[HUB_PATH_BYTES];
    struct small_file f = {0};
    if (join(refs, e, folder, "/refs/", "") < 0 || join(path, e, refs, revision, "") < 0 ||
        small_file_read(path, HUB_REVISION_BYTES - 1, &f, NULL) < 0)
        return false;
    struct slice commit = slice_trim((struct slice){f.bytes, f.len}, SLICE_BLANKS);
    bool valid = hub_revision_is_valid(commit) && !memchr(commit.ptr, '/', commit.len);
    if (valid)
        snprintf(ret, HUB_REVISION_BYTES, "%.*s", SLICE_ARGS(commit));
    small_file_done(&f);
    return valid;
}

/* How many snapshots there are, and the first. */
static int count_snapshots(const char *folder, char first[HUB_REVISION_BYTES], struct err *e)
{
    char path[HUB_PATH_BYTES];
    struct dirent **entries;
    int r = join(path, e, folder, "/snapshots", "");
    int n = r < 0 ? r : scandir(path, &entries, visible, alphasort);
    if (n > 0)
        snprintf(first, HUB_REVISION_BYTES, "%.*s", HUB_REVISION_BYTES - 1, entries[0]->d_name);
    if (r == 0)
        free_entries(entries, n);
    return n < 0 ? 0 : n;
}

static int no_snapshot(const char *folder, const char *revision, int snapshots, struct err *e)
{
    const char *slash = strrchr(folder, '/');
    struct hub_name n = {.id = "ORG/NAME"};
    hub_name_of_folder(slash ? slash + 1 : folder, &n);
    if (snapshots == 0)
        return err_set(
            e, -ENODATA,
            "%s is in the hub's cache, but no revision is complete: plateau pull %s fetches the rest", n.id,
            n.id);
    return err_set(e, -ENODATA,
                   "the hub's cache has no complete revision %s of %s, but others: %d in %s/snapshots",
                   revision, n.id, snapshots, folder);
}

int hub_cache_snapshot(const char *folder, const char *revision, char ret[HUB_PATH_BYTES], struct err *e)
{
    char commit[HUB_REVISION_BYTES], first[HUB_REVISION_BYTES], head[HUB_PATH_BYTES], path[HUB_PATH_BYTES];
    if (!is_directory(folder))
        return err_set(e, -ENOENT, "there is no folder %s", folder);
    int snapshots = count_snapshots(folder, first, e);
    if (!read_ref(folder, revision, commit, e)) {
        bool only = snapshots == 1 && strcmp(revision, "main") == 0;
        if (!only && strchr(revision, '/'))
            return no_snapshot(folder, revision, snapshots, e);
        snprintf(commit, sizeof(commit), "%s", only ? first : revision);
    }
    int r = join(head, e, folder, "/snapshots/", "");
    if (r == 0)
        r = join(path, e, head, commit, "");
    if (r < 0)
        return r;
    if (!is_directory(path))
        return no_snapshot(folder, revision, snapshots, e);
    memcpy(ret, path, HUB_PATH_BYTES);
    return 0;
}

/* The last name of a path, without the slashes around it. */
static struct slice last_part(struct slice path)
{
    while (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    size_t from = path.len;
    while (from > 0 && path.ptr[from - 1] != '/')
        from--;
    return slice_sub(path, from, path.len);
}

static struct slice above(struct slice path)
{
    const struct slice last = last_part(path);
    return (struct slice){path.ptr, (size_t)(last.ptr - path.ptr)};
}

/* Whether `path` is models--ORG--NAME/snapshots/COMMIT. */
static bool is_snapshot(struct slice path, struct hub_name *ret)
{
    char folder[HUB_ID_BYTES + 16];
    const struct slice name = last_part(above(above(path)));
    snprintf(folder, sizeof(folder), "%.*s", (int)MIN_OF(name.len, sizeof(folder) - 1), name.ptr);
    return slice_eq(last_part(above(path)), SLICE("snapshots")) && hub_name_of_folder(folder, ret);
}

/* Finds the GGUF model of `file`; with "", the only one of a snapshot that has nothing else. */
static void find_quant(const char *snapshot, const char *file, struct hub_name *ret)
{
    struct hub_variants g;
    if (hub_variants_of_snapshot(snapshot, &g, NULL) == 0)
        for (uint32_t i = 0; i < g.count; i++)
            if (file[0] ? hub_variant_has(&g.list[i], file) : g.count == 1 && !g.safetensors)
                memcpy(ret->quant, g.list[i].quant, sizeof(ret->quant));
    hub_variants_done(&g);
}

bool hub_cache_name_of(const char *path, struct hub_name *ret)
{
    char folder[HUB_ID_BYTES + 16], snapshot[HUB_PATH_BYTES];
    struct slice s = slice_of(path);
    const struct slice last = last_part(s);
    snprintf(folder, sizeof(folder), "%.*s", (int)MIN_OF(last.len, sizeof(folder) - 1), last.ptr);
    if (hub_name_of_folder(folder, ret))
        return true;
    for (unsigned depth = 0; depth <= HUB_FILE_DEPTH_MAX && s.len > 0; depth++, s = above(s)) {
        if (!is_snapshot(s, ret))
            continue;
        const size_t head = (size_t)(last_part(s).ptr - path) + last_part(s).len;
        snprintf(snapshot, sizeof(snapshot), "%.*s", (int)head, path);
        find_quant(snapshot, path + head + strspn(path + head, "/"), ret);
        return true;
    }
    return false;
}

struct find {
    const char *cache, *name;
    struct hub_name first;
    unsigned count;
};

static int compare(struct find *f, const char *folder, struct err *e)
{
    char path[HUB_PATH_BYTES];
    struct hub_name n;
    if (!hub_name_of_folder(folder, &n) || strcmp(hub_name_last(&n), f->name) != 0 ||
        join(path, e, f->cache, "/", folder) < 0 || !is_directory(path))
        return 0;
    if (f->count++ == 0)
        f->first = n;
    else
        return err_set(e, -ENOTUNIQ,
                       "%s is the name of several models in the hub's cache, %s and %s: name one", f->name,
                       f->first.id, n.id);
    return 0;
}

int hub_cache_find(const char *cache, const char *name, struct hub_name *ret, struct err *e)
{
    struct find f = {.cache = cache, .name = name};
    struct dirent **entries;
    int n = scandir(cache, &entries, visible, alphasort), r = 0;
    if (n < 0)
        return err_set(e, -ENOENT, "the hub's cache %s cannot be read: %s", cache, strerror(errno));
    if (n > HUB_CACHE_MODELS_MAX)
        r = err_set(e, -E2BIG, "the hub's cache %s has more than %d entries", cache, HUB_CACHE_MODELS_MAX);
    for (int i = 0; i < n && r == 0; i++)
        r = compare(&f, entries[i]->d_name, e);
    free_entries(entries, n);
    if (r == 0 && f.count == 0)
        r = err_set(e, -ENOENT, "the hub's cache has no %s", name);
    if (r == 0)
        *ret = f.first;
    return r;
}

int hub_cache_find_name(const char *cache, const char *text, struct hub_name *ret, struct err *e)
{
    char name[HUB_ID_BYTES];
    const size_t len = strcspn(text, ":");
    snprintf(name, sizeof(name), "%.*s", (int)MIN_OF(len, sizeof(name) - 1), text);
    int r = hub_cache_find(cache, name, ret, e);
    if (r == 0 && text[len])
        snprintf(ret->quant, sizeof(ret->quant), "%s", text + len + 1);
    return r;
}
