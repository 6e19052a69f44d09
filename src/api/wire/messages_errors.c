/* messages_errors.c - errors as Anthropic's clients read them.
 *
 * Clients retry a 429 and a 529. The latter, an overloaded server, is 503 or 507 on other routes. Agents
 * compact their conversation when the message has "prompt is too long". */
#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/wire/messages.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "gen/reject.h"
#include "http/http_request.h"
#include "http/http_server.h"

#include <stdio.h>

#define OVERLOADED 529

static unsigned status_of(unsigned status)
{
    return status == 503 || status == 507 ? OVERLOADED : status;
}

static const char *type_of(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case OVERLOADED:
        return "overloaded_error";
    default:
        return status < 499 ? "invalid_request_error" : "api_error";
    }
}

unsigned messages_status(const struct reject *why)
{
    return status_of(reject_status(why));
}

void messages_write_error(const struct reject *why, const char *id, struct buf *ret)
{
    char too_long[96];
    struct slice message = slice_of(why->message);
    if (why->kind == REJECT_CONTEXT_LENGTH && why->tokens > 0) {
        snprintf(too_long, sizeof(too_long), "prompt is too long: %u tokens > %u maximum", why->tokens,
                 why->tokens_max);
        message = slice_of(too_long);
    }
    buf_printf(ret,
               "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(messages_status(why)));
    json_write_string(ret, message);
    buf_puts(ret, "},\"request_id\":");
    if (id[0])
        json_write_string(ret, slice_of(id));
    else
        buf_puts(ret, "null");
    buf_putc(ret, '}');
}

bool messages_owns(struct slice path)
{
    struct slice name = SLICE("/messages");
    if (slice_starts(path, SLICE("/v1/")))
        path = slice_sub(path, 3, path.len);
    return slice_starts(path, name) && (path.len == name.len || path.ptr[name.len] == '/');
}

void messages_word(struct http_request *r, struct http_wording *w)
{
    const struct exchange *x = http_request_user(r);
    const char *id = w->id ? w->id : x ? x->id_text : "";
    w->status = status_of(w->status);
    int n =
        snprintf(w->body, w->body_bytes_max,
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"},\"request_id\":\"%s\"}",
                 type_of(w->status), w->message, id);
    ASSERT(n > 0 && (size_t)n < w->body_bytes_max);
    if (w->id)
        http_header_set(r, "request-id", w->id);
}
