/* sessions.c - /v1/sessions/{id}: a session is the engine's, and its id is sought in each loaded model. */
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/refuse.h"
#include "api/request/field.h"
#include "api/route_call.h"
#include "api/wire/wire.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "cache/leases.h"
#include "engine/engine_numbers.h"
#include "gen/reject.h"
#include "http/http_server.h"
#include "registry/registry.h"

#include <string.h>
#include <time.h>

#define BODY_BYTES_MAX 256

/* Gives the session a deadline (UINT64_MAX: leaves it) and tells what it is. False: the client has none. */
static bool find(const struct call *c, uint64_t deadline_ns, struct lease_info *ret, uint32_t *model)
{
    struct lease_id id;
    bool found = false;
    if (!field_session_id(c->rest, id.bytes))
        return false;
    for (uint32_t i = 0; i < api_model_count(c->api) && !found; i++) {
        struct model_lease look;
        if (registry_peek(c->api->opts.registry, i, &look) < 0)
            continue;
        found = engine_session(look.model->engine, &id, c->auth.tenant, ret);
        if (found && deadline_ns != UINT64_MAX)
            (void)engine_session_set(look.model->engine, &id, c->auth.tenant, deadline_ns);
        registry_release_peek(&look);
        *model = i;
    }
    if (found && deadline_ns != UINT64_MAX)
        registry_sessions_changed(c->api->opts.registry);
    return found;
}

static void refuse(const struct call *c, const struct reject *why)
{
    refuse_request(c->api, c->http, "", &c->auth, &openai_frame.envelope, why);
}

static void refuse_unknown(const struct call *c)
{
    struct reject why = {0};
    reject_set(&why, REJECT_NOT_FOUND, NULL, "There is no session %.*s, or it has ended.",
               (int)MIN_OF(c->rest.len, (size_t)60), c->rest.ptr);
    refuse(c, &why);
}

static void respond(const struct call *c, const struct lease_info *s, uint32_t model)
{
    uint64_t now_ns = clock_now_ns(), left_ns = s->deadline_ns > now_ns ? s->deadline_ns - now_ns : 0;
    struct buf body;
    if (s->deadline_ns == 0) {
        route_respond_deleted(c, c->rest, "session");
        return;
    }
    buf_init(&body, 4096, NULL);
    struct json_out j = json_out_object(&body);
    json_put_text(&j, "id", c->rest);
    JSON_PUT_STRINGS(&j, {"object", "session"},
                     {"model", api_model_id(c->api, registry_first_replica(c->api->opts.registry, model))});
    json_put_i64(&j, "expires_at", (int64_t)time(NULL) + (int64_t)(left_ns / NS_PER_S));
    json_put_bool(&j, "follow", s->follows);
    json_put_string(&j, "tier", s->below ? "ssd" : "memory");
    JSON_PUT_U64S(&j, {"tokens", s->tokens}, {"bytes", s->bytes});
    if (s->below)
        json_put_u64(&j, "stored_bytes", s->stored_bytes);
    json_end(&j);
    http_respond(c->http, 200, "application/json", buf_slice(&body));
    buf_done(&body);
}

/* As `find()`; the session has the deadline then, or has ended with 0. */
static void set(const struct call *c, uint64_t deadline_ns)
{
    struct lease_info s;
    uint32_t model = 0;
    if (!find(c, deadline_ns, &s, &model)) {
        refuse_unknown(c);
        return;
    }
    s.deadline_ns = deadline_ns == UINT64_MAX ? s.deadline_ns : deadline_ns;
    respond(c, &s, model);
}

void sessions_show(const struct call *c)
{
    set(c, UINT64_MAX);
}

void sessions_end(const struct call *c)
{
    set(c, 0);
}

void sessions_extend(const struct call *c)
{
    struct reject why = {0};
    struct slice body = http_request_body(c->http);
    json_t *root =
        body.len <= BODY_BYTES_MAX ? json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    uint32_t ttl_s = field_ttl_s(json_object_get(root, "ttl"));
    json_decref(root);
    if (ttl_s > 0) {
        set(c, clock_now_ns() + ttl_s * NS_PER_S);
        return;
    }
    reject_value(&why, "ttl", "The body has a ttl, a time such as \"30m\" or \"12h\", at most a day.");
    refuse(c, &why);
}

bool sessions_check(struct exchange *x)
{
    const struct gen_request *r = &x->request.gen;
    struct lease_id id;
    struct lease_info info;
    if (!r->has_session)
        return true;
    if (r->n > 1)
        return reject_value(&x->gen.reject, "n", "A request that continues a session has one choice.");
    memcpy(id.bytes, r->session_id, sizeof(id.bytes));
    return engine_session(x->gen.model->engine, &id, x->gen.tenant, &info) ||
           reject_set(&x->gen.reject, REJECT_NOT_FOUND, "session",
                      "This client has no such session of %s, or it has ended.", x->gen.model->id);
}
