/* store_sys.c - the system's calls unchanged; links below the directory are never followed. */
#include "store/store_sys.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int result(int r)
{
    return r < 0 ? -errno : r;
}

static int sys_open(void *arg, int dir, const char *path, int flags)
{
    (void)arg;
    /* The directory itself may be a link: its owner chose it. */
    int follow = dir == AT_FDCWD ? 0 : O_NOFOLLOW;
    return result(openat(dir, path, flags | O_CLOEXEC | follow, 0600));
}

static int sys_close(void *arg, int fd)
{
    (void)arg;
    return result(close(fd));
}

static ssize_t sys_pread(void *arg, int fd, void *bytes, size_t len, uint64_t at)
{
    (void)arg;
    ssize_t n = pread(fd, bytes, len, (off_t)at);
    return n < 0 ? -errno : n;
}

static ssize_t sys_pwrite(void *arg, int fd, const void *bytes, size_t len, uint64_t at)
{
    (void)arg;
    ssize_t n = pwrite(fd, bytes, len, (off_t)at);
    return n < 0 ? -errno : n;
}

static int sys_rename(void *arg, int dir, const char *from, const char *to)
{
    (void)arg;
    return result(renameat(dir, from, dir, to));
}

static int sys_unlink(void *arg, int dir, const char *path)
{
    (void)arg;
    return result(unlinkat(dir, path, 0));
}

static int sys_mkdir(void *arg, int dir, const char *path)
{
    (void)arg;
    return result(mkdirat(dir, path, 0700));
}

static int sys_stat(void *arg, int dir, const char *path, struct stat *ret)
{
    (void)arg;
    return result(fstatat(dir, path, ret, AT_SYMLINK_NOFOLLOW));
}

static int sys_fstat(void *arg, int fd, struct stat *ret)
{
    (void)arg;
    return result(fstat(fd, ret));
}

static int sys_touch(void *arg, int fd, uint64_t used_ns)
{
    (void)arg;
    struct timespec t = {(time_t)(used_ns / NS_PER_S), (long)(used_ns % NS_PER_S)};
    return result(futimens(fd, (struct timespec[]){t, t}));
}

static int sys_lock(void *arg, int fd)
{
    (void)arg;
    return result(flock(fd, LOCK_EX | LOCK_NB));
}

static int sys_space(void *arg, int dir, struct statvfs *ret)
{
    (void)arg;
    return result(fstatvfs(dir, ret));
}

static int sys_list(void *arg, int dir, const char *path, bool (*found)(void *arg, const char *name),
                    void *found_arg)
{
    (void)arg;
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    struct dirent *e;
    bool more = true;
    errno = 0;
    while (more && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            more = found(found_arg, e->d_name);
        errno = 0;
    }
    int r = -errno;
    closedir(d);
    return r;
}

const struct store_sys store_sys_real = {
    .open = sys_open,
    .close = sys_close,
    .pread = sys_pread,
    .pwrite = sys_pwrite,
    .rename = sys_rename,
    .unlink = sys_unlink,
    .mkdir = sys_mkdir,
    .stat = sys_stat,
    .fstat = sys_fstat,
    .touch = sys_touch,
    .lock = sys_lock,
    .space = sys_space,
    .list = sys_list,
};
