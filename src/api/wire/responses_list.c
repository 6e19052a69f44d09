/* responses_list.c - copies the query: its client may leave while a prep thread reads it. */
#include "api/wire/responses_list.h"

#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/responses_store.h"
#include "api/wire/responses.h"
#include "api/wire/responses_page.h"

#include "base/check.h"
#include "base/clock.h"
#include "gen/reject.h"
#include "http/http_request.h"

#include <errno.h>
#include <stdio.h>

bool responses_list_find(const struct http_request *r, struct responses_page *ret, struct reject *why)
{
    struct slice limit, order = SLICE("asc");
    *ret = (struct responses_page){0};
    http_request_query(r, "after", &ret->after);
    http_request_query(r, "order", &order);
    ret->newest_first = slice_eq(order, SLICE("desc"));
    if (!ret->newest_first && !slice_eq(order, SLICE("asc")))
        return reject_value(why, "order", "order is asc or desc.");
    if (http_request_query(r, "limit", &limit) &&
        (!slice_u64(limit, RESPONSES_PAGE_MAX, &ret->limit) || ret->limit == 0))
        return reject_value(why, "limit", "limit is a number from 1 to %d.", RESPONSES_PAGE_MAX);
    return true;
}

bool responses_list_begin(struct exchange *x, struct slice id, const struct responses_page *page)
{
    ASSERT(!x->list.after);
    struct exchange_list *l = &x->list;
    snprintf(l->id, sizeof(l->id), "%.*s", (int)MIN_OF(id.len, sizeof(l->id) - 1), id.ptr);
    l->page = *page;
    l->page.wanted = &x->gen.wanted;
    if (page->after.len == 0)
        return true;
    l->after = request_memory_alloc(&x->gen.memory, page->after.len);
    if (!l->after)
        return false;
    memcpy(l->after, page->after.ptr, page->after.len);
    l->page.after.ptr = l->after;
    return true;
}

void responses_list_done(struct exchange *x)
{
    if (x->list.after)
        request_memory_free(&x->gen.memory, x->list.after, x->list.page.after.len);
    x->list.after = NULL;
}

static struct responses_items *find(const struct exchange *x)
{
    struct responses_key key = {.tenant = x->gen.tenant};
    bool is_id = x->api->responses && responses_parse_id(slice_of(x->list.id), &key.id);
    return is_id ? responses_store_take(x->api->responses, key, clock_now_ns()) : NULL;
}

static bool write_page(struct exchange *x, struct slice items)
{
    const struct responses_page *page = &x->list.page;
    switch (responses_page_write(items, page, &x->reply)) {
    case 0:
        return true;
    case -ENOENT:
        return reject_set(&x->gen.reject, REJECT_ITEM_NOT_FOUND, "after",
                          "after: the response has no item %.*s.", (int)MIN_OF(page->after.len, (size_t)80),
                          page->after.ptr);
    default:
        return reject_unwanted(&x->gen.reject, wanted_check(page->wanted));
    }
}

bool responses_list_write(struct exchange *x)
{
    struct charge charge = request_memory_charge(&x->gen.memory);
    struct responses_items *items = find(x);
    struct buf all;
    if (!items)
        return reject_set(&x->gen.reject, REJECT_RESPONSE_NOT_FOUND, NULL,
                          "There is no stored response %.60s. It may have been deleted, or left the store.",
                          x->list.id);
    buf_init(&all, SIZE_MAX / 4, &charge);
    responses_items_write(items, false, &all);
    responses_items_unref(items);
    bool ok = all.error == 0 && write_page(x, buf_slice(&all));
    if (x->gen.reject.kind == REJECT_NONE && (all.error || x->reply.error))
        ok = memory_refusal_of(x->api, &x->gen.memory, &x->gen.reject);
    buf_done(&all);
    return ok;
}
