/* json_depth.h - bounds on depth and memory of a JSON text, found before it is parsed. */
#ifndef PLATEAU_GEN_JSON_DEPTH_H
#define PLATEAU_GEN_JSON_DEPTH_H

#include "base/slice.h"

/* True when no bracket of `text` is nested deeper than `depth_max`. Counts brackets outside of strings only;
 * a text that is not JSON is left to the parser to refuse. */
bool json_depth_within(struct slice text, uint32_t depth_max);

/* An upper bound on the bytes that jansson 2.14 holds at any moment while it parses `text`, valid or not. It
 * covers structures, tables as they grow, and strings, with `header_bytes` more for each block. */
size_t json_parse_bytes(struct slice text, size_t header_bytes);

#endif
