/* json_read.h - values of a foreign config.json, each within bounds.
 *
 * A reader looks a key up in one object and then in a second one (text_config, then the top level), and where
 * neither has the key in a third one: the defaults. A key "object.member" is one of an object in it. A null
 * is not a value, and keeps the defaults away. The first failure sticks and names key, value and limit. Later
 * reads return the smallest allowed value, so that a parser reads everything and checks once at the end. */
#ifndef PLATEAU_MODEL_JSON_READ_H
#define PLATEAU_MODEL_JSON_READ_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct json_read {
    const json_t *object, *fallback; /* either may be NULL */
    const json_t *defaults;          /* values of keys that neither has; may be NULL */
    json_t *asked;                   /* set of the keys that were looked up; NULL: none is kept */
    const char *where;               /* for messages: "config.json" */
    struct err *e;
    int error; /* 0 or the first failure */
};

/* Adds `key` to r->asked: no other read of it is needed for the program to know it. */
void json_read_know(const struct json_read *r, const char *key);
/* Whether the file has the key, be it null. */
bool json_read_has(const struct json_read *r, const char *key);
/* NULL when absent or null. */
const json_t *json_read_get(const struct json_read *r, const char *key);
/* Required: absent is a failure. */
uint32_t json_read_u32(struct json_read *r, const char *key, uint32_t min, uint32_t max);
uint32_t json_read_u32_or(struct json_read *r, const char *key, uint32_t min, uint32_t max, uint32_t absent);
double json_read_f64_or(struct json_read *r, const char *key, double min, double max, double absent);
bool json_read_bool_or(struct json_read *r, const char *key, bool absent);
/* The bytes belong to the object. */
const char *json_read_string_or(struct json_read *r, const char *key, const char *absent);
/* A number or a list of up to `count_max` numbers in [0, max]; absent leaves *count alone. */
void json_read_ids(struct json_read *r, const char *key, uint32_t max, uint32_t *ret, uint32_t count_max,
                   uint32_t *count);

/* Reads a number whose only supported value, and the absent one, is `wanted`. */
void json_read_expect(struct json_read *r, const char *key, uint32_t wanted);
/* Returns the name that the file has; the first one if it has neither. */
const char *json_read_either(const struct json_read *r, const char *a, const char *b);
/* Reads the edge of a square in 1..max: a number, or two equal ones. Required. */
uint32_t json_read_square(struct json_read *r, const char *key, uint32_t max);

/* The text's configuration in that of a larger model: its object text_config, or llm_config. NULL: it has
 * neither, or one that is not an object, which is recorded as a failure. */
const json_t *json_read_text_part(struct json_read *r, const json_t *config);

/* Records a failure; the first one stays. */
void json_read_fail(struct json_read *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
