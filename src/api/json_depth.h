/* json_depth.h - what a JSON text will ask of its parser, before anybody parses it. */
#ifndef PLATEAU_API_JSON_DEPTH_H
#define PLATEAU_API_JSON_DEPTH_H

#include "base/slice.h"

/* True when no bracket of `text` is nested deeper than `depth_max`. Looks at brackets outside of strings
 * only: what is not JSON at all is the parser's to say. */
bool json_depth_within(struct slice text, uint32_t depth_max);

/* No fewer bytes than jansson 2.14 holds at any moment while it parses `text`, valid or not, when each of its
 * blocks costs `header_bytes` more: its structures and tables as they grow, and the strings. */
size_t json_parse_bytes(struct slice text, size_t header_bytes);

#endif
