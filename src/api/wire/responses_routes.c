/* responses_routes.c - a response of another tenant is reported as not found, too. */
#include "api/wire/responses_routes.h"

#include "api/api_state.h"
#include "api/memory_refusal.h"
#include "api/refuse.h"
#include "api/reject_http.h"
#include "api/responses_store.h"
#include "api/wire/responses.h"

#include "base/check.h"
#include "base/clock.h"
#include "gen/reject.h"
#include "http/http_request.h"

#include <stdio.h>

#define JSON "application/json"

static void refuse(const struct call *c, const struct reject *why)
{
    refuse_request(c->api, c->http, "", &c->auth, &reject_openai, why);
}

static bool response_key(const struct call *c, struct responses_key *ret)
{
    ret->tenant = c->auth.tenant;
    return c->api->responses && responses_parse_id(c->rest, &ret->id);
}

static void refuse_response(const struct call *c)
{
    struct reject why = {0};
    reject_set(&why, REJECT_RESPONSE_NOT_FOUND, NULL,
               "There is no stored response %.*s. It may have been deleted, or left the store.",
               (int)MIN_OF(c->rest.len, (size_t)60), c->rest.ptr);
    refuse(c, &why);
}

static void respond_stored(const struct call *c, struct buf *body)
{
    struct reject why = {0};
    if (body->error) {
        memory_refusal(c->api, c->api->opts.text, body->capacity, atomic_load(&c->api->requests_now), &why);
        refuse(c, &why);
    } else {
        http_respond_buf(c->http, 200, JSON, body);
    }
}

void responses_answer(const struct call *c)
{
    struct responses_key key;
    struct buf body;
    buf_init(&body, SIZE_MAX / 4, &c->api->text);
    if (response_key(c, &key) && responses_store_reply(c->api->responses, key, clock_now_ns(), &body))
        respond_stored(c, &body);
    else
        refuse_response(c);
    buf_done(&body);
}

void responses_answer_delete(const struct call *c)
{
    struct responses_key key;
    if (!response_key(c, &key) || !responses_store_delete(c->api->responses, key)) {
        refuse_response(c);
        return;
    }
    route_respond_deleted(c, c->rest, "response");
}

void responses_refuse_cancel(const struct call *c)
{
    struct reject why = {0};
    reject_unsupported(&why, NULL,
                       "Only background responses can be cancelled, and they are not supported. Close the "
                       "connection, or DELETE /v1/requests/{id}.");
    refuse(c, &why);
}
