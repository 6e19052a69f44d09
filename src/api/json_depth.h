/* json_depth.h - how deep a JSON text is nested, before anybody recurses into it. */
#ifndef PLATEAU_API_JSON_DEPTH_H
#define PLATEAU_API_JSON_DEPTH_H

#include "base/slice.h"

/* True when no bracket of `text` is nested deeper than `depth_max`. Looks at brackets outside of strings only: what is
 * not JSON at all is the parser's to say. */
bool json_depth_within(struct slice text, uint32_t depth_max);

#endif
