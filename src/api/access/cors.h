/* cors.h - CORS: pages of other origins that may call the API, by --allow-origin.
 *
 * Off by default, and only where clients need a key: a page gets nothing but what its key opens. Browsers
 * send no key by themselves, so replies never allow credentials. Network thread. */
#ifndef PLATEAU_API_CORS_H
#define PLATEAU_API_CORS_H

#include "base/err.h"

#include <stdbool.h>

struct http_request;

#define CORS_ORIGIN_BYTES_MAX 200

/* `*`, `null`, or scheme://host[:port]. 0, or -EINVAL with the form. */
int cors_check_origin(const char *origin, struct err *e);
/* Lets the page of an allowed origin read the reply to `r`. `origins` ends with NULL. Before the reply. */
void cors_share(const char *const *origins, struct http_request *r);
/* Answers a browser's question before the request itself with 204: the methods, and the headers that it asks
 * for. False, and nothing was done: `r` is no such question, or its origin is not allowed. */
bool cors_preflight(const char *const *origins, struct http_request *r, const char *methods);

#endif
