/* json_write.h - JSON that reads back the same, appended to a buffer. Any thread; no state. */
#ifndef PLATEAU_BASE_JSON_WRITE_H
#define PLATEAU_BASE_JSON_WRITE_H

#include "base/buf.h"

#include <jansson.h>

/* Writes `s` as a JSON string with its quotes: UTF-8 kept, control characters escaped. */
void json_write_string(struct buf *ret, struct slice s);
/* Writes the fewest digits that parse to the same double; null if it is not finite. */
void json_write_real(struct buf *ret, double v);
/* Writes a jansson value compactly, object keys in their order, doubles in the shortest form that parses to
 * the same value. */
void json_write_value(struct buf *ret, const json_t *value);
/* As `json_write_value()`, but with a space after each comma and colon. */
void json_write_spaced(struct buf *ret, const json_t *value);

#endif
