/* schema.h - a JSON Schema (drafts 4 to 2020-12) to rules: the texts of a grammar are instances.
 *
 * Every text of the grammar is a valid instance. Not every instance is a text of it:
 *   - properties stand in the schema's order, the named ones first; optional ones may be missing;
 *   - white space as in json_text.h; numbers with bounds have no exponents, a whole number may be 1 or 1.0
 *     (draft 4: only 1);
 *   - uniqueItems over an enum of more than 8 values: items in the enum's order.
 *
 * Supported keywords:
 *   - type, enum, const, format, pattern, minLength, maxLength;
 *   - minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf;
 *   - properties, required, additionalProperties, patternProperties (5 patterns an object), propertyNames,
 *     minProperties (above 1 without additional ones), maxProperties;
 *   - items, prefixItems, additionalItems, minItems, maxItems, uniqueItems (over an enum of 64 values);
 *   - allOf, anyOf, oneOf, not, if, then, else, dependentRequired, dependentSchemas, dependencies;
 *   - $ref, $defs, definitions, $anchor and $id inside the document.
 * Formats: date (years from 1000 on), time, date-time, duration, email, hostname, ipv4, ipv6, uri,
 * uri-reference, uuid, json-pointer, relative-json-pointer. A format that no draft defines is an annotation.
 *
 * Refused by name: contains, unevaluatedProperties, unevaluatedItems, $dynamicRef, $recursiveRef, other
 * documents, the remaining formats, and negations (in not, oneOf and if) of keywords that have no exact
 * complement here. A keyword that no draft defines asserts nothing; `ignored` names it. */
#ifndef PLATEAU_SCHEMA_SCHEMA_H
#define PLATEAU_SCHEMA_SCHEMA_H

#include "grammar/grammar.h"

#include <jansson.h>

struct buf;
struct err;
struct json_spacing;
struct wanted;

#define SCHEMA_DEPTH_MAX      64
#define SCHEMA_ENUM_MAX       10000
#define SCHEMA_ENUM_BYTES_MAX ((size_t)256 << 10)
#define SCHEMA_PROPERTIES_MAX 2000
#define SCHEMA_WAYS_MAX       2000 /* alternatives of one value, with all combinations of allOf and anyOf */
#define SCHEMA_RULES_MAX      20000
#define SCHEMA_LENGTH_MAX     1000000
#define SCHEMA_ITEMS_MAX      1000
#define SCHEMA_WORK_BYTES     ((size_t)24 << 20)

struct schema_opts {
    const struct wanted *wanted; /* when to give up: NULL never */
    const struct charge *charge; /* pays for SCHEMA_WORK_BYTES at most, during the call */
    struct buf *ignored; /* names of keywords that assert nothing, separated by ", "; NULL: not needed */
    /* The schema describes strings, which stand raw: without quotes and escapes, each a text of this
     * expression. RX_NONE: values are JSON. */
    rx_id raw;
    /* The texts that a model is to write: no needless escapes, at most JSON_DIGITS_MAX digits (json_text.h),
     * integers and whole numbers of enum and const without a point, and of an object with `properties` and
     * without `additionalProperties` no other members. Otherwise every JSON text of an instance. */
    bool plain;
    const struct json_spacing *spacing; /* spacing of values that are JSON; NULL: that of json_text.h */
};

/* Adds the rules; `ret` is the value's. 0; -EINVAL (no schema); -ENOTSUP (not supported), each with the JSON
 * pointer of the place; -E2BIG (a limit, which `e` names); -ETIME, -ECANCELED; -ENOMEM. */
int schema_compile(struct grammar_builder *b, const json_t *schema, const struct schema_opts *opts,
                   sym_id *ret, struct err *e);

/* A copy of `instance` with members in the order in which the schema's grammar has them, as far as a way to
 * match is found. 0, or as above. */
int schema_order(const json_t *schema, const struct schema_opts *opts, json_t *instance, json_t **ret,
                 struct err *e);

/* Writes a value as the grammars have it: compact, numbers without exponents. */
void schema_write(struct buf *out, const json_t *value);

#endif
