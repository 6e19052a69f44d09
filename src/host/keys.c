/* keys.c - keys from all places add up: a key on the command line does not hide those of a file. */
#include "host/keys.h"

#include "base/log.h"
#include "http/http_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
    struct slice text;
    int r = key_pipes_text(pipes, path, &text, e);
    if (r > 0)
        return keyring_parse(k, door, text, path, e);
    if (r == 0)
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

int keys_check(const struct settings *o, const struct keyring *k, struct err *e)
{
    if (keys_host_is_loopback(o->http.host) || keyring_count(k, KEYRING_MODELS) > 0 || o->keys.allow_open)
        return 0;
    return err_set(e, -EINVAL,
                   "--host %s is open to others: give an --api-key or an --api-key-file (or --allow-open, if "
                   "everybody who reaches it may use the models)",
                   o->http.host);
}
