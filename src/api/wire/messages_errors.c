/* messages_errors.c - errors as Anthropic's clients read them.
 *
 * Clients retry a 429 and a 529. The latter, an overloaded server, is 503 or 507 on other routes. Agents
 * compact their conversation when the message has "prompt is too long". */
#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/wire/messages.h"

#include "base/check.h"
#include "base/json/json_out.h"
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

static void write_error(unsigned status, const char *message, const char *id, struct buf *ret)
{
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "type", "error");
    json_open(&j, "error");
    JSON_PUT_STRINGS(&j, {"type", type_of(status)}, {"message", message});
    json_close(&j);
    json_put_string(&j, "request_id", id);
    json_end(&j);
}

unsigned messages_status(const struct reject *why)
{
    return status_of(reject_status(why));
}

void messages_write_error(const struct reject *why, const char *id, struct buf *ret)
{
    char too_long[96];
    bool counted = why->kind == REJECT_CONTEXT_LENGTH && why->tokens > 0;
    snprintf(too_long, sizeof(too_long), "prompt is too long: %u tokens > %u maximum", why->tokens,
             why->tokens_max);
    write_error(messages_status(why), counted ? too_long : why->message, id[0] ? id : NULL, ret);
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
    struct buf body = {.ptr = w->body, .capacity = w->body_bytes_max, .bytes_max = w->body_bytes_max - 1};
    w->status = status_of(w->status);
    write_error(w->status, w->message, w->id ? w->id : x ? x->id_text : "", &body);
    buf_putc(&body, 0);
    ASSERT(body.error == 0);
    if (w->id)
        http_header_set(r, "request-id", w->id);
}
