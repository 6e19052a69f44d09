/* small_file.c - the size is asked for first, so a file that grows meanwhile is cut and one that shrinks is short. */
#include "base/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_all(int fd, char *bytes, size_t len)
{
    size_t have = 0;
    while (have < len) {
        ssize_t n = read(fd, bytes + have, len - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

static int read_open(int fd, const char *path, size_t bytes_max, struct small_file *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "%s is not a file", path);
    if ((uint64_t)st.st_size > bytes_max)
        return err_set(e, -EFBIG, "%s is larger than %zu bytes", path, bytes_max);
    struct small_file f = {.bytes = malloc((size_t)st.st_size + 1), .mode = st.st_mode};
    if (!f.bytes)
        return err_set(e, -ENOMEM, "%s: no memory for it", path);
    ssize_t n = read_all(fd, f.bytes, (size_t)st.st_size);
    if (n < 0) {
        free(f.bytes);
        return err_set(e, (int)n, "%s: %s", path, strerror((int)-n));
    }
    f.len = (size_t)n;
    f.bytes[f.len] = 0;
    *ret = f;
    return 0;
}

int small_file_read(const char *path, size_t bytes_max, struct small_file *ret, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    int r = read_open(fd, path, bytes_max, ret, e);
    close(fd);
    return r;
}

void small_file_done(struct small_file *f)
{
    if (f->bytes)
        explicit_bzero(f->bytes, f->len);
    free(f->bytes);
    *f = (struct small_file){0};
}
