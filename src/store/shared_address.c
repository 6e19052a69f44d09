/* shared_address.c - the options' texts. */
#include "store/shared_address.h"

#include "store/shared_value.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int parse_file(const char *path, struct shared_address *ret, struct err *e)
{
    if (path[0] != '/' || path[1] == 0)
        return err_set(e, -EINVAL, "--shared-cache file://%s: file:// and an absolute path are expected",
                       path);
    if (strlen(path) >= sizeof(ret->path))
        return err_set(e, -EINVAL, "--shared-cache: the path is longer than %zu bytes",
                       sizeof(ret->path) - 1);
    snprintf(ret->path, sizeof(ret->path), "%s", path);
    return 0;
}

/* Decodes %XX. False: there is no room, or no digits, or a zero byte. */
static bool decode(struct slice from, char *ret, size_t room)
{
    size_t len = 0;
    for (size_t i = 0; i < from.len; i++, len++) {
        int high = -1, low = -1;
        if (len + 1 >= room)
            return false;
        ret[len] = from.ptr[i];
        if (from.ptr[i] != '%')
            continue;
        if (i + 2 < from.len) {
            high = slice_hex(from.ptr[i + 1]);
            low = slice_hex(from.ptr[i + 2]);
        }
        if (high < 0 || low < 0 || high + low == 0)
            return false;
        ret[len] = (char)(high * 16 + low);
        i += 2;
    }
    ret[len] = 0;
    return true;
}

/* Reads digits after the character at *at. False: no digits, or the number is larger than `most`. */
static bool read_number(const char **at, uint32_t most, uint32_t *ret)
{
    const char *digits = *at + 1;
    char *end = NULL;
    unsigned long n = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : 0;
    ASSERT(**at == ':' || **at == '/');
    if (!end || n > most)
        return false;
    *at = end;
    *ret = (uint32_t)n;
    return true;
}

/* HOST, or [HOST] of IPv6. Returns its end; NULL: that is not a host. */
static const char *parse_host(const char *at, char *ret, size_t room)
{
    bool bracketed = *at == '[';
    at += bracketed;
    size_t len = strcspn(at, bracketed ? "]" : ":/");
    if (len == 0 || len >= room || (bracketed && at[len] != ']'))
        return NULL;
    memcpy(ret, at, len);
    ret[len] = 0;
    return at + len + bracketed;
}

/* No message has the text, for it may have a password. */
static int parse_redis(const char *text, struct shared_address *ret, struct err *e)
{
    static const char form[] = "--shared-cache: redis://[[USER]:PASSWORD@]HOST[:PORT][/NUMBER] is expected";
    const char *at = strrchr(text, '@'), *host = at ? at + 1 : text;
    if (at) {
        const char *colon = memchr(text, ':', (size_t)(at - text));
        if (!colon || !decode((struct slice){text, (size_t)(colon - text)}, ret->user, sizeof(ret->user)) ||
            !decode((struct slice){colon + 1, (size_t)(at - colon - 1)}, ret->password,
                    sizeof(ret->password)))
            return err_set(e, -EINVAL, "%s", form);
    }
    ret->port = 6379;
    const char *rest = parse_host(host, ret->host, sizeof(ret->host));
    bool ok = rest != NULL;
    if (ok && *rest == ':')
        ok = read_number(&rest, 65535, &ret->port) && ret->port > 0;
    if (ok && rest[0] == '/' && rest[1])
        ok = read_number(&rest, 65535, &ret->database);
    return ok && (*rest == 0 || strcmp(rest, "/") == 0) ? 0 : err_set(e, -EINVAL, "%s", form);
}

int shared_address_parse(const char *text, struct shared_address *ret, struct err *e)
{
    static const char file[] = "file://", redis[] = "redis://", encrypted[] = "rediss://";
    struct shared_address a = {0};
    int r;
    if (strncmp(text, file, sizeof(file) - 1) == 0)
        r = parse_file(text + sizeof(file) - 1, &a, e);
    else if (strncmp(text, redis, sizeof(redis) - 1) == 0)
        r = parse_redis(text + sizeof(redis) - 1, &a, e);
    else if (strncmp(text, encrypted, sizeof(encrypted) - 1) == 0)
        r = err_set(e, -EINVAL,
                    "--shared-cache rediss://: Debian's libhiredis0.14 has no TLS. Values are encrypted with "
                    "--shared-cache-secret-file; for the password use a tunnel, such as stunnel");
    else
        r = err_set(e, -EINVAL, "--shared-cache: file:///DIR or redis://HOST is expected");
    if (r == 0)
        *ret = a;
    return r;
}

bool shared_address_is_here(const struct shared_address *a)
{
    return strcmp(a->host, "localhost") == 0 || strcmp(a->host, "::1") == 0 ||
           strncmp(a->host, "127.", 4) == 0;
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
