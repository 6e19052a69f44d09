/* json_source.h - JSON texts that jansson refuses and clients send.
 *
 * An integer beyond 64 bits becomes a double: schemas of tools have the largest unsigned integer as a bound.
 * wide_integer.h keeps its digits.
 * Half of a pair of surrogates becomes U+FFFD: JavaScript writes one for a string that was cut within a
 * character. All else is unchanged, and a text that is not JSON is refused as before. Columns in messages
 * count the changed text. */
#ifndef PLATEAU_BASE_JSON_SOURCE_H
#define PLATEAU_BASE_JSON_SOURCE_H

#include "base/slice.h"

struct json_source {
    struct slice text;
    size_t at;          /* the first byte that is neither in `run` nor replaced by `patch` */
    bool in_string;     /* there */
    struct slice run;   /* unchanged bytes to read next */
    struct slice patch; /* then these */
};

void json_source_init(struct json_source *s, struct slice text);
/* Writes the next bytes, `len` unless the text ends. Returns how many. */
size_t json_source_read(struct json_source *s, char *into, size_t len);

#endif
