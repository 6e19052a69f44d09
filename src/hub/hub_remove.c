/* hub_remove.c - walks by descriptors: a directory is opened without following links, so a link that appears
 * meanwhile leads nowhere. Counting is the same walk. */
#include "hub/hub_remove.h"

#include "hub/hub_cache.h"
#include "hub/hub_name.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32

struct walk {
    bool removes;
    uint64_t bytes;
};

static int walk_directory(struct walk *w, int parent, const char *name, unsigned depth);

static int walk_entry(struct walk *w, int fd, const char *name, unsigned depth)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode)) {
        int r = walk_directory(w, fd, name, depth + 1);
        return r == 0 && w->removes && unlinkat(fd, name, AT_REMOVEDIR) < 0 ? -errno : r;
    }
    if (w->removes && unlinkat(fd, name, 0) < 0)
        return -errno;
    w->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return 0;
}

static int walk_directory(struct walk *w, int parent, const char *name, unsigned depth)
{
    int r = 0, fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    for (const struct dirent *f; r == 0 && (f = readdir(d));)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            r = depth < DEPTH_MAX ? walk_entry(w, fd, f->d_name, depth) : -E2BIG;
    closedir(d);
    return r;
}

void hub_remove_tree(const char *dir)
{
    struct walk w = {.removes = true};
    if (walk_directory(&w, AT_FDCWD, dir, 0) == 0)
        rmdir(dir);
}

static int start(const char *cache, const struct hub_name *n, struct walk *w, struct err *e)
{
    char name[HUB_ID_BYTES + 16];
    struct stat st;
    int r = 0, fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool whole = true;
    char folder[HUB_PATH_BYTES];
    hub_name_folder(n, name);
    if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = err_set(e, -ENOENT, "%s is not in the hub's cache (%s)", n->id, cache);
    else if (S_ISLNK(st.st_mode))
        r = err_set(e, -ELOOP, "%s/%s is a link: remove by hand what it leads to", cache, name);
    else if (n->quant[0] && (r = hub_cache_folder(cache, n, folder, e)) == 0 &&
             (r = hub_remove_variant(folder, n, w->removes, &w->bytes, &whole)) < 0)
        err_set(e, r, r == -ENOENT ? "%s/%s has no GGUF model %s" : "%s/%s: %s: %s", cache, name, n->quant,
                strerror(-r));
    else if (r == 0 && whole && (r = walk_entry(w, fd, name, 0)) < 0)
        err_set(e, r, "%s/%s: %s", cache, name, strerror(-r));
    if (fd >= 0)
        close(fd);
    return r;
}

int hub_remove_bytes(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e)
{
    struct walk w = {.removes = false};
    int r = start(cache, n, &w, e);
    if (r == 0)
        *ret = w.bytes;
    return r;
}

int hub_remove(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e)
{
    struct walk w = {.removes = true};
    int r = start(cache, n, &w, e);
    *ret = w.bytes;
    return r;
}
