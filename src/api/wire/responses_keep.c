/* responses_keep.c - between requests and stored responses: the input that is stored, the items before it. */
#include "api/responses_store.h"
#include "api/wire/responses.h"

#include "base/clock.h"
#include "base/json/json_write.h"
#include "engine/stream.h"
#include "gen/json_depth.h"
#include "gen/reject.h"

#include <stdio.h>

bool responses_parse_id(struct slice text, struct request_id *ret)
{
    struct slice prefix = SLICE("resp_");
    return slice_starts(text, prefix) && request_id_parse(text.ptr + prefix.len, text.len - prefix.len, ret);
}

/* ---- the input ---- */

/* The item has an id, which no item before it has. */
static bool is_named(const json_t *item, const json_t *ids)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id && id[0] && !json_object_get(ids, id);
}

/* Clients expect an id and a type. */
static bool name_item(const struct responses_conversion *c, json_t *item, size_t index, json_t *ids)
{
    char id[64];
    snprintf(id, sizeof(id), "item_%s_%zu", c->limits->id ? c->limits->id : "0", index);
    bool typed = json_is_string(json_object_get(item, "type"));
    if (!json_is_object(item))
        return true;
    return ((typed || json_object_set_new(item, "type", json_string("message")) == 0) &&
            (is_named(item, ids) || json_object_set_new(item, "id", json_string(id)) == 0) &&
            json_object_set_new(ids, json_string_value(json_object_get(item, "id")), json_true()) == 0) ||
           responses_no_memory(c);
}

static bool keep_item(const struct responses_conversion *c, json_t *item, size_t index, json_t *ids)
{
    struct buf *kept = &c->request->kept;
    if (index > 0)
        buf_puts(kept, RESPONSES_BETWEEN);
    if (!name_item(c, item, index, ids))
        return false;
    json_write_value(kept, item);
    return true;
}

static bool keep_text(const struct responses_conversion *c, json_t *text, json_t *ids)
{
    json_t *item = json_pack("{sssss[{sssO}]}", "type", "message", "role", "user", "content", "type",
                             "input_text", "text", text);
    bool ok = item ? keep_item(c, item, 0, ids) : responses_no_memory(c);
    json_decref(item);
    return ok;
}

static bool keep_all(const struct responses_conversion *c, json_t *input, json_t *ids)
{
    size_t i;
    json_t *item;
    if (!ids)
        return responses_no_memory(c);
    if (json_is_string(input))
        return keep_text(c, input, ids);
    json_array_foreach(input, i, item)
        if (!keep_item(c, item, i, ids))
            return false;
    return true;
}

bool responses_keep_input(struct responses_conversion *c)
{
    struct request *r = c->request;
    struct charge charge = request_memory_charge(c->memory);
    if (r->form->compacts)
        buf_init(&r->kept, SIZE_MAX / 4, &charge);
    if (!r->stores || !c->limits->responses)
        return true;
    buf_init(&r->kept, SIZE_MAX / 4, &charge);
    json_t *ids = json_object();
    bool ok = keep_all(c, json_object_get(r->root, "input"), ids);
    json_decref(ids);
    if (!ok)
        return false;
    r->kept_input = r->kept.len;
    return r->kept.error == 0 || responses_no_memory(c);
}

/* ---- the items before it ---- */

static bool parse_items(struct responses_conversion *c, json_t **ret)
{
    struct charge charge = request_memory_charge(c->memory);
    struct buf text;
    json_error_t e;
    buf_init(&text, SIZE_MAX / 4, &charge);
    buf_putc(&text, '[');
    responses_items_write(c->request->previous, true, &text);
    buf_putc(&text, ']');
    bool fits = text.error == 0 && json_depth_within(buf_slice(&text), c->limits->json_depth_max + 1);
    *ret = fits ? request_memory_parse(c->memory, text.ptr, text.len, &e) : NULL;
    buf_done(&text);
    return *ret || responses_no_memory(c);
}

bool responses_previous(struct responses_conversion *c, json_t **ret)
{
    const json_t *given = json_object_get(c->request->root, "previous_response_id");
    struct responses_key key = {.tenant = c->limits->tenant};
    struct slice text = {json_string_value(given), json_string_length(given)};
    if (text.len == 0)
        return true;
    if (c->limits->responses && responses_parse_id(text, &key.id))
        c->request->previous = responses_store_take(c->limits->responses, key, clock_now_ns());
    if (!c->request->previous)
        return reject_set(c->why, REJECT_PREVIOUS_RESPONSE, "previous_response_id",
                          "There is no stored response %.60s. It may have been deleted, or left the store "
                          "(--response-store, --response-ttl). Send all items of the conversation.",
                          text.ptr);
    return parse_items(c, ret);
}
