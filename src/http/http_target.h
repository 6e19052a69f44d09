/* http_target.h - a request's target: path, query arguments, and lookups in a kept head. */
#ifndef PLATEAU_HTTP_HTTP_TARGET_H
#define PLATEAU_HTTP_HTTP_TARGET_H

#include "base/slice.h"
#include "http/http_raw.h"

/* Decodes the target of a whole head in place, and adds its query arguments to the head's fields. Called once
 * for each head. *path: without the query; *authority: host and port of a target that has them, else empty.
 * False: a %-escape is malformed or a zero byte; neither is more than the part before it. */
bool http_target_read(struct http_head *h, struct slice *path, struct slice *authority);

/* The first header, or query argument, of that name in any case. False when absent. */
bool http_head_find(const struct http_head *h, bool argument, struct slice name, struct slice *ret);

#endif
