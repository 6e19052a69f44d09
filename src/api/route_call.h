/* route_call.h - what the handler of a route gets. Network thread. */
#ifndef PLATEAU_API_ROUTE_CALL_H
#define PLATEAU_API_ROUTE_CALL_H

#include "api/access/auth.h"

#include "base/slice.h"

struct api;

struct call {
    struct api *api;
    struct http_request *http;
    struct slice rest; /* rest of the path, after a slash */
    struct auth auth;
};

/* Answers the request, which is whole. */
typedef void route_fn(const struct call *call);

/* Answers that the object is deleted. */
void route_respond_deleted(const struct call *c, struct slice id, const char *object);

/* sessions.c: GET, POST with {"ttl": "1h"} and DELETE of /v1/sessions/{id}. */
route_fn sessions_show, sessions_extend, sessions_end;

#endif
