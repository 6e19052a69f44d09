/* key_pipes.c - a list by path; the same path for users and administrators is one pipe. */
#include "host/key_pipes.h"

#include "api/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct key_pipe {
    struct key_pipe *next;
    char *path;
    size_t len;
    char bytes[];
};

static void free_pipe(struct key_pipe *k)
{
    explicit_bzero(k->bytes, k->len);
    free(k->path);
    free(k);
}

/* Reads until all writers have closed. Bytes read, or negative: -EFBIG when there are more than
 * `bytes_max`. */
static ssize_t read_all(int fd, char *bytes, size_t bytes_max)
{
    size_t len = 0;
    for (;;) {
        char more;
        ssize_t n = len < bytes_max ? read(fd, bytes + len, bytes_max - len) : read(fd, &more, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (ssize_t)len;
        if (len == bytes_max)
            return -EFBIG;
        len += (size_t)n;
    }
}

static ssize_t read_path(const char *path, char *bytes, size_t bytes_max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    ssize_t n = read_all(fd, bytes, bytes_max);
    close(fd);
    return n;
}

static struct key_pipe *pipe_of(const char *path, const char *bytes, size_t len)
{
    struct key_pipe *k = malloc(sizeof(*k) + len);
    if (!k)
        return NULL;
    *k = (struct key_pipe){.path = strdup(path), .len = len};
    memcpy(k->bytes, bytes, len);
    if (k->path)
        return k;
    free_pipe(k);
    return NULL;
}

static int add(struct key_pipes *p, const char *path, struct err *e)
{
    char *bytes = malloc(KEYRING_FILE_BYTES_MAX);
    ssize_t n = bytes ? read_path(path, bytes, KEYRING_FILE_BYTES_MAX) : -ENOMEM;
    struct key_pipe *k = n >= 0 ? pipe_of(path, bytes, (size_t)n) : NULL;
    if (bytes)
        explicit_bzero(bytes, KEYRING_FILE_BYTES_MAX);
    free(bytes);
    if (n == -EFBIG)
        return err_set(e, -EFBIG, "more than %zu bytes come from the pipe %s", KEYRING_FILE_BYTES_MAX, path);
    if (!k)
        return err_set(e, n < 0 ? (int)n : -ENOMEM, "%s: %s", path, strerror(n < 0 ? (int)-n : ENOMEM));
    k->next = p->first;
    p->first = k;
    return 0;
}

static bool is_pipe(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

int key_pipes_text(struct key_pipes *p, const char *path, struct slice *ret, struct err *e)
{
    struct key_pipe *k = p->first;
    while (k && strcmp(k->path, path) != 0)
        k = k->next;
    if (!k) {
        if (!is_pipe(path))
            return 0;
        int r = p->over ? err_set(e, -EINVAL, "%s is a pipe: pipes are read at the start only", path)
                        : add(p, path, e);
        if (r < 0)
            return r;
        k = p->first;
    }
    *ret = (struct slice){k->bytes, k->len};
    return 1;
}

void key_pipes_done(struct key_pipes *p)
{
    while (p->first) {
        struct key_pipe *k = p->first;
        p->first = k->next;
        free_pipe(k);
    }
}
