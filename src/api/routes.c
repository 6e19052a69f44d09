/* routes.c - one table: method, path, required key, handler.
 *
 * A refusal that needs only the header is decided there, so that the body is not read. A path that ends in a
 * slash matches all paths with that prefix: the rest is an id. So is the segment at a star. */
#include "api/routes.h"
#include "api/reject_http.h"

#include "api/auth.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/report.h"
#include "api/wire.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "registry/guard.h"

#include <stdio.h>

#define JSON "application/json"

struct call {
    struct api *api;
    struct http_request *http;
    struct slice rest; /* of the path, after a slash */
    struct auth auth;
};

typedef void route_fn(const struct call *call);

struct route {
    const char *method, *path; /* NULL: of an exchange, request_route(kind) */
    enum auth_need need;
    enum request_kind kind; /* of the POSTs that are exchanges */
    route_fn *answer;       /* NULL: an exchange */
};

/* ---- small answers ---- */

typedef void report_fn(const struct call *c, struct buf *ret);

/* A report larger than the reserved buffer, or an error when there was no memory for it. */
static void respond_large_report(const struct call *c, unsigned status, const char *type, report_fn *write)
{
    struct buf body;
    buf_init(&body, (size_t)16 << 20, &c->api->text);
    write(c, &body);
    if (body.error) {
        struct reject why = {0};
        memory_refusal(c->api, c->api->opts.text, body.capacity, atomic_load(&c->api->requests_now), &why);
        reject_respond(&why, reject_write, c->http);
    } else {
        http_respond_buf(c->http, status, type, &body);
    }
    buf_done(&body);
}

/* Reports, health above all, can be read even when requests hold all the memory of texts. */
static void respond_report(const struct call *c, unsigned status, const char *type, report_fn *write)
{
    struct buf *body = &c->api->report;
    buf_clear(body);
    write(c, body);
    if (body->error)
        respond_large_report(c, status, type, write);
    else
        http_respond(c->http, status, type, buf_slice(body));
}

static void answer_live(const struct call *c)
{
    http_respond(c->http, 200, JSON, SLICE("{\"status\":\"ok\"}"));
}

static void write_health(const struct call *c, struct buf *ret)
{
    report_health(c->api, ret);
}

static void answer_health(const struct call *c)
{
    bool well = api_state_now(c->api) == API_READY && !api_stuck_model(c->api);
    respond_report(c, well ? 200 : 503, JSON, write_health);
}

static void answer_version(const struct call *c)
{
    http_respond(c->http, 200, JSON, SLICE("{\"version\":\"" PLATEAU_VERSION "\"}"));
}

static void write_models(const struct call *c, struct buf *ret)
{
    report_models(c->api, c->auth.admin, ret);
}

static void answer_models(const struct call *c)
{
    respond_report(c, 200, JSON, write_models);
}

static void answer_model(const struct call *c)
{
    struct reject why = {0};
    struct buf body;
    int index = registry_find(c->api->opts.registry, c->rest);
    if (index < 0) {
        reject_model(&why, c->rest);
        reject_respond(&why, reject_write, c->http);
        return;
    }
    buf_init(&body, 65536, NULL);
    report_model(c->api, (uint32_t)index, c->rest, c->auth.admin, &body);
    http_respond(c->http, 200, JSON, buf_slice(&body));
    buf_done(&body);
}

static void write_server_info(const struct call *c, struct buf *ret)
{
    report_server_info(c->api, ret);
}

static void answer_server_info(const struct call *c)
{
    respond_report(c, 200, JSON, write_server_info);
}

static void write_model_info(const struct call *c, struct buf *ret)
{
    report_model_info(c->api, ret);
}

static void answer_model_info(const struct call *c)
{
    respond_report(c, 200, JSON, write_model_info);
}

static void write_memory(const struct call *c, struct buf *ret)
{
    report_memory(c->api, ret);
}

static void answer_memory(const struct call *c)
{
    respond_report(c, 200, JSON, write_memory);
}

static void write_status(const struct call *c, struct buf *ret)
{
    report_status(c->api, ret);
}

static void answer_status(const struct call *c)
{
    respond_report(c, 200, JSON, write_status);
}

static void write_metrics(const struct call *c, struct buf *ret)
{
    report_metrics(c->api, c->auth.all_metrics ? NULL : &c->auth.tenant, ret);
}

static void answer_metrics(const struct call *c)
{
    respond_report(c, 200, "text/plain; version=0.0.4; charset=utf-8", write_metrics);
}

/* ---- DELETE /v1/requests/{id} ---- */

/* The id as in x-request-id, or as in the reply's "id". */
static bool parse_id(struct slice text, struct request_id *ret)
{
    const struct slice prefixes[] = {SLICE("chatcmpl-"), SLICE("cmpl-")};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (slice_starts(text, prefixes[i]))
            text = slice_sub(text, prefixes[i].len, text.len);
    return request_id_parse(text.ptr, text.len, ret);
}

/* An exchange that can still be cancelled: a complete reply that is being sent is not cut short. */
static struct exchange *find_exchange(const struct call *c, struct request_id id)
{
    LIST_EACH(it, &c->api->exchanges) {
        struct exchange *x = LIST_ENTRY(it, struct exchange, all);
        if (x->phase != EXCHANGE_SENDING && memcmp(&x->gen.id, &id, sizeof(id)) == 0 &&
            (x->gen.tenant == c->auth.tenant || c->auth.admin))
            return x;
    }
    return NULL;
}

static void answer_delete(const struct call *c)
{
    struct reject why = {0};
    struct request_id id;
    char text[33], body[128];
    struct exchange *x = parse_id(c->rest, &id) ? find_exchange(c, id) : NULL;
    if (!x) {
        /* The request of another tenant is reported as not found, too. */
        reject_as(&why, REJECT_REQUEST_NOT_FOUND);
        reject_respond(&why, reject_write, c->http);
        return;
    }
    request_id_text(id, text);
    if (x->gen.tenant != c->auth.tenant) {
        struct audit who;
        audit_begin(&who, c->http, &c->auth);
        audit_done(&who, 200, "ok", 0, text);
    }
    reject_as(&why, REJECT_REQUEST_CANCELLED);
    exchange_cancel(x, &why);
    snprintf(body, sizeof(body), "{\"id\":\"%s\",\"object\":\"request\",\"deleted\":true}", text);
    http_respond(c->http, 200, JSON, slice_of(body));
}

/* ---- the table ---- */

static const struct route routes[] = {
    {"GET", "/live", AUTH_NONE, 0, answer_live},
    {"GET", "/health", AUTH_NONE, 0, answer_health},
    {"GET", "/ping", AUTH_NONE, 0, answer_health},
    {"GET", "/version", AUTH_NONE, 0, answer_version},
    {"POST", NULL, AUTH_KEY, REQUEST_CHAT, NULL},
    {"POST", NULL, AUTH_KEY, REQUEST_COMPLETION, NULL},
    {"POST", NULL, AUTH_KEY, REQUEST_TOKENIZE, NULL},
    {"POST", NULL, AUTH_KEY, REQUEST_DETOKENIZE, NULL},
    {"POST", NULL, AUTH_KEY, REQUEST_TEMPLATE, NULL},
    {"GET", "/v1/models", AUTH_KEY, 0, answer_models},
    {"POST", NULL, AUTH_ADMIN, REQUEST_LOAD, NULL},
    {"POST", NULL, AUTH_ADMIN, REQUEST_UNLOAD, NULL},
    {"GET", "/v1/models/", AUTH_KEY, 0, answer_model},
    {"DELETE", "/v1/requests/", AUTH_KEY, 0, answer_delete},
    {"GET", "/server_info", AUTH_KEY, 0, answer_server_info},
    {"GET", "/model_info", AUTH_KEY, 0, answer_model_info},
    {"GET", "/metrics", AUTH_METRICS, 0, answer_metrics},
    {"GET", "/api/memory", AUTH_ADMIN, 0, answer_memory},
    {"GET", "/api/status", AUTH_ADMIN, 0, answer_status},
    {"POST", NULL, AUTH_ADMIN, REQUEST_CLEAR, NULL},
    {"POST", NULL, AUTH_ADMIN, REQUEST_CLEAR_SSD, NULL},
    {"POST", NULL, AUTH_ADMIN, REQUEST_TRIM, NULL},
};

const char *const api_vital_paths[] = {"/live", "/health", NULL};

/* The id is one segment, between the parts before and after the star. */
static bool star_matches(struct slice own, size_t star, struct slice path, struct slice *rest)
{
    size_t behind = own.len - star - 1;
    if (path.len <= star + behind || !slice_starts(path, slice_sub(own, 0, star)) ||
        !slice_eq(slice_sub(path, path.len - behind, path.len), slice_sub(own, star + 1, own.len)))
        return false;
    *rest = slice_sub(path, star, path.len - star - behind);
    return !memchr(rest->ptr, '/', rest->len);
}

static bool path_matches(const struct route *t, struct slice path, struct slice *rest)
{
    struct slice own = slice_of(t->path ? t->path : request_route(t->kind));
    const char *star = memchr(own.ptr, '*', own.len);
    if (star)
        return star_matches(own, (size_t)(star - own.ptr), path, rest);
    if (own.ptr[own.len - 1] != '/') {
        *rest = (struct slice){0};
        return slice_eq(own, path);
    }
    *rest = slice_sub(path, own.len, path.len);
    return slice_starts(path, own) && rest->len > 0;
}

static bool method_matches(const struct route *t, struct slice method)
{
    if (slice_eq(method, slice_of(t->method)))
        return true;
    return slice_eq(method, SLICE("HEAD")) && strcmp(t->method, "GET") == 0;
}

static bool is_served(const struct http_request *r, const struct route *t)
{
    bool limited = http_request_listener(r) == API_LISTENER_METRICS;
    return !limited || t->need == AUTH_NONE || t->need == AUTH_METRICS;
}

/* NULL: 404 or 405 in `why`, and for the latter the allowed methods. */
static const struct route *find_route(const struct http_request *r, struct slice *rest, char allow[64],
                                      struct reject *why)
{
    struct slice path = http_request_path(r), method = http_request_method(r);
    allow[0] = 0;
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (!path_matches(&routes[i], path, rest) || !is_served(r, &routes[i]))
            continue;
        if (method_matches(&routes[i], method))
            return &routes[i];
        size_t at = strlen(allow);
        snprintf(allow + at, 64 - at, "%s%s", at ? ", " : "", routes[i].method);
    }
    int shown = (int)MIN_OF(path.len, (size_t)200);
    if (allow[0])
        reject_set(why, REJECT_METHOD_NOT_ALLOWED, NULL, "%.*s takes %s, not %.*s.", shown, path.ptr, allow,
                   (int)MIN_OF(method.len, (size_t)20), method.ptr);
    else
        reject_set(why, REJECT_NOT_FOUND, NULL, "There is no route %.*s.", shown, path.ptr);
    return NULL;
}

/* ---- the handler ---- */

/* In the envelope of the route's dialect; `t` NULL: of none. */
static int refuse(struct http_request *r, const struct route *t, const struct reject *why)
{
    const struct wire *wire = t && !t->answer ? wire_of(t->kind) : NULL;
    reject_respond(why, wire ? wire->error : reject_write, r);
    return (int)reject_status(why);
}

/* Memory of the machine is so short that no new work starts. Requests that take no memory, and requests that
 * free some, continue. */
static bool is_out_of_memory(struct api *a, enum request_kind kind, struct reject *why)
{
    struct err e = {""};
    if (!wire_of(kind) || !a->opts.guard || !guard_refuses_work(a->opts.guard, &e, &why->retry_after_s))
        return false;
    reject_set(why, REJECT_MEMORY_SHORT, NULL, "%s", e.text);
    return true;
}

/* The model of a route's path; -1: the path names none. */
static int model_of(const struct api *a, const struct route *t, struct slice rest, struct reject *why)
{
    if (t->kind != REQUEST_LOAD && t->kind != REQUEST_UNLOAD)
        return -1;
    int index = registry_find(a->opts.registry, rest);
    if (index < 0)
        reject_model(why, rest);
    return index;
}

static int begin_exchange(struct api *a, struct http_request *r, const struct route *t, struct slice rest,
                          struct request_id id, const struct auth *auth)
{
    struct reject why = {0};
    struct exchange *x;
    if (!api_is_ready(a, &why) || is_out_of_memory(a, t->kind, &why))
        return refuse(r, t, &why);
    int model_index = model_of(a, t, rest, &why);
    if (why.kind)
        return refuse(r, t, &why);
    if (atomic_load(&a->requests_now) >= a->live.requests_max) {
        why.retry_after_s = memory_refusal_retry_s(a);
        reject_set(&why, REJECT_TOO_MANY_REQUESTS, NULL,
                   "%u requests are in progress, the limit of --max-requests. Try again later.",
                   a->live.requests_max);
        return refuse(r, t, &why);
    }
    if (exchange_create(a, r, t->kind, id, auth, &x) < 0) {
        memory_refusal(a, a->opts.text, sizeof(*x), atomic_load(&a->requests_now), &why);
        return refuse(r, t, &why);
    }
    x->audited = t->need == AUTH_ADMIN;
    x->model_index = model_index;
    http_request_set_user(r, x);
    return 0;
}

int routes_begin(void *api, struct http_request *r)
{
    struct api *a = api;
    struct reject why = {0};
    struct request_id id = request_id_draw();
    struct auth auth;
    struct slice rest;
    char text[33], allow[64];
    request_id_text(id, text);
    http_header_set(r, "x-request-id", text);
    http_request_set_user(r, NULL);
    const struct route *t = find_route(r, &rest, allow, &why);
    if (!t) {
        if (allow[0])
            http_header_set(r, "allow", allow);
        return refuse(r, t, &why);
    }
    if (!auth_check(a->opts.keys, r, t->need, &auth, &why)) {
        audit_refused(&a->refusals, r, &why, clock_now_ns());
        return refuse(r, t, &why);
    }
    return t->answer ? 0 : begin_exchange(a, r, t, rest, id, &auth);
}

void routes_ready(void *api, struct http_request *r)
{
    struct exchange *x = http_request_user(r);
    if (x) {
        exchange_receive(x);
        return;
    }
    struct call call = {.api = api, .http = r};
    struct reject why = {0};
    char allow[64];
    const struct route *t = find_route(r, &call.rest, allow, &why);
    ASSERT(t && t->answer);
    if (!auth_check(call.api->opts.keys, r, t->need, &call.auth, &why))
        reject_respond(&why, reject_write, r);
    else
        t->answer(&call);
}
