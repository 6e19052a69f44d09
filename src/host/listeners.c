/* listeners.c - from --admin-listen and --metrics-listen to servers that join the main one. */
#include "host/listeners.h"

#include "base/check.h"
#include "base/log.h"
#include "base/slice.h"
#include "host/keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- options ---- */

struct address {
    char host[256];
    uint16_t port;
};

/* HOST:PORT or [HOST]:PORT. */
static int parse_address(const char *option, const char *text, struct address *ret, struct err *e)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    struct slice host = {text, colon ? (size_t)(colon - text) : 0};
    if (host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']')
        host = slice_sub(host, 1, host.len - 2);
    else if (memchr(host.ptr, ':', host.len))
        host.len = 0;
    if (host.len == 0 || host.len >= sizeof(ret->host) || !slice_u64(slice_of(colon + 1), 65535, &port))
        return err_set(e, -EINVAL, "--%s %s: an address and a port are expected, such as 127.0.0.1:9090",
                       option, text);
    snprintf(ret->host, sizeof(ret->host), "%.*s", SLICE_ARGS(host));
    ret->port = (uint16_t)port;
    return 0;
}

static const char *path_of(const char *text)
{
    return strncmp(text, "unix:", 5) == 0 ? text + 5 : NULL;
}

static bool is_none(const char *text)
{
    return strcmp(text, "none") == 0;
}

struct listeners_wanted {
    bool socket;
    const char *path; /* NULL: the usual one */
    struct address admin[SETTINGS_KEYS_MAX], metrics;
    uint32_t admin_count;
    bool has_metrics;
};

static int read_admin(const char *text, struct listeners_wanted *w, struct err *e)
{
    const char *path = path_of(text);
    if (path && w->path)
        return err_set(e, -EINVAL, "--admin-listen: there is one Unix socket, not %s and %s", w->path, path);
    if (path)
        w->path = path;
    if (is_none(text))
        w->socket = false;
    if (path || is_none(text))
        return 0;
    return parse_address("admin-listen", text, &w->admin[w->admin_count++], e);
}

static int read_wanted(const struct settings *o, struct listeners_wanted *ret, struct err *e)
{
    int r = 0;
    *ret = (struct listeners_wanted){.socket = true, .has_metrics = o->listeners.metrics != NULL};
    for (uint32_t i = 0; o->listeners.admin[i] && r == 0; i++)
        r = read_admin(o->listeners.admin[i], ret, e);
    if (r == 0 && !ret->socket && ret->path)
        r = err_set(e, -EINVAL, "--admin-listen: none and a Unix socket exclude each other");
    if (r == 0 && ret->admin_count + 2 > HTTP_JOINED_MAX)
        r = err_set(e, -EINVAL, "--admin-listen: at most %d addresses", HTTP_JOINED_MAX - 2);
    if (r == 0 && ret->has_metrics)
        r = parse_address("metrics-listen", o->listeners.metrics, &ret->metrics, e);
    return r;
}

int listeners_check(const struct settings *o, struct err *e)
{
    struct listeners_wanted w;
    return read_wanted(o, &w, e);
}

static struct http_server_opts opts_of(const struct settings *o)
{
    return (struct http_server_opts){.connections_max = LISTENERS_CONNECTIONS,
                                     .header_bytes_max = o->http.header_bytes_max,
                                     .body_bytes_max = 65536,
                                     /* A report is answered also when bodies hold all memory. */
                                     .send_bytes_max = API_REPORT_BYTES,
                                     .idle_timeout_s = o->http.idle_timeout_s};
}

uint64_t listeners_bytes(const struct settings *o)
{
    struct http_server_opts opts = opts_of(o);
    struct listeners_wanted w;
    uint64_t connection;
    if (read_wanted(o, &w, NULL) < 0)
        return 0;
    return (w.socket + w.admin_count + w.has_metrics) * http_server_bytes(&opts, &connection);
}

/* ---- opening ---- */

struct opening {
    struct listeners *l;
    struct http_server *http;
    struct http_server_opts opts;
};

/* Owns `fd` from here on, also on failure. */
static int join(struct opening *p, int fd, enum api_listener kind, bool guarded, struct err *e,
                struct http_server **ret)
{
    struct http_server *s;
    struct http_server_opts opts = p->opts;
    opts.listen_fd = fd;
    opts.listener = (uint8_t)kind;
    opts.own_user_only = kind == API_LISTENER_SOCKET;
    opts.loopback_host_only = guarded;
    int r = http_server_create(&opts, e, &s);
    if (r < 0) {
        close(fd);
        return r;
    }
    *ret = s;
    r = http_server_join(p->http, s);
    if (r == 0)
        return 0;
    http_server_free(s);
    return err_set(e, r, "a listener cannot be watched: %s", strerror(-r));
}

static int open_address(struct opening *p, const char *what, const struct address *a, enum api_listener kind,
                        struct err *e)
{
    struct http_server *s;
    int fd = -1, r = http_listen_on(a->host, a->port, e, &fd);
    if (r < 0)
        return err_prefix(e, r, "--%s-listen", what);
    r = join(p, fd, kind, keys_host_is_loopback(a->host), e, &s);
    if (r < 0)
        return r;
    ASSERT(p->l->address_count < COUNT_OF(p->l->addresses));
    struct listener_address *open = &p->l->addresses[p->l->address_count++];
    *open = (struct listener_address){.option = what, .port = http_server_port(s)};
    snprintf(open->host, sizeof(open->host), "%s", a->host);
    return 0;
}

static int open_socket(struct opening *p, const char *path, struct err *e)
{
    struct admin_socket *s = &p->l->socket;
    struct http_server *joined;
    int fd = -1, r = admin_socket_open(s, path, http_server_port(p->http), &fd, e);
    if (r < 0 && path)
        return err_prefix(e, r, "--admin-listen");
    if (r < 0) {
        LOG_WARN("admin_socket_failed", "error=\"%s\"", e->text);
        e->text[0] = 0;
        return 0;
    }
    if (s->skipped.text[0])
        LOG_WARN("admin_socket_moved", "path=\"%s\" reason=\"%s\"", s->socket.path, s->skipped.text);
    return join(p, fd, API_LISTENER_SOCKET, false, e, &joined);
}

int listeners_open(struct listeners *l, const struct settings *s, struct api *api, struct http_server *http,
                   struct account *network, struct err *e)
{
    struct listeners_wanted w;
    struct opening p = {l, http, opts_of(s)};
    p.opts.network = network;
    p.opts.handler = api_handler(api);
    p.opts.handler.tick = NULL;
    p.opts.handler.stopping = NULL;
    p.opts.arg = api;
    int r = read_wanted(s, &w, e);
    if (r == 0 && w.socket)
        r = open_socket(&p, w.path, e);
    for (uint32_t i = 0; i < w.admin_count && r == 0; i++)
        r = open_address(&p, "admin", &w.admin[i], API_LISTENER_ADMIN, e);
    if (r == 0 && w.has_metrics)
        r = open_address(&p, "metrics", &w.metrics, API_LISTENER_METRICS, e);
    return r;
}

void listeners_log(const struct listeners *l)
{
    if (l->socket.socket.path[0])
        LOG_INFO("listening", "for=admin path=\"%s\"", l->socket.socket.path);
    for (uint32_t i = 0; i < l->address_count; i++) {
        const struct listener_address *a = &l->addresses[i];
        LOG_INFO("listening", "for=%s address=\"%s\" port=%u", a->option, a->host, a->port);
    }
}

void listeners_tell_key(struct listeners *l, const char *own_admin_key)
{
    struct err e = {{0}};
    if (admin_socket_tell_key(&l->socket, own_admin_key, &e) < 0)
        LOG_WARN("admin_key_untold", "error=\"%s\"", e.text);
}

void listeners_close(struct listeners *l)
{
    admin_socket_close(&l->socket);
}
