/* cors.c - an origin is compared as a whole: browsers write it in one form, in small letters.
 *
 * A preflight gets the headers that it names: clients have headers of their own (x-stainless-*,
 * anthropic-*), and a header that no route reads does nothing. */
#include "api/access/cors.h"

#include "base/check.h"
#include "base/err.h"
#include "base/slice.h"
#include "http/http_request.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ASKED_BYTES_MAX 512
/* For a longer list. The star does not stand for `authorization`. */
#define MOST_HEADERS "authorization, x-api-key, content-type, *"
#define EXPOSED                                                                                              \
    "x-request-id, request-id, x-ignored-fields, x-plateau-max-tokens, x-plateau-dropped-messages, "         \
    "x-exact, retry-after, traceparent"

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-._~[]:", c);
}

int cors_check_origin(const char *origin, struct err *e)
{
    struct slice rest = slice_of(origin);
    size_t scheme = slice_find(rest, SLICE("://"), 0);
    if (strcmp(origin, "*") == 0 || strcmp(origin, "null") == 0)
        return 0;
    bool fits = scheme != SIZE_MAX && scheme > 0 && rest.len <= CORS_ORIGIN_BYTES_MAX;
    for (size_t i = 0; fits && i < scheme; i++)
        fits = (origin[i] >= 'a' && origin[i] <= 'z') || (i > 0 && strchr("+-.0123456789", origin[i]));
    fits = fits && rest.len > scheme + 3;
    for (size_t i = scheme + 3; fits && i < rest.len; i++)
        fits = is_host_char(origin[i]);
    return fits ? 0
                : err_set(e, -EINVAL,
                          "--allow-origin %.80s: an origin is scheme://host or scheme://host:port in small "
                          "letters, without a path, or * for all",
                          origin);
}

/* The value that allows it; NULL: it is not allowed. */
static const char *allowed(const char *const *origins, struct slice origin)
{
    for (; *origins; origins++)
        if (strcmp(*origins, "*") == 0 || slice_eq(slice_of(*origins), origin))
            return *origins;
    return NULL;
}

static void set(struct http_request *r, const char *name, const char *value)
{
    int error = http_header_set(r, name, value);
    ASSERT(error == 0);
}

/* False: the request is of no page, or of one whose origin is not allowed. */
static bool allow(const char *const *origins, struct http_request *r)
{
    struct slice origin;
    const char *value = http_request_header(r, "origin", &origin) ? allowed(origins, origin) : NULL;
    if (value)
        set(r, "access-control-allow-origin", value);
    return value != NULL;
}

void cors_share(const char *const *origins, struct http_request *r)
{
    if (!origins || !*origins)
        return;
    /* Also without an origin: a cache would give the reply to a page. */
    set(r, "vary", "origin");
    if (allow(origins, r))
        set(r, "access-control-expose-headers", EXPOSED);
}

static bool is_list_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-_, ", c));
}

static const char *headers_for(const struct http_request *r, char asked[ASKED_BYTES_MAX + 1])
{
    struct slice list;
    if (!http_request_header(r, "access-control-request-headers", &list) || list.len == 0 ||
        list.len > ASKED_BYTES_MAX)
        return MOST_HEADERS;
    for (size_t i = 0; i < list.len; i++)
        if (!is_list_char(list.ptr[i]))
            return MOST_HEADERS;
    memcpy(asked, list.ptr, list.len);
    asked[list.len] = 0;
    return asked;
}

bool cors_preflight(const char *const *origins, struct http_request *r, const char *methods)
{
    struct slice method, network;
    char asked[ASKED_BYTES_MAX + 1];
    if (!origins || !*origins || !*methods || !slice_eq(http_request_method(r), SLICE("OPTIONS")) ||
        !http_request_header(r, "access-control-request-method", &method) || !allow(origins, r))
        return false;
    set(r, "vary", "origin");
    set(r, "access-control-allow-methods", methods);
    set(r, "access-control-allow-headers", headers_for(r, asked));
    set(r, "access-control-max-age", "600");
    /* Chromium asks before a public page may reach a server of a private network or of this machine. */
    if (http_request_header(r, "access-control-request-private-network", &network) &&
        slice_eq(network, SLICE("true")))
        set(r, "access-control-allow-private-network", "true");
    http_respond(r, 204, NULL, (struct slice){0});
    return true;
}
