/* live.c - a reload reads aside, checks, and only then replaces: a mistake in a file costs a line in the
 * log. */
#include "host/live.h"

#include "host/listeners.h"

#include "api/access/keyring.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Name in the log of the key that was made here. */
#define OWN_KEY_NAME "own-admin-key"

/* ---- reading ---- */

static int check(const struct settings *o, struct err *e)
{
    enum log_level level = LOG_LEVEL_INFO;
    enum log_format format;
    if (strcmp(o->model.trim, "on") != 0 && strcmp(o->model.trim, "off") != 0)
        return err_set(e, -EINVAL, "--trim %s: on or off is expected", o->model.trim);
    if (o->log_format && !log_format_parse(o->log_format, &format))
        return err_set(e, -EINVAL, "--log-format %s: auto, text, journal or json is expected", o->log_format);
    if (o->log_level && !log_level_parse(o->log_level, &level))
        return err_set(e, -EINVAL, "--log-level %s: error, warn, info or debug is expected", o->log_level);
    return 0;
}

/* At the first reading, before other threads log. */
static void choose_format(struct live *l, const struct settings *o)
{
    enum log_format format = LOG_FORMAT_AUTO;
    if (l->formatted)
        return;
    l->formatted = true;
    if (o->log_format)
        log_format_parse(o->log_format, &format);
    log_set_format(format);
}

/* `s` and `keys` are the caller's also on failure. */
static int read_all(struct live *l, struct settings *s, struct keyring **keys, struct err *e)
{
    int r = l->source.read(l->source.arg, s, e);
    if (r < 0 || s->help)
        return r;
    r = check(s, e);
    if (r == 0)
        choose_format(l, s);
    if (r == 0)
        r = listeners_check(s, e);
    if (r == 0)
        r = keys_open(s, &l->pipes, keys, e);
    if (r == 0 && keyring_count(*keys, KEYRING_ADMIN) == 0)
        r = keyring_add(*keys, KEYRING_ADMIN, NULL, slice_of(l->own_admin_key), OWN_KEY_NAME, e);
    return r == 0 ? keys_check(s, *keys, e) : r;
}

/* ---- applying ---- */

static void apply_to_engines(struct live *l)
{
    struct engine_opts now = l->now.model.engine;
    now.slow_client_ns = l->now.api.live.slow_client_s * NS_PER_S;
    engine_live_set(&l->engine, &now);
}

static void apply_to_api(struct live *l)
{
    struct api_live now = l->now.api.live;
    now.request_bytes_max = MIN_OF(now.request_bytes_max, l->request_bytes_max);
    api_set_live(l->api, &now);
    api_set_keys(l->api, l->keys);
    api_set_origins(l->api, l->now.keys.origins);
}

static void apply_to_http(struct live *l)
{
    struct http_server_opts now = l->now.http;
    now.body_bytes_max = MIN_OF(now.body_bytes_max, l->body_bytes_max);
    now.loopback_host_only = live_is_guarded(l);
    http_server_set_live(l->http, &now);
}

static void apply(struct live *l)
{
    enum log_level level = LOG_LEVEL_INFO;
    if (l->now.log_level)
        log_level_parse(l->now.log_level, &level);
    log_set_level(level);
    apply_to_engines(l);
    if (l->api)
        apply_to_api(l);
    if (l->http)
        apply_to_http(l);
}

/* ---- telling ---- */

static void tell_change(void *arg, const struct settings_change *c)
{
    const struct live *l = arg;
    if (c->live && settings_exceed(c->name, &l->now, &l->started))
        LOG_WARN("setting_needs_restart", "name=%s from=\"%s\" to=\"%s\" holds=\"what the start had\"",
                 c->name, c->from, c->to);
    else if (c->live)
        LOG_INFO("setting_changed", "name=%s from=\"%s\" to=\"%s\"", c->name, c->from, c->to);
}

static void tell_restart(void *arg, const struct settings_change *c)
{
    (void)arg;
    if (!c->live)
        LOG_WARN("setting_needs_restart", "name=%s from=\"%s\" to=\"%s\" holds=\"%s\"", c->name, c->from,
                 c->to, c->from);
}

/* ---- from the start to the end ---- */

int live_open(struct live *l, const struct live_source *source, struct err *e)
{
    *l = (struct live){.body_bytes_max = SIZE_MAX, .request_bytes_max = SIZE_MAX, .source = *source};
    hex_secret(32, l->own_admin_key);
    int r = read_all(l, &l->started, &l->keys, e);
    l->pipes.over = true;
    if (r < 0 || l->started.help)
        return r;
    l->started.model.engine.live = &l->engine;
    l->now = l->started;
    /* These pointers stay with `started`. */
    l->now.texts = NULL;
    l->now.sections = NULL;
    apply(l);
    return 0;
}

/* A pipe that was read at the start would be waited for now. */
static int check_file(const struct live *l, struct err *e)
{
    struct stat st;
    const char *path = l->started.config;
    if (!path || (stat(path, &st) == 0 && S_ISREG(st.st_mode)))
        return 0;
    return err_set(e, -ENOENT, "--config %s: there is no such file", path);
}

int live_reload(struct live *l)
{
    struct settings read = {0};
    struct keyring *keys = NULL;
    struct err e = {{0}};
    int r = check_file(l, &e);
    if (r == 0)
        r = read_all(l, &read, &keys, &e);
    if (r < 0) {
        l->failures++;
        LOG_ERROR("reload_failed", "error=\"%s\" holds=\"what held before\"", e.text);
        settings_done(&read);
        keyring_free(keys);
        return r;
    }
    struct settings before = l->now;
    struct keyring *keys_before = l->keys;
    l->now = read;
    l->keys = keys;
    l->reloads++;
    apply(l);
    settings_compare(COMMAND_SERVE, &before, &l->now, tell_change, l);
    settings_compare(COMMAND_SERVE, &l->started, &l->now, tell_restart, l);
    settings_done(&before);
    keyring_free(keys_before);
    LOG_INFO("reloaded", "api_keys=%u admin_keys=%u reloads=%llu", keyring_count(keys, KEYRING_MODELS),
             keyring_count(keys, KEYRING_ADMIN), (ull)l->reloads);
    return 0;
}

void live_close(struct live *l)
{
    settings_done(&l->started);
    settings_done(&l->now);
    keyring_free(l->keys);
    key_pipes_done(&l->pipes);
    explicit_bzero(l, sizeof(*l));
}

const char *live_own_admin_key(const struct live *l)
{
    struct keyring_found found = keyring_find(l->keys, slice_of(l->own_admin_key));
    return found.at[KEYRING_ADMIN] ? l->own_admin_key : NULL;
}

bool live_is_guarded(const struct live *l)
{
    return keys_host_is_loopback(l->started.http.host) && keyring_count(l->keys, KEYRING_MODELS) == 0;
}
