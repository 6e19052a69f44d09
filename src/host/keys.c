/* keys.c - keys from all places add up: a key on the command line does not hide those of a file.
 * Pipes are a list by path; the same path for users and administrators is one pipe. */
#include "host/keys.h"

#include "host/settings.h"

#include "api/access/cors.h"
#include "api/access/keyring.h"
#include "base/log.h"
#include "http/http_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- pipes --- */

struct key_pipe {
    struct key_pipe *next;
    char *path;
    struct keyring *rings[KEYRING_DOORS]; /* the door decides the keys' default fields */
};

static void free_pipe(struct key_pipe *k)
{
    if (!k)
        return;
    for (enum keyring_door door = 0; door < KEYRING_DOORS; door++)
        keyring_free(k->rings[door]);
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

static int pipe_of(const char *path, struct slice text, struct key_pipe **ret, struct err *e)
{
    struct key_pipe *k = calloc(1, sizeof(*k));
    int r = k && (k->path = strdup(path)) ? 0 : -ENOMEM;
    for (enum keyring_door door = 0; r == 0 && door < KEYRING_DOORS; door++)
        r = keyring_create(&k->rings[door]);
    if (r < 0)
        err_set(e, r, "no memory for the keys of %s", path);
    for (enum keyring_door door = 0; r == 0 && door < KEYRING_DOORS; door++)
        r = keyring_parse(k->rings[door], door, text, path, e);
    if (r == 0)
        *ret = k;
    else
        free_pipe(k);
    return r;
}

static int add_pipe(struct key_pipes *p, const char *path, struct err *e)
{
    char *bytes = malloc(KEYRING_FILE_BYTES_MAX);
    ssize_t n = bytes ? read_path(path, bytes, KEYRING_FILE_BYTES_MAX) : -ENOMEM;
    struct key_pipe *k = NULL;
    int r = n < 0 ? (int)n : pipe_of(path, (struct slice){bytes, (size_t)n}, &k, e);
    if (bytes)
        explicit_bzero(bytes, KEYRING_FILE_BYTES_MAX);
    free(bytes);
    if (n == -EFBIG)
        return err_set(e, -EFBIG, "more than %zu bytes come from the pipe %s", KEYRING_FILE_BYTES_MAX, path);
    if (n < 0)
        return err_set(e, r, "%s: %s", path, strerror(-r));
    if (r < 0)
        return r;
    k->next = p->first;
    p->first = k;
    return 0;
}

static bool is_pipe(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* Adds the keys of the pipe at `path`, which is read at the first call up to its end. 1, or 0: not a pipe.
 * -EINVAL, -EFBIG, -ENOMEM, -ENOSPC, or a system error. */
static int add_keys_of_pipe(struct keyring *ring, enum keyring_door door, const char *path,
                            struct key_pipes *p, struct err *e)
{
    struct key_pipe *k = p->first;
    while (k && strcmp(k->path, path) != 0)
        k = k->next;
    if (!k) {
        if (!is_pipe(path))
            return 0;
        int r = p->over ? err_set(e, -EINVAL, "%s is a pipe: pipes are read at the start only", path)
                        : add_pipe(p, path, e);
        if (r < 0)
            return r;
        k = p->first;
    }
    int r = keyring_add_ring(ring, door, k->rings[door], e);
    return r < 0 ? err_prefix(e, r, "%s", path) : 1;
}

void key_pipes_done(struct key_pipes *p)
{
    while (p->first) {
        struct key_pipe *k = p->first;
        p->first = k->next;
        free_pipe(k);
    }
}

/* --- from all places --- */

static int add_keys(struct keyring *k, enum keyring_door door, const char *option, const char *const *keys,
                    struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; keys[i] && r == 0; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s-%u", option, i + 1);
        r = keyring_add(k, door, NULL, slice_of(keys[i]), name, e);
    }
    return r < 0 ? err_prefix(e, r, "--%s", option) : 0;
}

static void tell_exposure(const char *path, enum keyring_exposure exposure)
{
    if (exposure != KEYRING_PRIVATE)
        LOG_WARN("key_file_exposed", "file=\"%s\" problem=\"%s\"", path,
                 exposure == KEYRING_WRITABLE ? "others may change it" : "everybody may read it");
}

/* A file of settings with a key among them. */
static void look_at_settings(const char *path, bool secret)
{
    struct stat st;
    if (path && secret && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        tell_exposure(path, keyring_exposure_of(st.st_mode));
}

static int add_file(struct keyring *k, enum keyring_door door, const char *path, struct key_pipes *pipes,
                    struct err *e)
{
    enum keyring_exposure exposure = KEYRING_PRIVATE;
    int r = add_keys_of_pipe(k, door, path, pipes, e);
    if (r != 0)
        return MIN_OF(r, 0);
    r = keyring_read(k, door, path, &exposure, e);
    if (r == 0)
        tell_exposure(path, exposure);
    return r;
}

static int add_files(struct keyring *k, enum keyring_door door, const char *option, const char *const *paths,
                     struct key_pipes *pipes, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; paths[i] && r == 0; i++)
        r = add_file(k, door, paths[i], pipes, e);
    return r < 0 ? err_prefix(e, r, "--%s", option) : 0;
}

int keys_open(const struct settings *o, struct key_pipes *pipes, struct keyring **ret, struct err *e)
{
    struct keyring *k = NULL;
    int r = keyring_create(&k);
    if (r < 0)
        return err_set(e, r, "no memory for keys");
    r = add_keys(k, KEYRING_MODELS, "api-key", o->keys.api_keys, e);
    if (r == 0)
        r = add_keys(k, KEYRING_ADMIN, "admin-key", o->keys.admin_keys, e);
    if (r == 0)
        r = add_files(k, KEYRING_MODELS, "api-key-file", o->keys.api_key_files, pipes, e);
    if (r == 0)
        r = add_files(k, KEYRING_ADMIN, "admin-key-file", o->keys.admin_key_files, pipes, e);
    if (r == 0)
        r = add_keys(k, KEYRING_METRICS, "metrics-key", o->keys.metrics_keys, e);
    if (r == 0)
        r = add_files(k, KEYRING_METRICS, "metrics-key-file", o->keys.metrics_key_files, pipes, e);
    if (r < 0) {
        keyring_free(k);
        return r;
    }
    look_at_settings(o->config, o->config_secret);
    look_at_settings(o->env_file, o->env_file_secret);
    *ret = k;
    return 0;
}

bool keys_host_is_loopback(const char *host)
{
    char bracketed[INET6_ADDRSTRLEN + 2];
    snprintf(bracketed, sizeof(bracketed), strchr(host, ':') ? "[%s]" : "%s", host);
    return http_guard_host_is_loopback(slice_of(bracketed));
}

/* Without a key the port would answer every page that its user's browser opens. */
static int check_origins(const struct settings *o, const struct keyring *k, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && o->keys.origins[i]; i++)
        r = cors_check_origin(o->keys.origins[i], e);
    if (r == 0 && o->keys.origins[0] && keyring_count(k, KEYRING_MODELS) == 0)
        r = err_set(
            e, -EINVAL,
            "--allow-origin %s lets web pages call the server: give an --api-key or an --api-key-file, "
            "so that only pages with a key can",
            o->keys.origins[0]);
    return r;
}

int keys_check(const struct settings *o, const struct keyring *k, struct err *e)
{
    int r = check_origins(o, k, e);
    if (r < 0)
        return r;
    if (keys_host_is_loopback(o->http.host) || keyring_count(k, KEYRING_MODELS) > 0 || o->keys.allow_open)
        return 0;
    return err_set(e, -EINVAL,
                   "--host %s is open to others: give an --api-key or an --api-key-file (or --allow-open, if "
                   "everybody who reaches it may use the models)",
                   o->http.host);
}
