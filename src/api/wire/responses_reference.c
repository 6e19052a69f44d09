/* responses_reference.c - item_reference: an item of a stored response, by its id.
 *
 * The ids of items have the id of their response: msg_RESPONSE_0, item_RESPONSE_2. An item that the client
 * gave an id of its own cannot be found by it. References are resolved before the input is stored, so that
 * later responses do not depend on the response that an item came from. */
#include "api/request/field.h"
#include "api/responses_store.h"
#include "api/wire/responses.h"

#include "base/clock.h"
#include "engine/stream.h"
#include "gen/json_depth.h"
#include "gen/reject.h"

#include <stdio.h>

#define RESPONSE_ID_CHARS 32

static bool is_reference(const json_t *item)
{
    const char *type = field_string_in(item, "type");
    return strcmp(type, "item_reference") == 0 ||
           (type[0] == 0 && field_string_in(item, "role")[0] == 0 && field_string_in(item, "id")[0]);
}

/* The response of an item's id; false: the id has none. */
static bool response_of(const char *id, struct request_id *ret)
{
    const char *from = strchr(id, '_');
    return from && strlen(from + 1) > RESPONSE_ID_CHARS && from[1 + RESPONSE_ID_CHARS] == '_' &&
           request_id_parse(from + 1, RESPONSE_ID_CHARS, ret);
}

static json_t *parse(const struct responses_conversion *c, struct slice items)
{
    struct charge charge = request_memory_charge(c->memory);
    struct buf text;
    json_error_t e;
    buf_init(&text, SIZE_MAX / 4, &charge);
    buf_putc(&text, '[');
    buf_put_slice(&text, items);
    buf_putc(&text, ']');
    bool fits = text.error == 0 && json_depth_within(buf_slice(&text), c->limits->json_depth_max + 1);
    json_t *ret = fits ? request_memory_parse(c->memory, text.ptr, text.len, &e) : NULL;
    buf_done(&text);
    if (!ret)
        responses_no_memory(c);
    return ret;
}

/* The items of the response go to c->stored. */
static bool load(struct responses_conversion *c, struct request_id id)
{
    struct responses_key key = {c->limits->tenant, id};
    struct responses_items *found = responses_store_take(c->limits->responses, key, clock_now_ns());
    json_t *items = found ? parse(c, responses_items_own(found)) : NULL, *item;
    bool ok = !found || items;
    size_t i;
    responses_items_unref(found);
    json_array_foreach(items, i, item)
        if (ok && field_string_in(item, "id")[0])
            ok = json_object_set(c->stored, field_string_in(item, "id"), item) == 0 || responses_no_memory(c);
    json_decref(items);
    return ok;
}

/* Each response is looked up once: many references to it cost one parse. */
static bool load_once(struct responses_conversion *c, const char *id)
{
    char name[RESPONSE_ID_CHARS + 8];
    struct request_id response;
    if (!c->limits->responses || !response_of(id, &response))
        return true;
    snprintf(name, sizeof(name), "resp:%.*s", RESPONSE_ID_CHARS, strchr(id, '_') + 1);
    if (json_object_get(c->stored, name))
        return true;
    return (json_object_set_new(c->stored, name, json_true()) == 0 || responses_no_memory(c)) &&
           load(c, response);
}

static bool resolve(struct responses_conversion *c, json_t *input, size_t index, const json_t *reference)
{
    const char *id = field_string_in(reference, "id");
    if (!c->stored)
        c->stored = json_object();
    if (!c->stored)
        return responses_no_memory(c);
    if (!load_once(c, id))
        return false;
    json_t *item = json_object_get(c->stored, id);
    if (!json_is_object(item)) {
        snprintf(c->at, sizeof(c->at), "input[%zu]", index);
        return reject_set(c->why, REJECT_ITEM_NOT_FOUND, c->at,
                          "%s: there is no stored item %.80s. Its response may have been deleted, or left "
                          "the store (--response-store, --response-ttl). Send the item.",
                          c->at, id);
    }
    json_t *copy = json_deep_copy(item); /* twice in one input: conversions work in place */
    return (copy && json_array_set_new(input, index, copy) == 0) || responses_no_memory(c);
}

bool responses_resolve(struct responses_conversion *c)
{
    json_t *input = json_object_get(c->request->root, "input"), *item;
    size_t i;
    if (!json_is_array(input))
        return true;
    json_array_foreach(input, i, item)
        if (is_reference(item) && !resolve(c, input, i, item))
            return false;
    return true;
}
