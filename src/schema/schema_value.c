/* schema_value.c - types and equality of values. */
#include "schema/schema_work.h"

#include "base/check.h"

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

uint32_t schema_types_named(const json_t *name, bool *whole)
{
    static const struct {
        const char *name;
        uint32_t types;
    } all[] = {{"null", SCHEMA_NULL},     {"boolean", SCHEMA_TRUE | SCHEMA_FALSE},
               {"number", SCHEMA_NUMBER}, {"integer", SCHEMA_NUMBER},
               {"string", SCHEMA_STRING}, {"array", SCHEMA_ARRAY},
               {"object", SCHEMA_OBJECT}};
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < COUNT_OF(all); i++)
        if (strcmp(text, all[i].name) == 0) {
            *whole = strcmp(text, "integer") == 0;
            return all[i].types;
        }
    return 0; /* schema_check_words() has seen all names */
}

/* ---- equality ---- */

static bool equal_numbers(const json_t *a, const json_t *b)
{
    struct decimal x, y;
    ASSERT(json_is_number(a) && json_is_number(b));
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    return decimal_of(a, &x) && decimal_of(b, &y) && decimal_compare(&x, &y) == 0;
}

static bool equal_objects(const json_t *a, const json_t *b)
{
    ASSERT(json_is_object(a) && json_is_object(b));
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
