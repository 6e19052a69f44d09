/* schema_apart.c - proves at a glance that two schemas exclude each other: one of them takes objects only,
 * both demand the same member, and allow it different values. Unions are tagged in this way, and oneOf asks
 * for each pair of its options. What is not proved here is left to the expansion (schema_expand.c). */
#include "schema/schema_work.h"

#include "base/check.h"

#include <string.h>

#define HOPS_MAX 4 /* from a $ref to the next */

/* A keyword's value, or NULL where it asserts nothing. */
static const json_t *word_of(const struct schema_work *w, const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value && schema_word(w->draft, key) == SCHEMA_ASSERTS ? value : NULL;
}

/* Follows a schema that is nothing but references to its target. */
static const json_t *target_of(struct schema_work *w, uint32_t node)
{
    ASSERT(node < w->node_count);
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

/* The values that a member may have: its const alone, or those of its enum. */
struct values {
    const json_t *one, *many;
    size_t count;
};

/* False: neither keyword is there. */
static bool values_of(const struct schema_work *w, const json_t *member, struct values *ret)
{
    const json_t *one = word_of(w, member, "const"), *many = word_of(w, member, "enum");
    *ret = (struct values){one, many, one ? 1 : json_array_size(many)};
    return one || json_is_array(many);
}

static const json_t *value_at(const struct values *v, size_t i)
{
    ASSERT(i < v->count);
    return v->one ? v->one : json_array_get(v->many, i);
}

/* No value that one of the members may have is the other's. */
static bool members_apart(const struct schema_work *w, const json_t *a, const json_t *b)
{
    struct values of_a, of_b;
    if (!values_of(w, a, &of_a) || !values_of(w, b, &of_b))
        return false;
    for (size_t i = 0; i < of_a.count; i++)
        for (size_t k = 0; k < of_b.count; k++)
            if (schema_equal(value_at(&of_a, i), value_at(&of_b, k)))
                return false;
    return true;
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
