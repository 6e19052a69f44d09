/* schema_accept.c - does a value satisfy a way or a set? For the values of enums, and to find the way whose
 * order of members an instance has. */
#include "schema/schema_work.h"

#include "base/check.h"

#include <math.h>

#define ACCEPT_DEPTH_MAX 64

uint32_t schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return SCHEMA_NULL;
    case JSON_FALSE:
        return SCHEMA_FALSE;
    case JSON_TRUE:
        return SCHEMA_TRUE;
    case JSON_STRING:
        return SCHEMA_STRING;
    case JSON_ARRAY:
        return SCHEMA_ARRAY;
    case JSON_OBJECT:
        return SCHEMA_OBJECT;
    default:
        return SCHEMA_NUMBER;
    }
}

/* ---- equality ---- */

static bool equal_numbers(const json_t *a, const json_t *b)
{
    struct decimal x, y;
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    return decimal_of(a, &x) && decimal_of(b, &y) && decimal_compare(&x, &y) == 0;
}

static bool equal_objects(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_foreach((json_t *)a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (!other || !schema_equal(value, other))
            return false;
    }
    return true;
}

bool schema_equal(const json_t *a, const json_t *b)
{
    uint32_t type = schema_type_of(a);
    if (type != schema_type_of(b))
        return false;
    if (type == SCHEMA_NUMBER)
        return equal_numbers(a, b);
    if (type == SCHEMA_OBJECT)
        return equal_objects(a, b);
    if (type != SCHEMA_ARRAY)
        return json_equal(a, b);
    if (json_array_size(a) != json_array_size(b))
        return false;
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!schema_equal(json_array_get(a, i), json_array_get(b, i)))
            return false;
    return true;
}

/* ---- by type ---- */

/* A whole number of multiples? Exact: digit by digit, as one does on paper. */
static bool is_multiple(const struct decimal *d, const struct decimal *of)
{
    uint32_t scale = of->fraction;
    uint64_t k = 0, rest = 0;
    if (d->fraction > scale)
        scale = d->fraction;
    for (uint32_t i = 0; i < of->whole + scale; i++) {
        if (k > UINT64_MAX / 20)
            return false;
        k = k * 10 + (uint64_t)(i < (uint32_t)of->whole + of->fraction ? of->digits[i] - '0' : 0);
    }
    if (k > UINT64_MAX / 20)
        return false;
    for (uint32_t i = 0; i < d->whole + scale; i++)
        rest = (rest * 10 + (uint64_t)(i < (uint32_t)d->whole + d->fraction ? d->digits[i] - '0' : 0)) % k;
    return rest == 0;
}

static bool number_accepts(const struct schema_alternative *way, const json_t *value)
{
    struct decimal d;
    if (!decimal_of(value, &d) || !json_number_has(&way->number, &d))
        return false;
    for (const struct schema_multiple *m = way->multiples; m; m = m->next)
        if (!is_multiple(&d, &m->of))
            return false;
    return true;
}

static bool is_unique(const json_t *list)
{
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (schema_equal(json_array_get(list, i), json_array_get(list, k)))
                return false;
    return true;
}

static bool array_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    size_t count = json_array_size(value);
    if (count < way->items_min || count > way->items_max ||
        (way->unique && (count > 1000 || !is_unique(value))))
        return false;
    for (size_t i = 0; i < count && !schema_failed(w); i++) {
        struct schema_set item = schema_item(w, way, (uint32_t)i);
        if (!schema_set_accepts(w, &item, json_array_get(value, i)))
            return false;
    }
    return true;
}

static const struct schema_set *member_set(struct schema_work *w, const struct schema_members *m,
                                           struct slice name)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (slice_eq(m->named[i].name, name))
            return &m->named[i].value;
    for (uint32_t i = 0; i < m->other_count; i++)
        if (json_text_matches(&w->text, m->others[i].key, name))
            return &m->others[i].value;
    return NULL;
}

static bool object_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    const char *key;
    json_t *member;
    size_t count = json_object_size(value);
    if (count < way->members_min || count > way->members_max)
        return false;
    const struct schema_members *m = schema_members_of(w, way);
    for (uint32_t i = 0; m && i < m->count; i++)
        if (m->named[i].required && !json_object_get(value, m->named[i].name.ptr))
            return false;
    json_object_foreach((json_t *)value, key, member) {
        const struct schema_set *set = m ? member_set(w, m, slice_of(key)) : NULL;
        if (!set || schema_failed(w) || !schema_set_accepts(w, set, member))
            return false;
    }
    return m != NULL;
}

/* ---- ways and sets ---- */

static bool is_excepted(const struct schema_alternative *way, const json_t *value)
{
    for (const struct schema_except *e = way->except; e; e = e->next)
        if (schema_equal(e->value, value))
            return true;
    return false;
}

static bool is_among(const struct schema_alternative *way, const json_t *value)
{
    for (uint32_t i = 0; i < way->values.count; i++)
        if (schema_equal(way->values.all[i], value))
            return true;
    return false;
}

static bool rest_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    uint32_t type = schema_type_of(value);
    if (!(way->types & type) || is_excepted(way, value))
        return false;
    if (type == SCHEMA_NUMBER)
        return number_accepts(way, value);
    if (type == SCHEMA_STRING)
        return way->text == w->text.text || json_text_matches(&w->text, way->text, schema_text(value));
    if (type == SCHEMA_ARRAY)
        return array_accepts(w, way, value);
    return type != SCHEMA_OBJECT || object_accepts(w, way, value);
}

bool schema_alternative_accepts(struct schema_work *w, const struct schema_alternative *way,
                                const json_t *value)
{
    if (way->finite && !is_among(way, value))
        return false;
    return rest_accepts(w, way, value);
}

bool schema_set_accepts(struct schema_work *w, const struct schema_set *set, const json_t *value)
{
    if (set->none || set->count == 0)
        return !set->none;
    struct schema_alternatives ways = schema_expand(w, set, schema_type_of(value));
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        if (schema_alternative_accepts(w, &ways.all[i], value))
            return true;
    return false;
}

/* ---- the rest of a way ---- */

static void resolve_values(struct schema_work *w, struct schema_alternative *way)
{
    const json_t **kept = schema_take(w, (way->values.count + 1) * sizeof(*kept));
    uint32_t count = 0, types = 0;
    if (!kept)
        return;
    for (uint32_t i = 0; i < way->values.count && !schema_failed(w); i++)
        if (rest_accepts(w, way, way->values.all[i])) {
            kept[count++] = way->values.all[i];
            types |= schema_type_of(way->values.all[i]);
        }
    way->values = (struct schema_values){count, kept};
    way->types &= types;
}

static bool set_is_empty(struct schema_work *w, const struct schema_set *set, uint32_t depth)
{
    if (set->none || depth == 0)
        return set->none;
    struct schema_alternatives ways = schema_expand(w, set, SCHEMA_ANY);
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        if (schema_alternative_resolve(w, &ways.all[i], depth - 1))
            return false;
    return !w->error;
}

static bool object_is_empty(struct schema_work *w, const struct schema_alternative *way, uint32_t depth)
{
    if (way->members_min > way->members_max)
        return true;
    if (!way->required)
        return false;
    const struct schema_members *m = schema_members_of(w, way);
    for (uint32_t i = 0; m && i < m->count && !schema_failed(w); i++)
        if (m->named[i].required && set_is_empty(w, &m->named[i].value, depth))
            return true;
    return false;
}

static bool array_is_empty(struct schema_work *w, const struct schema_alternative *way, uint32_t depth)
{
    if (way->items_min > way->items_max)
        return true;
    for (uint32_t i = 0; way->arrays && i < MIN_OF(way->items_min, 8u) && !schema_failed(w); i++) {
        struct schema_set item = schema_item(w, way, i);
        if (set_is_empty(w, &item, depth))
            return true;
    }
    return false;
}

bool schema_alternative_resolve(struct schema_work *w, struct schema_alternative *way, uint32_t depth)
{
    if (way->finite)
        resolve_values(w, way);
    if (way->finite || !way->types)
        return way->types != 0;
    if ((way->types & SCHEMA_NUMBER) && json_number_is_empty(&way->number))
        way->types &= ~(uint32_t)SCHEMA_NUMBER;
    if ((way->types & SCHEMA_STRING) && way->text != w->text.text && schema_rx_none(w, way->text))
        way->types &= ~(uint32_t)SCHEMA_STRING;
    if ((way->types & SCHEMA_OBJECT) && object_is_empty(w, way, depth))
        way->types &= ~(uint32_t)SCHEMA_OBJECT;
    if ((way->types & SCHEMA_ARRAY) && array_is_empty(w, way, depth))
        way->types &= ~(uint32_t)SCHEMA_ARRAY;
    return way->types != 0;
}
