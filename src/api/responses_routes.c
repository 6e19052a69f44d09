/* responses_routes.c - a response of another tenant is reported as not found, too. */
#include "api/responses_routes.h"

#include "api/memory_refusal.h"
#include "api/refuse.h"
#include "api/responses.h"
#include "api/responses_page.h"

#include "base/check.h"
#include "base/clock.h"

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

/* What the query asks for. False: 400 is answered. */
static bool find_page(const struct call *c, struct responses_page *ret)
{
    struct reject why = {0};
    struct slice limit, order = SLICE("asc");
    *ret = (struct responses_page){0};
    http_request_query(c->http, "after", &ret->after);
    http_request_query(c->http, "order", &order);
    ret->newest_first = slice_eq(order, SLICE("desc"));
    if (!ret->newest_first && !slice_eq(order, SLICE("asc"))) {
        reject_value(&why, "order", "order is asc or desc.");
    } else if (http_request_query(c->http, "limit", &limit) &&
               (!slice_u64(limit, RESPONSES_PAGE_MAX, &ret->limit) || ret->limit == 0)) {
        reject_value(&why, "limit", "limit is a number from 1 to %d.", RESPONSES_PAGE_MAX);
    } else {
        return true;
    }
    refuse(c, &why);
    return false;
}

static void write_items(const struct call *c, struct slice items, const struct responses_page *page)
{
    struct reject why = {0};
    struct buf body;
    buf_init(&body, SIZE_MAX / 4, &c->api->text);
    if (responses_page_write(items, page, &body)) {
        respond_stored(c, &body);
    } else {
        reject_set(&why, REJECT_ITEM_NOT_FOUND, "after", "after: the response has no item %.*s.",
                   (int)MIN_OF(page->after.len, (size_t)80), page->after.ptr);
        refuse(c, &why);
    }
    buf_done(&body);
}

void responses_answer_items(const struct call *c)
{
    struct responses_key key;
    struct responses_page page;
    struct buf all;
    if (!find_page(c, &page))
        return;
    struct responses_items *items =
        response_key(c, &key) ? responses_store_take(c->api->responses, key, clock_now_ns()) : NULL;
    if (!items) {
        refuse_response(c);
        return;
    }
    buf_init(&all, SIZE_MAX / 4, &c->api->text);
    responses_items_write(items, false, &all);
    responses_items_unref(items);
    if (all.error)
        respond_stored(c, &all);
    else
        write_items(c, buf_slice(&all), &page);
    buf_done(&all);
}

void responses_answer_delete(const struct call *c)
{
    struct responses_key key;
    char body[128];
    if (!response_key(c, &key) || !responses_store_delete(c->api->responses, key)) {
        refuse_response(c);
        return;
    }
    snprintf(body, sizeof(body), "{\"id\":\"%.*s\",\"object\":\"response\",\"deleted\":true}",
             SLICE_ARGS(c->rest));
    http_respond(c->http, 200, JSON, slice_of(body));
}

void responses_refuse_cancel(const struct call *c)
{
    struct reject why = {0};
    reject_unsupported(&why, NULL,
                       "Only background responses can be cancelled, and they are not supported. Close the "
                       "connection, or DELETE /v1/requests/{id}.");
    refuse(c, &why);
}
