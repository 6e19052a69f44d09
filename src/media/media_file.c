/* media_file.c - files of this machine that the operator lets clients name.
 *
 * The kernel keeps the path below the directory (openat2, RESOLVE_BENEATH): no "..", no link and no directory
 * that is moved meanwhile leads out of it. The first open takes the path only (O_PATH), so that no device and
 * no pipe is opened to learn its type. */
#include "media/media_task.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The path of file:///path or file://localhost/path, with its escapes resolved. False: another form, a zero
 * byte, or too long. */
static bool read_path(struct slice url, char ret[PATH_MAX])
{
    struct slice heads[] = {SLICE("file:///"), SLICE("file://localhost/")};
    size_t len = 0, i = 0;
    for (size_t k = 0; k < COUNT_OF(heads) && i == 0; k++)
        if (slice_starts_any_case(url, heads[k]))
            i = heads[k].len - 1;
    if (i == 0)
        return false;
    while (i < url.len && len < PATH_MAX - 1) {
        int high = -1, low = -1;
        if (url.ptr[i] == '%' && i + 2 < url.len) {
            high = slice_hex(url.ptr[i + 1]);
            low = slice_hex(url.ptr[i + 2]);
        }
        bool escaped = high >= 0 && low >= 0;
        char c = escaped ? (char)(high * 16 + low) : url.ptr[i];
        if (c == 0)
            return false;
        ret[len++] = c;
        i += escaped ? 3 : 1;
    }
    ret[len] = 0;
    return i == url.len;
}

/* The rest of the path after the directory; NULL: the path is not below it. */
static const char *behind(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    while (len > 0 && dir[len - 1] == '/')
        len--;
    if (strncmp(path, dir, len) != 0 || path[len] != '/')
        return NULL;
    path += len;
    while (*path == '/')
        path++;
    return *path ? path : NULL;
}

static int open_below(int dir, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    if (flags & O_PATH)
        how.flags = (uint64_t)(flags | O_CLOEXEC);
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

int media_file_open(const struct media *m, struct slice url, struct err *e)
{
    char path[PATH_MAX];
    if (!read_path(url, path))
        return err_set(e, -EINVAL, "the URL of a file is file:///directory/name");
    const char *rest = behind(path, m->dir_path);
    if (!rest)
        rest = behind(path, m->opts.dir);
    if (!rest)
        return err_set(e, -EACCES, "the file is not below the directory that clients may read (--media-dir)");
    int fd = open_below(m->dir, rest, O_PATH);
    bool regular = fd >= 0 && is_regular(fd);
    if (fd >= 0) {
        close(fd);
        fd = regular ? open_below(m->dir, rest, O_RDONLY) : -EINVAL;
    }
    if (fd >= 0 && !is_regular(fd)) {
        close(fd);
        fd = -EINVAL;
    }
    if (fd == -EXDEV || fd == -ELOOP)
        return err_set(e, -EACCES,
                       "the file's path leads out of the directory that clients may read (--media-dir)");
    if (fd == -EINVAL)
        return err_set(e, -EINVAL, "the path names no regular file");
    return fd < 0 ? err_set(e, -EACCES, "the file cannot be read: %s", strerror(-fd)) : fd;
}

int media_file_check(int fd, size_t bytes_max, size_t *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -EINVAL, "the file cannot be read: %s", strerror(errno));
    if (st.st_size < 0 || (uint64_t)st.st_size > bytes_max)
        return err_set(e, -E2BIG, "the file has %lld bytes; at most %zu are read (--max-media-bytes)",
                       (long long)st.st_size, bytes_max);
    if (st.st_size == 0)
        return err_set(e, -EINVAL, "the file is empty");
    if (ret)
        *ret = (size_t)st.st_size;
    return 0;
}

int media_file_read(int fd, size_t bytes_max, const struct charge *charge, struct media_bytes *ret,
                    struct err *e)
{
    size_t bytes;
    int r = media_file_check(fd, bytes_max, &bytes, e);
    if (r < 0)
        return r;
    if (media_bytes_reserve(ret, bytes, charge) < 0)
        return -ENOMEM;
    while (ret->len < bytes) {
        ssize_t n = read(fd, ret->ptr + ret->len, bytes - ret->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, -EINVAL, "the file cannot be read: %s",
                           n < 0 ? strerror(errno) : "it became shorter");
        ret->len += (size_t)n;
    }
    return 0;
}
