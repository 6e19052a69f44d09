/* json_scan.h - reads large flat JSON front to back without building a tree.
 *
 * A checkpoint's header may hold a million tensors in 100 MB; a tree of that would cost gigabytes outside
 * the plan. The caller pulls: open an object, take key after key, read or skip each value. The first
 * failure sticks, like buf's; `error` says what was expected. Strings are views into the input, so those
 * with escapes can be skipped but not read. Nothing is allocated. */
#ifndef PLATEAU_WEIGHTS_JSON_SCAN_H
#define PLATEAU_WEIGHTS_JSON_SCAN_H

#include "base/slice.h"

/* Nesting that json_scan_skip follows. */
#define JSON_SCAN_DEPTH_MAX 32

struct json_scan {
    struct slice text;
    size_t at;
    const char *error; /* NULL while all is well; else a sentence, with the place in `at` */
};

/* Each consumes one token (and blanks before it); false when something else is there or an error stands. */
bool json_scan_open(struct json_scan *s, char bracket); /* '{' or '[' */

/* The next member of the object (array) that is open: true with its key, at its value; false when the object
 * closed or on error: look at s->error. `*first` starts as true and belongs to this object. */
bool json_scan_key(struct json_scan *s, bool *first, struct slice *ret);
bool json_scan_element(struct json_scan *s, bool *first);

bool json_scan_string(struct json_scan *s, struct slice *ret);
/* A number in [0, 2^63), digits only. */
bool json_scan_u64(struct json_scan *s, uint64_t *ret);
/* Any value. */
bool json_scan_skip(struct json_scan *s);
/* Nothing but blanks is left. */
bool json_scan_end(struct json_scan *s);

#endif
