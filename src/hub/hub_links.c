/* hub_links.c - names from outside are walked part by part with O_NOFOLLOW, so that no name and no link
 * leads out of the snapshot. */
#include "hub/hub_links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_DIRECTORY (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/* Makes a path and all that is missing above it. */
static int make_path(const char *path, struct err *e)
{
    char part[HUB_PATH_BYTES];
    if (snprintf(part, sizeof(part), "%s", path) >= HUB_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the path %.100s... is too long", path);
    for (char *c = part + 1;; c++) {
        if (*c && *c != '/')
            continue;
        char end = *c;
        *c = 0;
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return err_set(e, -errno, "%s cannot be made: %s", part, strerror(errno));
        *c = end;
        if (!end)
            return 0;
    }
}

static int make_below(const char *head, const char *tail, struct err *e)
{
    char path[HUB_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", head, tail);
    return make_path(path, e);
}

static const char *const parts[] = {"blobs", "refs", "snapshots"};

int hub_links_make_folder(const char *cache, const struct hub_name *n, char folder[HUB_PATH_BYTES],
                          struct err *e)
{
    int r = hub_cache_folder(cache, n, folder, e);
    for (int i = 0; i < 3 && r == 0; i++)
        r = make_below(folder, parts[i], e);
    return r;
}

void hub_links_drop_empty(const char *folder)
{
    char path[HUB_PATH_BYTES + 64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, parts[i]);
        rmdir(path);
    }
    rmdir(folder);
}

int hub_links_lock(const char *cache, const struct hub_name *n, struct err *e)
{
    char name[HUB_ID_BYTES + 16], path[2 * HUB_PATH_BYTES];
    hub_name_folder(n, name);
    snprintf(path, sizeof(path), ".locks/%s", name);
    int r = make_below(cache, path, e);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "%s/.locks/%s/plateau.lock", cache, name);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return err_set(e, -EBUSY, "another process is pulling %s into this cache", n->id);
}

/* The directory of the last part of `name` below `fd`, which is closed; `*last` is that part. */
static int walk(int fd, const char *name, const char **last)
{
    for (const char *slash; fd >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        char part[256];
        snprintf(part, sizeof(part), "%.*s", (int)(slash - name), name);
        int next = mkdirat(fd, part, 0777) < 0 && errno != EEXIST
                       ? -1
                       : openat(fd, part, OPEN_DIRECTORY | O_NOFOLLOW);
        int error = errno;
        close(fd);
        errno = error;
        fd = next;
    }
    *last = name;
    return fd;
}

static int open_below(const char *folder, const char *tail)
{
    char path[HUB_PATH_BYTES + 128];
    snprintf(path, sizeof(path), "%s/%s", folder, tail);
    return open(path, OPEN_DIRECTORY);
}

static unsigned depth_of(const char *name)
{
    unsigned depth = 0;
    for (; *name; name++)
        depth += *name == '/';
    return depth;
}

/* A rename replaces an older link in one step. */
static int link_in(int fd, const char *name, const char *target)
{
    static const char aside[] = ".plateau.link";
    if (unlinkat(fd, aside, 0) < 0 && errno != ENOENT)
        return -errno;
    if (symlinkat(target, fd, aside) < 0)
        return -errno;
    if (renameat(fd, aside, fd, name) == 0)
        return 0;
    int r = -errno;
    unlinkat(fd, aside, 0);
    return r;
}

int hub_links_add(const char *folder, const char *commit, const char *name, const char *etag, struct err *e)
{
    char target[256] = "../../";
    const char *last;
    int r = 0, snapshots = open_below(folder, "snapshots");
    if (snapshots >= 0 && mkdirat(snapshots, commit, 0777) < 0 && errno != EEXIST)
        r = -errno;
    int top = snapshots < 0 || r < 0 ? -1 : openat(snapshots, commit, OPEN_DIRECTORY | O_NOFOLLOW);
    int fd = walk(top, name, &last);
    if (fd < 0 && r == 0)
        r = -errno;
    if (snapshots >= 0)
        close(snapshots);
    for (unsigned i = depth_of(name); i > 0; i--)
        strcat(target, "../");
    strcat(target, "blobs/");
    strncat(target, etag, 64);
    if (r == 0)
        r = link_in(fd, last, target);
    if (fd >= 0)
        close(fd);
    return r < 0 ? err_set(e, r, "%s/snapshots/%s/%s: %s", folder, commit, name, strerror(-r)) : 0;
}

static int write_ref(int fd, const char *name, const char *commit)
{
    static const char aside[] = ".plateau.ref";
    int at = openat(fd, aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (at < 0)
        return -errno;
    ssize_t n = write(at, commit, strlen(commit));
    int r = n == (ssize_t)strlen(commit) && fsync(at) == 0 ? 0 : n < 0 ? -errno : -EIO;
    close(at);
    if (r == 0 && renameat(fd, aside, fd, name) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(fd, aside, 0);
    return r;
}

int hub_links_set_ref(const char *folder, const char *revision, const char *commit, struct err *e)
{
    const char *last;
    int fd = walk(open_below(folder, "refs"), revision, &last);
    int r = fd < 0 ? -errno : write_ref(fd, last, commit);
    if (fd >= 0)
        close(fd);
    return r < 0 ? err_set(e, r, "%s/refs/%s: %s", folder, revision, strerror(-r)) : 0;
}
