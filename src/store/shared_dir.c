/* shared_dir.c - files of the shared tier. Each thread has its own descriptor of the directory, and opens it
 * again after a failure: a file system that was mounted anew is found. */
#include "store/shared_dir.h"

#include "store/shared_sweep.h"
#include "store/shared_value.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define RENEW_NS   (5 * NS_PER_S)
#define DEAD_S     60
#define TOUCH_S    60 /* a use within this time of the last one is not noted */
#define QUERY_MAX  16
#define PATH_BYTES 4096

struct shared_dir {
    char path[PATH_BYTES];
    struct shared_dir_opts opts;
    mode_t mode; /* permissions of the root */
    int fds[SHARED_THREADS];
    char *buffers[SHARED_THREADS]; /* [SHARED_VALUE_BYTES + 1] */
    atomic_ullong begun;           /* makes names under tmp/ */
    struct shared_sweep sweep;     /* its own lock */
};

static int result(int r)
{
    return r < 0 ? -errno : r;
}

/* ---- the directory ---- */

/* 0, or -EACCES: not this user's alone, and it has to be. */
static int check_owner(const struct shared_dir *d, const struct stat *s)
{
    if (!S_ISDIR(s->st_mode))
        return -ENOTDIR;
    return d->opts.own && (s->st_uid != geteuid() || (s->st_mode & 077)) ? -EACCES : 0;
}

static int dir_ready(void *arg, uint32_t thread)
{
    struct shared_dir *d = arg;
    struct stat s;
    ASSERT(thread < SHARED_THREADS);
    if (d->fds[thread] >= 0)
        close(d->fds[thread]);
    d->fds[thread] = result(open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (d->fds[thread] < 0)
        return d->fds[thread];
    int r = fstat(d->fds[thread], &s) < 0 ? -errno : check_owner(d, &s);
    if (r < 0) {
        close(d->fds[thread]);
        d->fds[thread] = -1;
    }
    return r;
}

static int fd_of(struct shared_dir *d, uint32_t thread)
{
    if (d->fds[thread] < 0) {
        int r = dir_ready(d, thread);
        if (r < 0)
            return r;
    }
    return d->fds[thread];
}

/* ---- values ---- */

static void path_of(const struct prefix_key *name, char ret[STORE_PATH_BYTES])
{
    store_file_path(name, TIER_PAGE, ret);
}

/* Reads a regular file of at most SHARED_VALUE_BYTES. Returns its length; 0: it is not a value. */
static ssize_t read_file(int fd, char *ret, struct stat *s)
{
    size_t len = 0;
    if (fstat(fd, s) < 0)
        return -errno;
    if (!S_ISREG(s->st_mode) || s->st_size <= 0 || s->st_size > (off_t)SHARED_VALUE_BYTES)
        return 0;
    while (len < (size_t)s->st_size) {
        ssize_t n = pread(fd, ret + len, (size_t)s->st_size - len, (off_t)len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static int get_one(struct shared_dir *d, uint32_t thread, int dir, const struct prefix_key *name, uint32_t i,
                   shared_found_fn *found, void *found_arg)
{
    char path[STORE_PATH_BYTES];
    struct stat s;
    path_of(name, path);
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno == ELOOP ? (found(found_arg, i, "", 0), 0) : -errno;
    ssize_t len = read_file(fd, d->buffers[thread], &s);
    if (len > 0 && s.st_mtim.tv_sec + TOUCH_S < (time_t)clock_wall_s())
        (void)futimens(fd, NULL);
    close(fd);
    if (len < 0)
        return (int)len;
    found(found_arg, i, d->buffers[thread], (size_t)len);
    return 0;
}

static int dir_get(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count,
                   shared_found_fn *found, void *found_arg)
{
    struct shared_dir *d = arg;
    int dir = fd_of(d, thread), r = dir < 0 ? dir : 0;
    ASSERT(count <= SHARED_BATCH_MAX);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = get_one(d, thread, dir, &names[i], i, found, found_arg);
    return r;
}

static int dir_has(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count, bool *ret)
{
    struct shared_dir *d = arg;
    int dir = fd_of(d, thread), r = dir < 0 ? dir : 0;
    ASSERT(count <= SHARED_QUERY_MAX);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        char path[STORE_PATH_BYTES];
        struct stat s;
        path_of(&names[i], path);
        ret[i] = fstatat(dir, path, &s, AT_SYMLINK_NOFOLLOW) == 0;
        r = ret[i] || errno == ENOENT ? 0 : -errno;
    }
    return r;
}

static int write_all(int fd, const char *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = pwrite(fd, bytes + at, len - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}

static int make_dir(const struct shared_dir *d, int dir, const char *path)
{
    if (mkdirat(dir, path, d->mode) < 0)
        return errno == EEXIST ? 0 : -errno;
    /* The umask is not the directory's. Another writer may have put a link in its place. */
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = result(fchmod(fd, d->mode));
    close(fd);
    return r;
}

static int open_new(const struct shared_dir *d, int dir, const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, fd = openat(dir, path, flags, d->mode & 0666);
    if (fd < 0 && errno == ENOENT) {
        int r = make_dir(d, dir, SHARED_TMP);
        if (r < 0)
            return r;
        fd = openat(dir, path, flags, d->mode & 0666);
    }
    if (fd < 0)
        return -errno;
    (void)fchmod(fd, d->mode & 0666);
    return fd;
}

static int rename_into_place(const struct shared_dir *d, int dir, const char *from, const char *path)
{
    char top[2] = {path[0], 0}, leaf[4] = {path[0], '/', path[2], 0};
    if (renameat(dir, from, dir, path) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    int r = make_dir(d, dir, top);
    if (r == 0)
        r = make_dir(d, dir, leaf);
    return r == 0 ? result(renameat(dir, from, dir, path)) : r;
}

/* A network file system may say only at the close that it has no space. */
static int write_new(const struct shared_dir *d, int dir, const char *path, const char *bytes, size_t len)
{
    int fd = open_new(d, dir, path);
    if (fd < 0)
        return fd;
    int r = write_all(fd, bytes, len), closed = result(close(fd));
    return r == 0 ? closed : r;
}

static int dir_put(void *arg, uint32_t thread, const struct prefix_key *name, const char *value, size_t len)
{
    struct shared_dir *d = arg;
    char path[STORE_PATH_BYTES], aside[64];
    int dir = fd_of(d, thread);
    if (dir < 0)
        return dir;
    if (!shared_sweep_allows(&d->sweep, len))
        return -EDQUOT;
    snprintf(aside, sizeof(aside), SHARED_TMP "/%s-%llu", d->sweep.id, (ull)atomic_fetch_add(&d->begun, 1));
    path_of(name, path);
    int r = write_new(d, dir, aside, value, len);
    if (r == 0)
        r = rename_into_place(d, dir, aside, path);
    if (r < 0)
        (void)unlinkat(dir, aside, 0);
    else
        shared_sweep_wrote(&d->sweep, len);
    return r;
}

static void dir_drop(void *arg, uint32_t thread, const struct prefix_key *name)
{
    struct shared_dir *d = arg;
    char path[STORE_PATH_BYTES];
    int dir = fd_of(d, thread);
    path_of(name, path);
    if (dir >= 0)
        (void)unlinkat(dir, path, 0);
}

/* ---- the others ---- */

static uint64_t dir_tend(void *arg, uint32_t thread)
{
    struct shared_dir *d = arg;
    int dir = fd_of(d, thread);
    if (dir >= 0 && make_dir(d, dir, SHARED_TMP) == 0 && make_dir(d, dir, SHARED_CLIENTS) == 0)
        shared_sweep_tend(&d->sweep, dir, d->mode & 0666);
    return d->opts.renew_ns;
}

static uint64_t dir_bytes(void *arg)
{
    struct shared_dir *d = arg;
    return shared_sweep_bytes(&d->sweep);
}

static void dir_close(void *arg)
{
    struct shared_dir *d = arg;
    if (d->fds[0] >= 0)
        shared_sweep_leave(&d->sweep, d->fds[0]);
    for (uint32_t i = 0; i < SHARED_THREADS; i++)
        if (d->fds[i] >= 0)
            close(d->fds[i]);
    shared_sweep_done(&d->sweep);
}

size_t shared_dir_arena_bytes(void)
{
    return sizeof(struct shared_dir) + SHARED_THREADS * (SHARED_VALUE_BYTES + 64) + 64;
}

int shared_dir_create(struct arena *a, const struct shared_dir_opts *opts, struct shared_backend *ret,
                      struct err *e)
{
    struct stat s;
    if (strlen(opts->path) >= PATH_BYTES)
        return err_set(e, -EINVAL, "--shared-cache: the path is longer than %d bytes", PATH_BYTES - 1);
    struct shared_dir *d = ARENA_NEW(a, struct shared_dir);
    if (!d)
        return -ENOMEM;
    d->opts = *opts;
    d->opts.renew_ns = opts->renew_ns ? opts->renew_ns : RENEW_NS;
    d->opts.dead_s = opts->dead_s ? opts->dead_s : DEAD_S;
    snprintf(d->path, sizeof(d->path), "%s", opts->path);
    for (uint32_t i = 0; i < SHARED_THREADS; i++) {
        d->fds[i] = -1;
        d->buffers[i] = arena_alloc(a, SHARED_VALUE_BYTES);
        if (!d->buffers[i])
            return -ENOMEM;
    }
    if (mkdir(d->path, 0700) < 0 && errno != EEXIST)
        return err_set(e, -errno, "--shared-cache: %s cannot be made: %s", d->path, strerrordesc_np(errno));
    int r = stat(d->path, &s) < 0 ? -errno : check_owner(d, &s);
    if (r == -EACCES)
        return err_set(e, r,
                       "--shared-cache: without --shared-cache-secret-file %s must belong to this user, with "
                       "mode 0700: others could read prompts there, or change answers",
                       d->path);
    if (r < 0)
        return err_set(e, r, "--shared-cache: %s cannot be used: %s", d->path, strerrordesc_np(-r));
    d->mode = s.st_mode & 0777;
    shared_sweep_init(&d->sweep, d->opts.limit_bytes, d->opts.dead_s);
    *ret = (struct shared_backend){.arg = d,
                                   .query_max = QUERY_MAX,
                                   .ready = dir_ready,
                                   .get = dir_get,
                                   .put = dir_put,
                                   .has = dir_has,
                                   .drop = dir_drop,
                                   .tend = dir_tend,
                                   .bytes = dir_bytes,
                                   .close = dir_close};
    return 0;
}
