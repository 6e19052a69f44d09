/* schema_words.c - the keywords of the drafts. */
#include "grammar/schema_work.h"

struct word {
    const char *name;
    uint16_t since, until;
    enum schema_word_kind kind;
};

/* A keyword of a later draft than the document's, or of an earlier one, asserts nothing there. */
static const struct word words[] = {
    {"type", 0, 9999, SCHEMA_ASSERTS},
    {"enum", 0, 9999, SCHEMA_ASSERTS},
    {"const", 6, 9999, SCHEMA_ASSERTS},
    {"properties", 0, 9999, SCHEMA_ASSERTS},
    {"required", 0, 9999, SCHEMA_ASSERTS},
    {"additionalProperties", 0, 9999, SCHEMA_ASSERTS},
    {"patternProperties", 0, 9999, SCHEMA_ASSERTS},
    {"propertyNames", 6, 9999, SCHEMA_ASSERTS},
    {"minProperties", 0, 9999, SCHEMA_ASSERTS},
    {"maxProperties", 0, 9999, SCHEMA_ASSERTS},
    {"items", 0, 9999, SCHEMA_ASSERTS},
    {"prefixItems", 2020, 9999, SCHEMA_ASSERTS},
    {"additionalItems", 0, 2019, SCHEMA_ASSERTS},
    {"minItems", 0, 9999, SCHEMA_ASSERTS},
    {"maxItems", 0, 9999, SCHEMA_ASSERTS},
    {"uniqueItems", 0, 9999, SCHEMA_ASSERTS},
    {"contains", 6, 9999, SCHEMA_ASSERTS},
    {"minLength", 0, 9999, SCHEMA_ASSERTS},
    {"maxLength", 0, 9999, SCHEMA_ASSERTS},
    {"pattern", 0, 9999, SCHEMA_ASSERTS},
    {"format", 0, 9999, SCHEMA_ASSERTS},
    {"minimum", 0, 9999, SCHEMA_ASSERTS},
    {"maximum", 0, 9999, SCHEMA_ASSERTS},
    {"exclusiveMinimum", 0, 9999, SCHEMA_ASSERTS},
    {"exclusiveMaximum", 0, 9999, SCHEMA_ASSERTS},
    {"multipleOf", 0, 9999, SCHEMA_ASSERTS},
    {"allOf", 0, 9999, SCHEMA_ASSERTS},
    {"anyOf", 0, 9999, SCHEMA_ASSERTS},
    {"oneOf", 0, 9999, SCHEMA_ASSERTS},
    {"not", 0, 9999, SCHEMA_ASSERTS},
    {"if", 7, 9999, SCHEMA_ASSERTS},
    {"dependentRequired", 2019, 9999, SCHEMA_ASSERTS},
    {"dependentSchemas", 2019, 9999, SCHEMA_ASSERTS},
    {"dependencies", 0, 9999, SCHEMA_ASSERTS},
    {"$ref", 0, 9999, SCHEMA_ASSERTS},
    {"unevaluatedProperties", 2019, 9999, SCHEMA_ASSERTS},
    {"unevaluatedItems", 2019, 9999, SCHEMA_ASSERTS},
    {"$dynamicRef", 2020, 9999, SCHEMA_ASSERTS},
    {"$recursiveRef", 2019, 2019, SCHEMA_ASSERTS},
    {"disallow", 0, 3, SCHEMA_ASSERTS},
    {"extends", 0, 3, SCHEMA_ASSERTS},
    {"divisibleBy", 0, 3, SCHEMA_ASSERTS},
    /* These belong to the keyword beside them, or say something without asserting it. */
    {"then", 0, 9999, SCHEMA_NOTES},
    {"else", 0, 9999, SCHEMA_NOTES},
    {"minContains", 0, 9999, SCHEMA_NOTES},
    {"maxContains", 0, 9999, SCHEMA_NOTES},
    {"$defs", 0, 9999, SCHEMA_NOTES},
    {"definitions", 0, 9999, SCHEMA_NOTES},
    {"$id", 0, 9999, SCHEMA_NOTES},
    {"id", 0, 9999, SCHEMA_NOTES},
    {"$schema", 0, 9999, SCHEMA_NOTES},
    {"$anchor", 0, 9999, SCHEMA_NOTES},
    {"$dynamicAnchor", 0, 9999, SCHEMA_NOTES},
    {"$recursiveAnchor", 0, 9999, SCHEMA_NOTES},
    {"$vocabulary", 0, 9999, SCHEMA_NOTES},
    {"$comment", 0, 9999, SCHEMA_NOTES},
    {"title", 0, 9999, SCHEMA_NOTES},
    {"description", 0, 9999, SCHEMA_NOTES},
    {"default", 0, 9999, SCHEMA_NOTES},
    {"examples", 0, 9999, SCHEMA_NOTES},
    {"example", 0, 9999, SCHEMA_NOTES},
    {"deprecated", 0, 9999, SCHEMA_NOTES},
    {"readOnly", 0, 9999, SCHEMA_NOTES},
    {"writeOnly", 0, 9999, SCHEMA_NOTES},
    /* Draft 7 lets validators assert these, later drafts do not. */
    {"contentEncoding", 7, 7, SCHEMA_ASSERTS},
    {"contentMediaType", 7, 7, SCHEMA_ASSERTS},
    {"contentSchema", 0, 9999, SCHEMA_NOTES},
};

static bool holds(uint32_t draft, const struct word *w)
{
    return draft == 0 || (draft >= w->since && draft <= w->until);
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
