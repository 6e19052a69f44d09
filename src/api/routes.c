/* routes.c - one table: method, path, required key, handler. The dialects (wire.h) have their own paths.
 *
 * A refusal that needs only the header is decided there, so that the body is not read. A path that ends in a
 * slash matches all paths with that prefix: the rest is an id. So is what stands at a star. */
#include "api/routes.h"

#include "api/access/auth.h"
#include "api/access/client_ids.h"
#include "api/access/cors.h"
#include "api/api.h"
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/model_lookup.h"
#include "api/pulls.h"
#include "api/refuse.h"
#include "api/report/page.h"
#include "api/report/report.h"
#include "api/route_call.h"
#include "api/wire/messages.h"
#include "api/wire/responses_list.h"
#include "api/wire/responses_routes.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "http/http_server.h"

#include <stdio.h>

#define JSON "application/json"

struct route {
    const char *method, *path;
    enum auth_need need;
    route_fn *answer;        /* NULL: an exchange */
    enum request_kind kind;  /* kind of an exchange */
    const struct wire *wire; /* dialect of REQUEST_GENERATE and REQUEST_RENDER; else NULL */
};

/* By its path, before the route is known. Anthropic's clients list models too, and name their version. */
static const struct wire_frame *frame_of(const struct http_request *r)
{
    struct slice path = http_request_path(r), version;
    bool models = slice_starts(path, SLICE("/v1/models")) || slice_starts(path, SLICE("/models"));
    if (messages_owns(path) || (models && http_request_header(r, "anthropic-version", &version)))
        return &messages_frame;
    return &openai_frame;
}

/* ---- small answers ---- */

static void refuse(const struct call *c, const struct reject *why)
{
    refuse_request(c->api, c->http, "", &c->auth, &frame_of(c->http)->envelope, why);
}

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
        refuse(c, &why);
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
    int index = model_lookup_find(c->api, c->rest);
    if (index < 0) {
        model_lookup_refuse(c->api, c->rest, &why);
        refuse(c, &why);
        return;
    }
    bool exact = registry_find(c->api->opts.registry, c->rest) == index;
    struct slice name = exact ? c->rest : slice_of(api_model_id(c->api, (uint32_t)index));
    buf_init(&body, 65536, NULL);
    struct json_out j = json_out(&body);
    report_model(c->api, (uint32_t)index, name, c->auth.admin, &j);
    http_respond(c->http, 200, JSON, buf_slice(&body));
    buf_done(&body);
}

/* /get_server_info and /get_model_info. */
static bool is_older(const struct call *c)
{
    return slice_starts(http_request_path(c->http), SLICE("/get_"));
}

static void write_server_info(const struct call *c, struct buf *ret)
{
    report_server_info(c->api, is_older(c), ret);
}

static void answer_server_info(const struct call *c)
{
    respond_report(c, 200, JSON, write_server_info);
}

static void write_model_info(const struct call *c, struct buf *ret)
{
    report_model_info(c->api, is_older(c), ret);
}

static void answer_model_info(const struct call *c)
{
    respond_report(c, 200, JSON, write_model_info);
}

static void write_load(const struct call *c, struct buf *ret)
{
    report_load(c->api, ret);
}

static void answer_load(const struct call *c)
{
    respond_report(c, 200, JSON, write_load);
}

static void write_tokenizer_info(const struct call *c, struct buf *ret)
{
    report_tokenizer_info(c->api, ret);
}

static void answer_tokenizer_info(const struct call *c)
{
    respond_report(c, 200, JSON, write_tokenizer_info);
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

static void write_overview(const struct call *c, struct buf *ret)
{
    report_overview(c->api, &c->auth, ret);
}

static void answer_overview(const struct call *c)
{
    respond_report(c, 200, JSON, write_overview);
}

/* The range of the query. False: 400 is answered. */
static bool find_range(const struct call *c, enum history_range *ret)
{
    struct reject why = {0};
    struct slice range = SLICE("5m");
    http_request_query(c->http, "range", &range);
    *ret = history_range_of(range.ptr, range.len);
    if (*ret < HISTORY_RANGE_COUNT)
        return true;
    reject_value(&why, "range", "range is one of 5m, 1h, 24h, 7d and 30d.");
    refuse(c, &why);
    return false;
}

static void write_history(const struct call *c, struct buf *ret)
{
    enum history_range range = HISTORY_5M;
    struct slice name;
    if (http_request_query(c->http, "range", &name))
        range = history_range_of(name.ptr, name.len);
    report_history(c->api, range, ret);
}

static void answer_history(const struct call *c)
{
    enum history_range range;
    if (find_range(c, &range))
        respond_report(c, 200, JSON, write_history);
}

#define LOG_LINES_SENT 200

/* False: not a number, or not a level. */
static bool find_lines(const struct call *c, uint64_t *after, enum log_level *least)
{
    struct slice number, level;
    char name[8];
    *after = 0;
    *least = LOG_LEVEL_DEBUG;
    if (http_request_query(c->http, "after", &number) && !slice_u64(number, UINT64_MAX, after))
        return false;
    if (!http_request_query(c->http, "level", &level))
        return true;
    snprintf(name, sizeof(name), "%.*s", (int)MIN_OF(level.len, sizeof(name) - 1), level.ptr);
    return log_level_parse(name, least);
}

static void write_log(const struct call *c, struct buf *ret)
{
    uint64_t after;
    enum log_level least;
    if (find_lines(c, &after, &least))
        report_log(after, least, LOG_LINES_SENT, ret);
}

static void answer_log(const struct call *c)
{
    struct reject why = {0};
    uint64_t after;
    enum log_level least;
    if (find_lines(c, &after, &least)) {
        respond_report(c, 200, JSON, write_log);
        return;
    }
    reject_value(&why, "after",
                 "after is the number of a line, and level one of error, warn, info and debug.");
    refuse(c, &why);
}

static void answer_page(const struct call *c)
{
    struct reject why = {0};
    if (page_respond(c->http, c->rest))
        return;
    reject_set(&why, REJECT_NOT_FOUND, NULL, "The page has no file %.*s.",
               (int)MIN_OF(c->rest.len, (size_t)60), c->rest.ptr);
    refuse(c, &why);
}

/* False: `after` is not a number. */
static bool find_after(const struct call *c, uint64_t *ret)
{
    struct slice number;
    *ret = 0;
    return !http_request_query(c->http, "after", &number) || slice_u64(number, UINT64_MAX, ret);
}

static void write_trace(const struct call *c, struct buf *ret)
{
    uint64_t after;
    if (find_after(c, &after))
        report_trace(c->api, c->auth.admin ? NULL : &c->auth.tenant, after, REPORT_TRACE_MAX, ret);
}

static void answer_trace(const struct call *c)
{
    struct reject why = {0};
    uint64_t after;
    if (find_after(c, &after)) {
        respond_report(c, 200, JSON, write_trace);
        return;
    }
    reject_value(&why, "after", "after is the number of a request.");
    refuse(c, &why);
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

/* The id as in x-request-id, or as in the reply's "id": after a dialect's prefix. */
static bool parse_id(struct slice text, struct request_id *ret)
{
    const struct wire *wire;
    for (size_t i = 0; (wire = wire_at(i)); i++) {
        struct slice prefix = slice_of(wire->id_prefix);
        if (slice_starts(text, prefix) && text.len > prefix.len && strchr("-_", text.ptr[prefix.len]))
            return request_id_parse(text.ptr + prefix.len + 1, text.len - prefix.len - 1, ret);
    }
    return request_id_parse(text.ptr, text.len, ret);
}

/* An exchange that can still be cancelled, by the server's id or by its client's: a complete reply that is
 * being sent is not cut short. */
static struct exchange *find_exchange(const struct call *c)
{
    struct request_id id;
    const bool own = parse_id(c->rest, &id);
    LIST_EACH(it, &c->api->exchanges) {
        struct exchange *x = LIST_ENTRY(it, struct exchange, all);
        const bool named = (own && memcmp(&x->gen.id, &id, sizeof(id)) == 0) ||
                           slice_eq(c->rest, slice_of(x->given.request));
        if (named && x->phase != EXCHANGE_SENDING && (x->gen.tenant == c->auth.tenant || c->auth.admin))
            return x;
    }
    return NULL;
}

static void answer_delete(const struct call *c)
{
    struct reject why = {0};
    struct exchange *x = find_exchange(c);
    if (!x) {
        /* The request of another tenant is reported as not found, too. */
        reject_as(&why, REJECT_REQUEST_NOT_FOUND);
        refuse(c, &why);
        return;
    }
    if (x->gen.tenant != c->auth.tenant) {
        struct audit who;
        audit_begin(&who, c->http, &c->auth);
        audit_done(&who, 200, "ok", 0, x->id_text);
    }
    reject_as(&why, REJECT_REQUEST_CANCELLED);
    char text[sizeof(x->id_text)];
    memcpy(text, x->id_text, sizeof(text)); /* x may end with its request */
    exchange_cancel(x, &why);
    route_respond_deleted(c, slice_of(text), "request");
}

/* ---- POST /v1/models/{id}/pin ---- */

static void set_pinned(const struct call *c, bool pinned)
{
    struct reject why = {0};
    struct audit who;
    struct buf body;
    int index = model_lookup_find(c->api, c->rest);
    audit_begin(&who, c->http, &c->auth);
    if (index < 0) {
        model_lookup_refuse(c->api, c->rest, &why);
        audit_done(&who, 404, "model_not_found", 0, "-");
        refuse(c, &why);
        return;
    }
    struct registry_replicas of = registry_replicas(c->api->opts.registry, (uint32_t)index);
    for (uint32_t i = of.first; i < of.first + of.count; i++)
        registry_pin(c->api->opts.registry, i, pinned);
    audit_done(&who, 200, "ok", 0, "-");
    buf_init(&body, 4096, NULL);
    struct json_out j = json_out_object(&body);
    json_put_string(&j, "id", api_model_id(c->api, (uint32_t)index));
    json_put_bool(&j, "pinned", pinned);
    json_end(&j);
    http_respond(c->http, 200, JSON, buf_slice(&body));
    buf_done(&body);
}

static void answer_pin(const struct call *c)
{
    set_pinned(c, true);
}

static void answer_unpin(const struct call *c)
{
    set_pinned(c, false);
}

/* ---- /api/models/pull ---- */

static void write_pull(const struct call *c, struct buf *ret)
{
    struct json_out j = json_out(ret);
    pulls_write(c->api, &j, NULL);
}

static void answer_pull(const struct call *c)
{
    respond_report(c, 200, JSON, write_pull);
}

static void order_pull(const struct call *c)
{
    struct reject why = {0};
    struct audit who;
    audit_begin(&who, c->http, &c->auth);
    bool started = pulls_order(c->api, http_request_body(c->http), &why);
    audit_done(&who, started ? 202 : reject_status(&why), started ? "ok" : reject_code(&why), 0, "-");
    if (started)
        respond_report(c, 202, JSON, write_pull);
    else
        refuse(c, &why);
}

static void cancel_pull(const struct call *c)
{
    struct reject why = {0};
    struct audit who;
    audit_begin(&who, c->http, &c->auth);
    if (pulls_cancel(c->api)) {
        audit_done(&who, 202, "ok", 0, "-");
        respond_report(c, 202, JSON, write_pull);
        return;
    }
    reject_set(&why, REJECT_NOT_FOUND, NULL, "No pull runs now.");
    audit_done(&who, 404, reject_code(&why), 0, "-");
    refuse(c, &why);
}

/* ---- the table ---- */

static const struct route routes[] = {
    {"GET", "/", AUTH_PAGE, answer_page},
    {"GET", "/web/", AUTH_PAGE, answer_page},
    {"GET", "/live", AUTH_NONE, answer_live},
    {"GET", "/health", AUTH_NONE, answer_health},
    {"GET", "/ping", AUTH_NONE, answer_health},
    {"GET", "/version", AUTH_NONE, answer_version},
    {"POST", "/tokenize", AUTH_KEY, NULL, REQUEST_TOKENIZE},
    {"POST", "/detokenize", AUTH_KEY, NULL, REQUEST_DETOKENIZE},
    {"POST", "/apply-template", AUTH_KEY, NULL, REQUEST_TEMPLATE},
    {"POST", "/v1/messages/count_tokens", AUTH_KEY, NULL, REQUEST_COUNT_TOKENS},
    {"POST", "/v1/responses/input_tokens", AUTH_KEY, NULL, REQUEST_INPUT_TOKENS},
    {"GET", "/v1/models", AUTH_KEY, answer_models},
    {"POST", "/v1/models/*/load", AUTH_ADMIN, NULL, REQUEST_LOAD},
    {"POST", "/v1/models/*/unload", AUTH_ADMIN, NULL, REQUEST_UNLOAD},
    {"POST", "/v1/models/*/pin", AUTH_ADMIN, answer_pin},
    {"POST", "/v1/models/*/unpin", AUTH_ADMIN, answer_unpin},
    {"GET", "/v1/models/", AUTH_KEY, answer_model},
    {"DELETE", "/v1/requests/", AUTH_KEY, answer_delete},
    {"GET", "/v1/responses/*/input_items", AUTH_KEY, NULL, REQUEST_ITEMS},
    {"POST", "/v1/responses/*/cancel", AUTH_KEY, responses_refuse_cancel},
    {"GET", "/v1/responses/", AUTH_KEY, responses_answer},
    {"DELETE", "/v1/responses/", AUTH_KEY, responses_answer_delete},
    {"GET", "/v1/sessions/", AUTH_KEY, sessions_show},
    {"POST", "/v1/sessions/", AUTH_KEY, sessions_extend},
    {"DELETE", "/v1/sessions/", AUTH_KEY, sessions_end},
    {"GET", "/server_info", AUTH_KEY, answer_server_info},
    {"GET", "/model_info", AUTH_KEY, answer_model_info},
    {"GET", "/get_server_info", AUTH_KEY, answer_server_info},
    {"GET", "/get_model_info", AUTH_KEY, answer_model_info},
    {"GET", "/get_load", AUTH_KEY, answer_load},
    {"GET", "/tokenizer_info", AUTH_KEY, answer_tokenizer_info},
    {"GET", "/metrics", AUTH_METRICS, answer_metrics},
    {"GET", "/api/memory", AUTH_ADMIN, answer_memory},
    {"GET", "/api/status", AUTH_ADMIN, answer_status},
    {"GET", "/api/overview", AUTH_KEY, answer_overview},
    {"GET", "/api/requests", AUTH_KEY, answer_trace},
    {"GET", "/api/history", AUTH_ADMIN, answer_history},
    {"GET", "/api/log", AUTH_ADMIN, answer_log},
    {"GET", "/api/models/pull", AUTH_ADMIN, answer_pull},
    {"POST", "/api/models/pull", AUTH_ADMIN, order_pull},
    {"DELETE", "/api/models/pull", AUTH_ADMIN, cancel_pull},
    {"POST", "/api/hot-cache/clear", AUTH_ADMIN, NULL, REQUEST_CLEAR},
    {"POST", "/api/ssd-cache/clear", AUTH_ADMIN, NULL, REQUEST_CLEAR_SSD},
    {"POST", "/api/trim", AUTH_ADMIN, NULL, REQUEST_TRIM},
};

/* Routers tokenize by these: the request as it is, and nothing is computed. */
static const struct {
    const char *path;
    const struct wire *wire;
} renders[] = {
    {"/v1/chat/completions/render", &wire_chat},
    {"/v1/completions/render", &wire_completion},
    {"/v1/messages/render", &wire_messages},
    {"/v1/responses/render", &wire_responses},
};

/* The table's rows, then a POST for each of `renders` and each dialect. False: there are not so many. */
static bool route_at(size_t i, struct route *ret)
{
    if (i < COUNT_OF(routes)) {
        *ret = routes[i];
        return true;
    }
    i -= COUNT_OF(routes);
    if (i < COUNT_OF(renders)) {
        *ret = (struct route){"POST", renders[i].path, AUTH_KEY, NULL, REQUEST_RENDER, renders[i].wire};
        return true;
    }
    const struct wire *wire = wire_at(i - COUNT_OF(renders));
    if (wire)
        *ret = (struct route){"POST", wire->route, AUTH_KEY, NULL, REQUEST_GENERATE, wire};
    return wire != NULL;
}

const char *const api_vital_paths[] = {"/live", "/health", NULL};

/* The id, which may have slashes, is between the parts before and after the star. */
static bool star_matches(struct slice own, size_t star, struct slice path, struct slice *rest)
{
    size_t behind = own.len - star - 1;
    if (path.len <= star + behind || !slice_starts(path, slice_sub(own, 0, star)) ||
        !slice_eq(slice_sub(path, path.len - behind, path.len), slice_sub(own, star + 1, own.len)))
        return false;
    *rest = slice_sub(path, star, path.len - star - behind);
    return true;
}

/* "/v1/..." matches without its "/v1" too. */
static bool path_matches(const struct route *t, struct slice path, struct slice *rest)
{
    struct slice own = slice_of(t->path), version = SLICE("/v1");
    if (slice_starts(own, SLICE("/v1/")) && !slice_starts(path, SLICE("/v1/")))
        own = slice_sub(own, version.len, own.len);
    const char *star = memchr(own.ptr, '*', own.len);
    if (star)
        return star_matches(own, (size_t)(star - own.ptr), path, rest);
    if (own.len == 1 || own.ptr[own.len - 1] != '/') {
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

/* False: 404 or 405 in `why`, and for the latter the allowed methods. */
static bool find_route(const struct http_request *r, struct route *ret, struct slice *rest, char allow[64],
                       struct reject *why)
{
    struct slice path = http_request_path(r), method = http_request_method(r);
    allow[0] = 0;
    struct route t;
    for (size_t i = 0; route_at(i, &t); i++) {
        if (!path_matches(&t, path, rest) || !is_served(r, &t))
            continue;
        if (method_matches(&t, method)) {
            *ret = t;
            return true;
        }
        size_t at = strlen(allow);
        snprintf(allow + at, 64 - at, "%s%s", at ? ", " : "", t.method);
    }
    int shown = (int)MIN_OF(path.len, (size_t)200);
    if (allow[0])
        reject_set(why, REJECT_METHOD_NOT_ALLOWED, NULL, "%.*s takes %s, not %.*s.", shown, path.ptr, allow,
                   (int)MIN_OF(method.len, (size_t)20), method.ptr);
    else
        reject_set(why, REJECT_NOT_FOUND, NULL, "There is no route %.*s.%s", shown, path.ptr,
                   slice_starts(path, SLICE("/v1/v1/")) ? " Leave /v1 out of the client's base URL." : "");
    return false;
}

/* A page of an allowed origin may use what clients of the API use. */
static bool is_shared(const struct http_request *r, const struct route *t)
{
    return http_request_listener(r) == API_LISTENER_MAIN && (t->need == AUTH_NONE || t->need == AUTH_KEY);
}

/* The methods that pages may use on the path; empty: none. */
static void find_shared(const struct http_request *r, char methods[64])
{
    struct route t;
    struct slice rest;
    methods[0] = 0;
    for (size_t i = 0; route_at(i, &t); i++) {
        size_t at = strlen(methods);
        if (is_shared(r, &t) && path_matches(&t, http_request_path(r), &rest))
            snprintf(methods + at, 64 - at, "%s%s", at ? ", " : "", t.method);
    }
}

/* ---- the handler ---- */

/* Before the body, in the envelope of the path's dialect. */
static int refuse_early(struct api *a, struct http_request *r, struct request_id id, const struct auth *auth,
                        const struct reject *why)
{
    const struct reject_envelope *envelope = &frame_of(r)->envelope;
    char text[33];
    request_id_text(id, text);
    refuse_request(a, r, text, auth, envelope, why);
    return (int)envelope->status(why);
}

/* The holders of several keys share the connections. */
static bool has_share(const struct api *a, struct http_request *r, const struct auth *auth,
                      struct reject *why)
{
    bool shared = auth->key && !auth->admin && keyring_count(a->opts.keys, KEYRING_MODELS) > 1;
    if (!shared || http_request_share(r, auth->tenant))
        return true;
    return reject_set(why, REJECT_TOO_MANY_REQUESTS, NULL,
                      "The requests of this API key have most of the server's connections. Wait until some "
                      "have ended, or raise --max-connections.");
}

/* Open routes count for no share of the connections, so a slow body there may not hold one. */
static bool has_needless_body(const struct http_request *r, const struct route *t, struct reject *why)
{
    struct slice length;
    bool sized = http_request_header(r, "content-length", &length) && !slice_eq(length, SLICE("0"));
    if ((t->need != AUTH_NONE && t->need != AUTH_PAGE) ||
        (!sized && !http_request_header(r, "transfer-encoding", &length)))
        return false;
    return reject_set(why, REJECT_REQUEST_TOO_LARGE, NULL,
                      "%s %s takes no body: send the request without one.", t->method, t->path),
           true;
}

/* The model of a route's path; -1: the path names none. */
static int model_of(const struct api *a, const struct route *t, struct slice rest, struct reject *why)
{
    if (t->kind != REQUEST_LOAD && t->kind != REQUEST_UNLOAD)
        return -1;
    int index = model_lookup_find(a, rest);
    if (index < 0)
        model_lookup_refuse(a, rest, why);
    return index;
}

static int begin_exchange(struct api *a, struct http_request *r, const struct route *t, struct slice rest,
                          struct request_id id, const struct auth *auth)
{
    struct reject why = {0};
    struct exchange *x;
    if (!api_is_ready(a, &why) || (t->kind == REQUEST_GENERATE && memory_refusal_by_guard(a, &why)))
        return refuse_early(a, r, id, auth, &why);
    struct responses_page page = {0};
    int model_index = model_of(a, t, rest, &why);
    if (t->kind == REQUEST_ITEMS)
        responses_list_find(r, &page, &why);
    if (why.kind)
        return refuse_early(a, r, id, auth, &why);
    if (atomic_load(&a->requests_now) >= a->live.requests_max) {
        why.retry_after_s = memory_refusal_retry_s(a);
        reject_set(&why, REJECT_TOO_MANY_REQUESTS, NULL,
                   "%u requests are in progress, the limit of --max-requests. Try again later.",
                   a->live.requests_max);
        return refuse_early(a, r, id, auth, &why);
    }
    struct exchange_route route = {t->path, t->kind, t->wire, &frame_of(r)->envelope, t->need == AUTH_ADMIN};
    if (exchange_create(a, r, &route, id, auth, &x) < 0) {
        memory_refusal(a, a->opts.text, sizeof(*x), atomic_load(&a->requests_now), &why);
        return refuse_early(a, r, id, auth, &why);
    }
    x->model_index = model_index;
    if (t->kind == REQUEST_ITEMS && !responses_list_begin(x, rest, &page)) {
        exchange_free(x);
        memory_refusal(a, a->opts.text, page.after.len, atomic_load(&a->requests_now), &why);
        return refuse_early(a, r, id, auth, &why);
    }
    http_request_set_user(r, x);
    return 0;
}

int routes_begin(void *api, struct http_request *r)
{
    struct api *a = api;
    struct reject why = {0};
    struct request_id id = request_id_new();
    struct auth auth;
    struct slice rest;
    char text[33], allow[64], shared[64];
    struct client_ids given;
    request_id_text(id, text);
    client_ids_read(r, &given);
    client_ids_return(&given, text, r);
    http_request_set_user(r, NULL);
    if (frame_of(r)->id_header)
        http_header_set(r, frame_of(r)->id_header, text);
    struct route t;
    if (!find_route(r, &t, &rest, allow, &why)) {
        find_shared(r, shared);
        if (cors_preflight(a->opts.origins, r, shared))
            return 204;
        if (shared[0] || !allow[0])
            cors_share(a->opts.origins, r);
        if (allow[0])
            http_header_set(r, "allow", allow);
        struct reject none;
        auth_check(a->opts.keys, r, AUTH_NONE, &auth, &none);
        return refuse_early(a, r, id, &auth, &why);
    }
    if (is_shared(r, &t))
        cors_share(a->opts.origins, r);
    if (!auth_check(a->opts.keys, r, t.need, &auth, &why)) {
        audit_refused(&a->refusals, r, &why, clock_now_ns());
        return refuse_early(a, r, id, &auth, &why);
    }
    if (has_needless_body(r, &t, &why))
        return refuse_early(a, r, id, &auth, &why);
    if (t.need != AUTH_NONE && t.need != AUTH_PAGE && !has_share(a, r, &auth, &why))
        return refuse_early(a, r, id, &auth, &why);
    return t.answer ? 0 : begin_exchange(a, r, &t, rest, id, &auth);
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
    struct route t;
    bool found = find_route(r, &t, &call.rest, allow, &why);
    ASSERT(found && t.answer);
    if (!auth_check(call.api->opts.keys, r, t.need, &call.auth, &why))
        refuse(&call, &why);
    else
        t.answer(&call);
}

void routes_refusing(void *api, struct http_request *r, struct http_wording *w)
{
    const struct api *a = api;
    if (messages_owns(http_request_path(r)))
        messages_word(r, w);
    /* Refused before its route was looked up: a page may read why. */
    if (w->id && http_request_listener(r) == API_LISTENER_MAIN)
        cors_share(a->opts.origins, r);
    refuse_note(api, r, w);
}
