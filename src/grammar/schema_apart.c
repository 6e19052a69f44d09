/* schema_apart.c - proves at a glance that two schemas exclude each other: one of them takes objects only,
 * both demand the same member, and allow it different values. Unions are tagged in this way, and oneOf asks
 * for each pair of its options. What is not proved here is left to the expansion (schema_expand.c). */
#include "grammar/schema_work.h"

#include <string.h>

#define HOPS_MAX 4 /* from a $ref to the next */

/* A keyword's value, or NULL where it asserts nothing. */
static const json_t *word_of(const struct schema_work *w, const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value && schema_word(w->draft, key) == SCHEMA_ASSERTS ? value : NULL;
}

/* What a schema of nothing but references leads to. */
static const json_t *target_of(struct schema_work *w, uint32_t node)
{
    const json_t *json = w->nodes[node].json, *ref;
    for (int hops = 0; hops < HOPS_MAX && !w->error && (ref = word_of(w, json, "$ref")) != NULL; hops++) {
        node = schema_doc_resolve(w, node, json_string_value(ref));
        json = w->nodes[node].json;
    }
    return w->error || schema_ref_alone(w, json) ? NULL : json;
}

static bool takes_objects_only(const struct schema_work *w, const json_t *json)
{
    const char *type = json_string_value(word_of(w, json, "type"));
    return type && strcmp(type, "object") == 0;
}

static bool demands(const json_t *required, const char *name)
{
    size_t i;
    json_t *each;
    json_array_foreach((json_t *)required, i, each)
        if (json_is_string(each) && strcmp(json_string_value(each), name) == 0)
            return true;
    return false;
}

static const json_t *member_of(const struct schema_work *w, const json_t *json, const char *name)
{
    const json_t *member = json_object_get(word_of(w, json, "properties"), name);
    return schema_ref_alone(w, member) ? NULL : member;
}

/* Whether the member's const or enum is known to leave the value out. */
static bool leaves_out(const struct schema_work *w, const json_t *member, const json_t *value)
{
    const json_t *one = word_of(w, member, "const"), *many = word_of(w, member, "enum"), *each;
    if (one)
        return !schema_equal(one, value);
    size_t i;
    json_array_foreach((json_t *)many, i, each)
        if (schema_equal(each, value))
            return false;
    return json_is_array(many);
}

/* No text that one of the members takes is taken by the other. */
static bool members_apart(const struct schema_work *w, const json_t *a, const json_t *b)
{
    const json_t *one = word_of(w, a, "const"), *many = word_of(w, a, "enum"), *each;
    if (one)
        return leaves_out(w, b, one);
    size_t i;
    json_array_foreach((json_t *)many, i, each)
        if (!leaves_out(w, b, each))
            return false;
    return json_is_array(many);
}

bool schema_apart(struct schema_work *w, uint32_t node_a, uint32_t node_b)
{
    const json_t *a = target_of(w, node_a), *b = target_of(w, node_b), *name;
    if (!a || !b || !(takes_objects_only(w, a) || takes_objects_only(w, b)))
        return false;
    const json_t *first = word_of(w, a, "required"), *second = word_of(w, b, "required");
    size_t i;
    json_array_foreach((json_t *)first, i, name) {
        const char *text = json_string_value(name);
        const json_t *in_a = text ? member_of(w, a, text) : NULL, *in_b = text ? member_of(w, b, text) : NULL;
        if (in_a && in_b && members_apart(w, in_a, in_b) && demands(second, text))
            return true;
    }
    return false;
}
