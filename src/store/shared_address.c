/* shared_address.c - the options' texts. */
#include "store/shared_address.h"

#include "store/shared_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int shared_address_parse(const char *text, struct shared_address *ret, struct err *e)
{
    static const char scheme[] = "file://";
    struct shared_address a = {0};
    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
        return err_set(e, -EINVAL, "--shared-cache: file:///DIR is expected");
    const char *path = text + sizeof(scheme) - 1;
    if (path[0] != '/' || path[1] == 0)
        return err_set(e, -EINVAL, "--shared-cache %s: file:// and an absolute path are expected", text);
    if (strlen(path) >= sizeof(a.path))
        return err_set(e, -EINVAL, "--shared-cache: the path is longer than %zu bytes", sizeof(a.path) - 1);
    snprintf(a.path, sizeof(a.path), "%s", path);
    *ret = a;
    return 0;
}

/* Returns the length, or -errno. */
static ssize_t read_secret(const char *file, char *ret, size_t room)
{
    struct stat s;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t len = fstat(fd, &s) < 0 ? -errno : !S_ISREG(s.st_mode) ? -EINVAL : s.st_mode & 07 ? -EACCES : 0;
    if (len == 0) {
        len = read(fd, ret, room);
        len = len < 0 ? -errno : len;
    }
    close(fd);
    return len;
}

int shared_address_secret(const char *file, struct shared_secret *ret, struct err *e)
{
    char bytes[SHARED_SECRET_MOST + 2];
    if (!file) {
        shared_secret_init(ret, NULL, 0);
        return 0;
    }
    ssize_t len = read_secret(file, bytes, sizeof(bytes));
    if (len == -EACCES)
        return err_set(e, -EACCES,
                       "--shared-cache-secret-file %s: everybody may read it (chmod o-rwx), or this "
                       "user may not",
                       file);
    if (len < 0)
        return err_set(e, (int)len, "--shared-cache-secret-file %s: %s", file, strerrordesc_np((int)-len));
    while (len > 0 && (bytes[len - 1] == '\n' || bytes[len - 1] == '\r'))
        len--;
    int r = 0;
    if (len < SHARED_SECRET_LEAST || len > SHARED_SECRET_MOST)
        r = err_set(
            e, -EINVAL,
            "--shared-cache-secret-file %s has %zd bytes: %d to %d are expected, as openssl rand -hex 32 "
            "writes them",
            file, len, SHARED_SECRET_LEAST, SHARED_SECRET_MOST);
    else
        shared_secret_init(ret, bytes, (size_t)len);
    explicit_bzero(bytes, sizeof(bytes));
    return r;
}
