/* schema_doc.c - the document: its schemas, drafts, names and references.
 *
 * Schemas are found through the keywords that contain them, so that values of an enum are never
 * taken for schemas. A reference may point to any other place; the schema there is added then. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const holds_one[] = {"additionalProperties",
                                        "additionalItems",
                                        "items",
                                        "contains",
                                        "propertyNames",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "unevaluatedItems",
                                        "unevaluatedProperties"};
static const char *const holds_list[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
static const char *const holds_map[] = {"properties",  "patternProperties", "$defs",
                                        "definitions", "dependentSchemas",  "dependencies"};

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

/* ---- nodes ---- */

static uint32_t *slot_of(struct schema_work *w, const json_t *json)
{
    ASSERT(w->node_count < w->node_slot_count);
    uint64_t mix = ((uint64_t)(uintptr_t)json >> 4) * 0x9E3779B97F4A7C15ull;
    uint32_t at = (uint32_t)(mix >> 32) & (w->node_slot_count - 1);
    while (w->node_slots[at] && w->nodes[w->node_slots[at] - 1].json != json)
        at = (at + 1) & (w->node_slot_count - 1);
    return &w->node_slots[at];
}

static bool grow(struct schema_work *w)
{
    uint32_t capacity = w->node_capacity ? w->node_capacity * 2 : 256;
    struct schema_node *nodes = schema_keep(w, capacity * sizeof(*nodes));
    uint32_t *slots = schema_keep(w, (size_t)capacity * 2 * sizeof(*slots));
    if (!slots) /* A refused allocation refuses all later ones. */
        return false;
    if (w->node_count)
        memcpy(nodes, w->nodes, w->node_count * sizeof(*nodes));
    w->nodes = nodes;
    w->node_capacity = capacity;
    w->node_slots = slots;
    w->node_slot_count = capacity * 2;
    for (uint32_t i = 0; i < w->node_count; i++)
        *slot_of(w, nodes[i].json) = i + 1;
    ASSERT(w->node_count < w->node_capacity);
    return true;
}

static bool asserts_nothing(const struct schema_work *w, const json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
        if (schema_word(w->draft, key) == SCHEMA_ASSERTS)
            return false;
    return true;
}

static const char *id_of(const struct schema_work *w, const json_t *json)
{
    if (schema_ref_alone(w, json))
        return NULL;
    const char *id = json_string_value(json_object_get(json, "$id"));
    if (!id && (w->draft == 4 || w->draft == 0))
        id = json_string_value(json_object_get(json, "id"));
    return id;
}

static uint32_t add_node(struct schema_work *w, const json_t *json, uint32_t parent, const char *key,
                         const char *name)
{
    ASSERT(parent < w->node_count);
    if (w->node_count == w->node_capacity && !grow(w))
        return SCHEMA_NODE_TRUE;
    uint32_t n = w->node_count++;
    const char *id = id_of(w, json);
    bool own = n == 2 || (id && id[0] && id[0] != '#');
    w->nodes[n] = (struct schema_node){json, parent, own ? n : w->nodes[parent].resource,
                                       key,  name,   asserts_nothing(w, json)};
    *slot_of(w, json) = n + 1;
    return n;
}

static void walk(struct schema_work *w, uint32_t node, uint32_t depth);

static void walk_in(struct schema_work *w, uint32_t parent, const json_t *json, const char *key,
                    const char *name, uint32_t depth)
{
    if (!json_is_object(json) || schema_failed(w) || *slot_of(w, json))
        return;
    uint32_t n = add_node(w, json, parent, key, name);
    if (!w->error)
        walk(w, n, depth);
}

/* A name for the element of a list. */
static const char *index_name(struct schema_work *w, size_t index)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%zu", index);
    char *kept = schema_keep(w, (size_t)len + 1);
    return kept ? memcpy(kept, text, (size_t)len + 1) : NULL;
}

static void walk(struct schema_work *w, uint32_t node, uint32_t depth)
{
    ASSERT(node < w->node_count);
    const json_t *json = w->nodes[node].json;
    if (depth > SCHEMA_DEPTH_MAX) {
        schema_fail(w, -E2BIG, node, "schemas are nested more than %d deep", SCHEMA_DEPTH_MAX);
        return;
    }
    schema_check_words(w, node);
    for (size_t i = 0; i < COUNT_OF(holds_one); i++)
        walk_in(w, node, json_object_get(json, holds_one[i]), holds_one[i], NULL, depth + 1);
    for (size_t i = 0; i < COUNT_OF(holds_list); i++) {
        size_t index;
        json_t *item;
        const json_t *list = json_object_get(json, holds_list[i]);
        if (json_is_array(list))
            json_array_foreach(list, index, item)
                walk_in(w, node, item, holds_list[i], index_name(w, index), depth + 1);
    }
    for (size_t i = 0; i < COUNT_OF(holds_map); i++) {
        const char *name;
        json_t *item;
        json_object_foreach(json_object_get(json, holds_map[i]), name, item)
            walk_in(w, node, item, holds_map[i], name, depth + 1);
    }
}

uint32_t schema_node_of(struct schema_work *w, const json_t *json, uint32_t parent, const char *key,
                        const char *name)
{
    ASSERT(parent < w->node_count);
    if (json_is_boolean(json))
        return json_is_true(json) ? SCHEMA_NODE_TRUE : SCHEMA_NODE_FALSE;
    if (!json_is_object(json)) {
        schema_fail(w, -EINVAL, parent, "\"%s\" must be a schema: an object or a boolean", name ? name : key);
        return SCHEMA_NODE_TRUE;
    }
    uint32_t known = *slot_of(w, json);
    if (known)
        return known - 1;
    uint32_t n = add_node(w, json, parent, key, name);
    if (!w->error)
        walk(w, n, 1);
    return n;
}

/* ---- drafts ---- */

static uint32_t draft_of(struct schema_work *w, const json_t *schema)
{
    static const struct {
        const char *text;
        uint32_t draft;
    } all[] = {{"draft-03", 3}, {"draft-04", 4},   {"draft-06", 6},
               {"draft-07", 7}, {"2019-09", 2019}, {"2020-12", 2020}};
    const json_t *said = json_object_get(schema, "$schema");
    const char *text = json_string_value(said);
    if (text && strstr(text, "://") && !strstr(text, "json-schema.org"))
        schema_fail(w, -ENOTSUP, 2, "\"$schema\" %.100s is not one of JSON Schema's own", text);
    if (!text)
        return 0;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (strstr(text, all[i].text)) {
            if (all[i].draft == 3)
                schema_fail(w, -ENOTSUP, 2, "\"$schema\" draft-03 is not supported; drafts 4 to 2020-12 are");
            return all[i].draft;
        }
    return 0;
}

int schema_doc_open(struct schema_work *w, const json_t *schema)
{
    if (!is_schema(schema))
        return schema_fail(w, -EINVAL, 0, "a schema is an object or a boolean");
    if (!grow(w))
        return w->error;
    w->nodes[0] = (struct schema_node){.json = json_true(), .any = true};
    w->nodes[1] = (struct schema_node){.json = json_false()};
    w->node_count = 2;
    *slot_of(w, json_true()) = 1;
    *slot_of(w, json_false()) = 2;
    if (!json_is_object(schema))
        return w->error;
    w->draft = draft_of(w, schema);
    schema_node_of(w, schema, 0, NULL, NULL);
    return w->error;
}

/* ---- references ---- */

/* One step of a JSON pointer, percent-decoded and with ~0 and ~1 replaced. False: too long. */
static bool decode_step(const char *from, size_t len, char ret[256])
{
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        char c = from[i];
        if (c == '%' && i + 2 < len) {
            char hex[3] = {from[i + 1], from[i + 2], 0};
            c = (char)strtoul(hex, NULL, 16);
            i += 2;
        }
        if (out + 1 >= 256)
            return false;
        ret[out++] = c;
    }
    ret[out] = 0;
    size_t at = 0;
    for (size_t i = 0; i < out; i++)
        if (ret[i] == '~' && (ret[i + 1] == '0' || ret[i + 1] == '1'))
            ret[at++] = ret[++i] == '0' ? '~' : '/';
        else
            ret[at++] = ret[i];
    ret[at] = 0;
    return true;
}

static const json_t *step(const json_t *at, const char *name)
{
    if (json_is_object(at))
        return json_object_get(at, name);
    char *end;
    unsigned long index = strtoul(name, &end, 10);
    return json_is_array(at) && *name && !*end ? json_array_get(at, index) : NULL;
}

static uint32_t at_pointer(struct schema_work *w, uint32_t resource, const char *pointer)
{
    ASSERT(resource < w->node_count && pointer[0] == '/');
    const json_t *at = w->nodes[resource].json;
    uint32_t node = resource;
    const char *kept = schema_keep(w, strlen(pointer) + 1);
    if (!kept)
        return SCHEMA_NODE_TRUE;
    memcpy((char *)kept, pointer + 1, strlen(pointer));
    while (at && *pointer == '/') {
        char name[256];
        size_t len = strcspn(++pointer, "/");
        at = decode_step(pointer, len, name) ? step(at, name) : NULL;
        pointer += len;
    }
    return at && is_schema(at) ? schema_node_of(w, at, node, kept, NULL) : UINT32_MAX;
}

static bool is_anchor(const struct schema_work *w, uint32_t node, const char *name)
{
    ASSERT(node < w->node_count);
    const json_t *json = w->nodes[node].json;
    const char *id = id_of(w, json);
    const char *anchor = json_string_value(json_object_get(json, "$anchor"));
    const char *dynamic = json_string_value(json_object_get(json, "$dynamicAnchor"));
    return (anchor && strcmp(anchor, name) == 0) || (dynamic && strcmp(dynamic, name) == 0) ||
           (id && id[0] == '#' && strcmp(id + 1, name) == 0);
}

static uint32_t at_anchor(struct schema_work *w, uint32_t resource, const char *name)
{
    for (uint32_t i = 2; i < w->node_count; i++)
        if (w->nodes[i].resource == resource && is_anchor(w, i, name))
            return i;
    return UINT32_MAX;
}

/* `ref` without its fragment against `base`, as far as documents need it: no dots in paths. */
static bool join(const char *base, const char *ref, size_t len, char ret[512])
{
    const char *colon = strstr(base, "://"), *path = colon ? strchr(colon + 3, '/') : NULL;
    const char *last = strrchr(base, '/');
    size_t head = 0;
    if (memchr(ref, ':', len) || !colon)
        head = 0;
    else if (ref[0] == '/')
        head = path ? (size_t)(path - base) : strlen(base);
    else
        head = path && last ? (size_t)(last - base) + 1 : 0;
    if (!memchr(ref, ':', len) && !colon && ref[0] != '/' && last)
        head = (size_t)(last - base) + 1;
    if (head + len >= 512 || (len && ref[0] == '.'))
        return false;
    memcpy(ret, base, head);
    memcpy(ret + head, ref, len);
    ret[head + len] = 0;
    return true;
}

/* The absolute name of a resource. */
static bool name_of(const struct schema_work *w, uint32_t resource, char ret[512], uint32_t depth)
{
    ASSERT(resource >= 2 && resource < w->node_count);
    const char *id = id_of(w, w->nodes[resource].json);
    char base[512] = "";
    if (depth > SCHEMA_DEPTH_MAX)
        return false;
    if (resource != 2 && !name_of(w, w->nodes[w->nodes[resource].parent].resource, base, depth + 1))
        return false;
    return join(base, id ? id : "", id ? strcspn(id, "#") : 0, ret);
}

static uint32_t resource_named(struct schema_work *w, uint32_t from, const char *ref, size_t len)
{
    char base[512], wanted[512], name[512];
    if (!name_of(w, from, base, 0) || !join(base, ref, len, wanted))
        return UINT32_MAX;
    for (uint32_t i = 2; i < w->node_count; i++)
        if (w->nodes[i].resource == i && name_of(w, i, name, 0) && name[0] && strcmp(name, wanted) == 0)
            return i;
    return UINT32_MAX;
}

uint32_t schema_doc_resolve(struct schema_work *w, uint32_t node, const char *ref)
{
    ASSERT(node < w->node_count && ref);
    uint32_t resource = w->nodes[node].resource;
    if (w->draft == 0 && node != 2 && resource == node) {
        schema_fail(w, -ENOTSUP, node,
                    "\"$id\" beside \"$ref\" depends on the draft: \"$schema\" must name one");
        return SCHEMA_NODE_TRUE;
    }
    size_t len = strcspn(ref, "#");
    if (len)
        resource = resource_named(w, resource, ref, len);
    if (resource == UINT32_MAX) {
        schema_fail(w, -ENOTSUP, node,
                    "\"$ref\" \"%.100s\" points outside the document; that is not supported", ref);
        return SCHEMA_NODE_TRUE;
    }
    const char *fragment = ref[len] ? ref + len + 1 : "";
    uint32_t found = !fragment[0]         ? resource
                     : fragment[0] == '/' ? at_pointer(w, resource, fragment)
                                          : at_anchor(w, resource, fragment);
    if (found != UINT32_MAX)
        return found;
    schema_fail(w, -EINVAL, node, "\"$ref\" \"%.100s\" points to nothing in the document", ref);
    return SCHEMA_NODE_TRUE;
}
