/* schema_words.c - the keywords of the drafts, and the form that the value of each must have. A title or a
 * description of a wrong form asserts nothing, as do keywords of other drafts. */
#include "schema/schema_work.h"

#include "base/check.h"

#include <math.h>

enum form {
    FORM_ANY,
    FORM_SCHEMA,
    FORM_SCHEMAS,
    FORM_ITEMS,
    FORM_SCHEMA_MAP,
    FORM_DEPENDENCIES,
    FORM_NAMES,
    FORM_NAMES_MAP,
    FORM_TYPE,
    FORM_LIST,
    FORM_STRING,
    FORM_BOOLEAN,
    FORM_NUMBER,
    FORM_LIMIT, /* a number, or as in draft 4 a boolean */
    FORM_FACTOR,
    FORM_COUNT
};

struct word {
    const char *name;
    uint16_t since, until;
    enum schema_word_kind kind;
    enum form form;
};

/* A keyword of a later draft than the document's, or of an earlier one, asserts nothing there. */
static const struct word words[] = {
    {"type", 0, 9999, SCHEMA_ASSERTS, FORM_TYPE},
    {"enum", 0, 9999, SCHEMA_ASSERTS, FORM_LIST},
    {"const", 6, 9999, SCHEMA_ASSERTS, FORM_ANY},
    {"properties", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMA_MAP},
    {"required", 0, 9999, SCHEMA_ASSERTS, FORM_NAMES},
    {"additionalProperties", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"patternProperties", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMA_MAP},
    {"propertyNames", 6, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"minProperties", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"maxProperties", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"items", 0, 9999, SCHEMA_ASSERTS, FORM_ITEMS},
    {"prefixItems", 2020, 9999, SCHEMA_ASSERTS, FORM_SCHEMAS},
    {"additionalItems", 0, 2019, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"minItems", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"maxItems", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"uniqueItems", 0, 9999, SCHEMA_ASSERTS, FORM_BOOLEAN},
    {"contains", 6, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"minLength", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"maxLength", 0, 9999, SCHEMA_ASSERTS, FORM_COUNT},
    {"pattern", 0, 9999, SCHEMA_ASSERTS, FORM_STRING},
    {"format", 0, 9999, SCHEMA_ASSERTS, FORM_STRING},
    {"minimum", 0, 9999, SCHEMA_ASSERTS, FORM_NUMBER},
    {"maximum", 0, 9999, SCHEMA_ASSERTS, FORM_NUMBER},
    {"exclusiveMinimum", 0, 9999, SCHEMA_ASSERTS, FORM_LIMIT},
    {"exclusiveMaximum", 0, 9999, SCHEMA_ASSERTS, FORM_LIMIT},
    {"multipleOf", 0, 9999, SCHEMA_ASSERTS, FORM_FACTOR},
    {"allOf", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMAS},
    {"anyOf", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMAS},
    {"oneOf", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMAS},
    {"not", 0, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"if", 7, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"dependentRequired", 2019, 9999, SCHEMA_ASSERTS, FORM_NAMES_MAP},
    {"dependentSchemas", 2019, 9999, SCHEMA_ASSERTS, FORM_SCHEMA_MAP},
    {"dependencies", 0, 9999, SCHEMA_ASSERTS, FORM_DEPENDENCIES},
    {"$ref", 0, 9999, SCHEMA_ASSERTS, FORM_STRING},
    {"unevaluatedProperties", 2019, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"unevaluatedItems", 2019, 9999, SCHEMA_ASSERTS, FORM_SCHEMA},
    {"$dynamicRef", 2020, 9999, SCHEMA_ASSERTS, FORM_STRING},
    {"$recursiveRef", 2019, 2019, SCHEMA_ASSERTS, FORM_STRING},
    {"disallow", 0, 3, SCHEMA_ASSERTS, FORM_ANY},
    {"extends", 0, 3, SCHEMA_ASSERTS, FORM_ANY},
    {"divisibleBy", 0, 3, SCHEMA_ASSERTS, FORM_ANY},
    /* These belong to the keyword beside them, or say something without asserting it. */
    {"then", 0, 9999, SCHEMA_NOTES, FORM_SCHEMA},
    {"else", 0, 9999, SCHEMA_NOTES, FORM_SCHEMA},
    {"minContains", 0, 9999, SCHEMA_NOTES, FORM_COUNT},
    {"maxContains", 0, 9999, SCHEMA_NOTES, FORM_COUNT},
    {"$defs", 0, 9999, SCHEMA_NOTES, FORM_SCHEMA_MAP},
    {"definitions", 0, 9999, SCHEMA_NOTES, FORM_SCHEMA_MAP},
    {"$id", 0, 9999, SCHEMA_NOTES, FORM_STRING},
    {"id", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"$schema", 0, 9999, SCHEMA_NOTES, FORM_STRING},
    {"$anchor", 0, 9999, SCHEMA_NOTES, FORM_STRING},
    {"$dynamicAnchor", 0, 9999, SCHEMA_NOTES, FORM_STRING},
    {"$recursiveAnchor", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"$vocabulary", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"$comment", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"title", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"description", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"default", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"examples", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"example", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"deprecated", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"readOnly", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    {"writeOnly", 0, 9999, SCHEMA_NOTES, FORM_ANY},
    /* Draft 7 lets validators assert these, later drafts do not. */
    {"contentEncoding", 7, 7, SCHEMA_ASSERTS, FORM_ANY},
    {"contentMediaType", 7, 7, SCHEMA_ASSERTS, FORM_ANY},
    {"contentSchema", 0, 9999, SCHEMA_NOTES, FORM_SCHEMA},
};

/* ---- forms ---- */

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool is_name(const json_t *v)
{
    return json_is_string(v);
}

static bool is_names(const json_t *v)
{
    size_t i;
    const json_t *each;
    json_array_foreach(v, i, each)
        if (!is_name(each))
            return false;
    return json_is_array(v);
}

static bool is_dependency(const json_t *v)
{
    return is_schema(v) || is_names(v);
}

typedef bool is_fn(const json_t *v);

/* The first element or member that is none; "": the value itself is not a list, or not an object. NULL: all
 * are. */
static const char *stray_of(const json_t *v, is_fn *is, bool map, char index[24])
{
    ASSERT(v);
    const char *key;
    json_t *each;
    size_t i;
    if (map ? !json_is_object(v) : !json_is_array(v))
        return "";
    json_object_foreach((json_t *)v, key, each)
        if (!is(each))
            return key;
    json_array_foreach((json_t *)v, i, each) {
        snprintf(index, 24, "%zu", i);
        if (!is(each))
            return index;
    }
    return NULL;
}

static bool is_type(const json_t *v)
{
    static const char *const all[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
    for (size_t i = 0; json_is_string(v) && i < COUNT_OF(all); i++)
        if (strcmp(json_string_value(v), all[i]) == 0)
            return true;
    return false;
}

static bool is_factor(const json_t *v)
{
    return json_is_number(v) && json_number_value(v) > 0;
}

static bool is_count(const json_t *v)
{
    double n = json_number_value(v);
    return json_is_number(v) && n >= 0 && n == floor(n);
}

/* Returns what the value of a keyword must be, for the error; NULL if it is valid. */
static const char *scalar_fault(enum form form, uint32_t draft, const json_t *v)
{
    char index[24];
    switch (form) {
    case FORM_TYPE:
        return is_type(v) || !stray_of(v, is_type, false, index)
                   ? NULL
                   : "one of null, boolean, number, integer, string, array and object, or a list of them";
    case FORM_LIST:
        return json_is_array(v) ? NULL : "a list of values";
    case FORM_STRING:
        return json_is_string(v) ? NULL : "a string";
    case FORM_BOOLEAN:
        return json_is_boolean(v) ? NULL : "a boolean";
    case FORM_NUMBER:
        return json_is_number(v) ? NULL : "a number";
    case FORM_LIMIT:
        return json_is_number(v) || (json_is_boolean(v) && draft <= 4) ? NULL : "a number";
    case FORM_FACTOR:
        return is_factor(v) ? NULL : "a number above 0";
    case FORM_COUNT:
        return is_count(v) ? NULL : "a whole number, at least 0";
    default:
        return NULL;
    }
}

#define A_SCHEMA "a schema: an object or a boolean"

static const struct {
    enum form form;
    is_fn *is;
    bool map;
    const char *whole, *each;
} lists[] = {
    {FORM_SCHEMAS, is_schema, false, "a list of schemas", A_SCHEMA},
    {FORM_SCHEMA_MAP, is_schema, true, "an object of schemas", A_SCHEMA},
    {FORM_NAMES, is_name, false, "a list of names", "a string"},
    {FORM_NAMES_MAP, is_names, true, "an object of lists of names", "a list of names"},
    {FORM_DEPENDENCIES, is_dependency, true, "an object", "a schema or a list of names"},
};

static void check_form(struct schema_work *w, uint32_t node, const char *key, enum form form, const json_t *v)
{
    char index[24] = "";
    if (form == FORM_ITEMS)
        form = json_is_array(v) ? FORM_SCHEMAS : FORM_SCHEMA;
    const char *must = form == FORM_SCHEMA && !is_schema(v) ? A_SCHEMA : scalar_fault(form, w->draft, v);
    if (must)
        schema_fail(w, -EINVAL, node, "\"%s\" must be %s", key, must);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        const char *stray = lists[i].form == form ? stray_of(v, lists[i].is, lists[i].map, index) : NULL;
        if (stray && *stray)
            schema_fail(w, -EINVAL, node, "\"%s/%.100s\" must be %s", key, stray, lists[i].each);
        else if (stray)
            schema_fail(w, -EINVAL, node, "\"%s\" must be %s", key, lists[i].whole);
    }
}

static bool holds(uint32_t draft, const struct word *w)
{
    return draft == 0 || (draft >= w->since && draft <= w->until);
}

bool schema_ref_alone(const struct schema_work *w, const json_t *json)
{
    return w->draft && w->draft <= 7 && json_is_string(json_object_get(json, "$ref"));
}

enum schema_word_kind schema_word(uint32_t draft, const char *key)
{
    if (draft != 7 && (strcmp(key, "contentEncoding") == 0 || strcmp(key, "contentMediaType") == 0))
        return SCHEMA_NOTES;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strcmp(key, words[i].name) == 0)
            return holds(draft, &words[i]) ? words[i].kind : SCHEMA_UNKNOWN;
    return SCHEMA_UNKNOWN;
}

void schema_check_words(struct schema_work *w, uint32_t node)
{
    ASSERT(node < w->node_count);
    const char *key;
    json_t *value;
    bool ref_alone = schema_ref_alone(w, w->nodes[node].json);
    json_object_foreach((json_t *)w->nodes[node].json, key, value)
        for (size_t i = 0; i < COUNT_OF(words) && !ref_alone && !w->error; i++)
            if (strcmp(key, words[i].name) == 0 && holds(w->draft, &words[i]))
                check_form(w, node, key, words[i].form, value);
}
