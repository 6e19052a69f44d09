/* json_out.h - writes JSON into a buffer. The writer sets commas, colons and brackets, and asserts that they
 * match.
 *
 * `key` names a member of an object, and needs no escapes. It is NULL for an element of an array, for a value
 * at the top, and for the value of json_key(). A writer lies on the stack and allocates nothing; the buffer
 * grows and remembers failures. */
#ifndef PLATEAU_BASE_JSON_OUT_H
#define PLATEAU_BASE_JSON_OUT_H

#include "base/slice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;

#define JSON_OUT_DEPTH_MAX 31 /* objects and arrays that are open at once */

struct json_out {
    struct buf *buf;
    /* Bit i belongs to the i-th open container, bit 0 to the text around all of them. */
    uint32_t arrays; /* the container is an array */
    uint32_t filled; /* it has an item, so that the next one follows a comma */
    uint8_t depth;   /* containers that are open */
    bool items;      /* the text consists of items of a container that is not written here */
    bool keyed;      /* json_key() waits for its value */
    bool spaced;     /* a space follows each comma and colon, as Python writes it */
};

/* Returns a writer that appends one value to `b`. */
struct json_out json_out(struct buf *b);
/* As `json_out()`, but the value is an object, which is open. */
struct json_out json_out_object(struct buf *b);
/* Returns a writer that appends items of one container, without its brackets, to the items in `b`.
 * json_put_items() puts all of them into the container. */
struct json_out json_out_items(struct buf *b);

void json_open(struct json_out *j, const char *key); /* an object */
void json_open_array(struct json_out *j, const char *key);
void json_close(struct json_out *j);
/* As `json_close()`, but asserts that this was the last one. */
void json_end(struct json_out *j);
/* Writes a key with its escapes. The next call writes the value, without a key. */
void json_key(struct json_out *j, struct slice key);

void json_put_null(struct json_out *j, const char *key);
void json_put_bool(struct json_out *j, const char *key, bool value);
void json_put_u64(struct json_out *j, const char *key, uint64_t value);
void json_put_i64(struct json_out *j, const char *key, int64_t value);
/* Puts the fewest digits that parse to the same value. A number that is not finite is null, here and in the
 * next three. */
void json_put_real(struct json_out *j, const char *key, double value);
/* Puts the number as printf() writes it with "%.*f", and with "%.*g". */
void json_put_float(struct json_out *j, const char *key, float value);
void json_put_fixed(struct json_out *j, const char *key, int decimals, double value);
void json_put_general(struct json_out *j, const char *key, int digits, double value);
void json_put_text(struct json_out *j, const char *key, struct slice value);
void json_put_string(struct json_out *j, const char *key, const char *value); /* NULL: null */
void json_put_format(struct json_out *j, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4))); /* a text of at most 255 bytes */
void json_put_value(struct json_out *j, const char *key, const json_t *value); /* NULL: null */
/* Puts JSON that is written already. */
void json_put_raw(struct json_out *j, const char *key, struct slice json);
/* Puts the text of a json_out_items() into the open container. */
void json_put_items(struct json_out *j, struct slice items);
/* Puts it as an array. */
void json_put_list(struct json_out *j, const char *key, struct slice items);

struct json_u64 {
    const char *key;
    uint64_t value;
};

void json_put_u64s(struct json_out *j, const struct json_u64 *members, size_t count);
/* Puts several members: JSON_PUT_U64S(j, {"used_bytes", used}, {"free_bytes", free}). */
#define JSON_PUT_U64S(j, ...)                                                                                \
    json_put_u64s(j, (const struct json_u64[]){__VA_ARGS__},                                                 \
                  sizeof((struct json_u64[]){__VA_ARGS__}) / sizeof(struct json_u64))

struct json_string {
    const char *key, *value;
};

void json_put_strings(struct json_out *j, const struct json_string *members, size_t count);
/* As `JSON_PUT_U64S()`, but the values are texts. NULL: null. */
#define JSON_PUT_STRINGS(j, ...)                                                                             \
    json_put_strings(j, (const struct json_string[]){__VA_ARGS__},                                           \
                     sizeof((struct json_string[]){__VA_ARGS__}) / sizeof(struct json_string))

/* Begins and ends a text, which the caller appends to the buffer: it needs no escapes. */
struct buf *json_begin_text(struct json_out *j, const char *key);
void json_end_text(struct json_out *j);

#endif
