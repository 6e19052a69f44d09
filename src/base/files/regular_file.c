/* regular_file.c - O_NONBLOCK so that opening a pipe returns; for a regular file the flag means nothing. */
#include "base/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode)   ? "a pipe"
           : S_ISDIR(mode)  ? "a directory"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a device"
           : S_ISSOCK(mode) ? "a socket"
                            : "something else";
}

static int look(int fd, const char *path, struct regular_file *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "%s is %s, not a regular file", path, kind_of(st.st_mode));
    *ret = (struct regular_file){
        .fd = fd, .mode = st.st_mode, .bytes = (uint64_t)st.st_size, .changed = st.st_mtim};
    return 0;
}

static int open_with(int dir, const char *name, int flags, const char *path, struct regular_file *ret,
                     struct err *e)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (fd < 0 && errno == ENXIO) /* error of opening a socket */
        return err_set(e, -EINVAL, "%s is a socket or a device, not a regular file", path);
    if (fd < 0)
        return err_set(e, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    int r = look(fd, path, ret, e);
    if (r < 0)
        close(fd);
    return r;
}

int regular_file_open_at(int dir, const char *name, const char *path, struct regular_file *ret, struct err *e)
{
    return open_with(dir, name, 0, path, ret, e);
}

int regular_file_open_own(const char *path, struct regular_file *ret, struct err *e)
{
    return open_with(AT_FDCWD, path, O_NOFOLLOW, path, ret, e);
}

int regular_file_open(const char *path, struct regular_file *ret, struct err *e)
{
    return regular_file_open_at(AT_FDCWD, path, path, ret, e);
}

void regular_file_close(struct regular_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->inside);
    *f = REGULAR_FILE_NONE;
}

static int read_plain(const struct regular_file *f, uint64_t at, void *into, size_t len, struct err *e)
{
    char *to = into;
    for (size_t have = 0; have < len;) {
        ssize_t n = pread(f->fd, to + have, len - have, (off_t)(at + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, -errno, "cannot be read: %s", strerror(errno));
        if (n == 0)
            return err_set(e, -ESTALE, "became shorter while it was read: it ends before byte %llu",
                           (unsigned long long)(at + len));
        have += (size_t)n;
    }
    return 0;
}

/* The part that has byte `at`. */
static const struct file_part *part_of(const struct file_parts *in, uint64_t at)
{
    for (uint32_t i = 0; i < in->count; i++)
        if (at >= in->parts[i].from && at - in->parts[i].from < in->parts[i].bytes)
            return &in->parts[i];
    return NULL;
}

int regular_file_read(const struct regular_file *f, uint64_t at, void *into, size_t len, struct err *e)
{
    char *to = into;
    if (!f->inside)
        return read_plain(f, at, into, len, e);
    while (len > 0) {
        const struct file_part *p = part_of(f->inside, at);
        if (!p)
            return err_set(e, -ENODATA, "bytes from %llu on are not in the packed file",
                           (unsigned long long)at);
        const uint64_t skip = at - p->from, left = p->bytes - skip;
        const size_t n = left < len ? (size_t)left : len;
        int r = read_plain(f, p->at + skip, to, n, e);
        if (r < 0)
            return r;
        at += n;
        to += n;
        len -= n;
    }
    return 0;
}

int regular_file_check(const struct regular_file *f, struct err *e)
{
    struct stat st;
    const uint64_t bytes = f->inside ? f->inside->file_bytes : f->bytes;
    if (fstat(f->fd, &st) < 0)
        return err_set(e, -errno, "%s", strerror(errno));
    if ((uint64_t)st.st_size < bytes)
        return err_set(e, -ESTALE, "became shorter while it was read: it has %llu bytes of %llu",
                       (unsigned long long)st.st_size, (unsigned long long)bytes);
    bool same = (uint64_t)st.st_size == bytes && st.st_mtim.tv_sec == f->changed.tv_sec &&
                st.st_mtim.tv_nsec == f->changed.tv_nsec;
    return same ? 0 : err_set(e, -ESTALE, "was changed while it was read");
}

void regular_file_ahead(const struct regular_file *f, uint64_t at, uint64_t len)
{
    if (len > 0 && !f->inside)
        (void)posix_fadvise(f->fd, (off_t)at, (off_t)len, POSIX_FADV_WILLNEED);
}

void regular_file_drop(const struct regular_file *f, uint64_t at, uint64_t len)
{
    if (len > 0 && !f->inside)
        (void)posix_fadvise(f->fd, (off_t)at, (off_t)len, POSIX_FADV_DONTNEED);
}
