/* reject_http.c - one table: what each kind of error is on the wire.
 *
 * An API with an envelope of its own maps the kind to its type in its own file. */
#include "api/reject_http.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/reject.h"
#include "http/http_request.h"

#include <stdio.h>

#define INVALID "invalid_request_error"
#define SERVER  "server_error"

static const struct row {
    unsigned status;
    const char *code;
    const char *openai_type;
} rows[REJECT_KIND_COUNT] = {
    [REJECT_INVALID_JSON] = {400, "invalid_json", INVALID},
    [REJECT_INVALID_VALUE] = {400, "invalid_value", INVALID},
    [REJECT_UNSUPPORTED_VALUE] = {400, "unsupported_value", INVALID},
    [REJECT_CONTEXT_LENGTH] = {400, "context_length_exceeded", INVALID},
    [REJECT_GRAMMAR_TOO_COMPLEX] = {400, "grammar_too_complex", INVALID},
    [REJECT_TEMPLATE_ERROR] = {400, "template_error", INVALID},
    [REJECT_TEMPLATE_LIMIT] = {400, "template_limit", INVALID},
    [REJECT_TOKENIZER_LIMIT] = {400, "tokenizer_limit", INVALID},
    [REJECT_INVALID_MEDIA] = {400, "invalid_media", INVALID},
    [REJECT_MEDIA_FETCH_FAILED] = {400, "media_fetch_failed", INVALID},
    [REJECT_MEDIA_MISMATCH] = {400, "media_mismatch", INVALID},
    [REJECT_MEDIA_NOT_ALLOWED] = {400, "media_not_allowed", INVALID},
    [REJECT_MEDIA_TOO_LARGE] = {400, "media_too_large", INVALID},
    [REJECT_TOO_MANY_MEDIA] = {400, "too_many_media", INVALID},
    [REJECT_INVALID_API_KEY] = {401, "invalid_api_key", "authentication_error"},
    [REJECT_PULL_NOT_ALLOWED] = {403, "pull_not_allowed", "permission_error"},
    [REJECT_NOT_FOUND] = {404, "not_found", INVALID},
    [REJECT_MODEL_NOT_FOUND] = {404, "model_not_found", INVALID},
    [REJECT_REQUEST_NOT_FOUND] = {404, "request_not_found", INVALID},
    [REJECT_RESPONSE_NOT_FOUND] = {404, "response_not_found", INVALID},
    [REJECT_PREVIOUS_RESPONSE] = {404, "previous_response_not_found", INVALID},
    [REJECT_ITEM_NOT_FOUND] = {404, "item_not_found", INVALID},
    [REJECT_METHOD_NOT_ALLOWED] = {405, "method_not_allowed", INVALID},
    [REJECT_CLIENT_TOO_SLOW] = {408, "client_too_slow", INVALID},
    [REJECT_LOAD_FAILED] = {409, "model_load_failed", INVALID},
    [REJECT_UNLOAD_LOADING] = {409, "model_loading", INVALID},
    [REJECT_UNLOAD_PINNED] = {409, "model_pinned", INVALID},
    [REJECT_UNLOAD_SESSIONS] = {409, "model_has_sessions", INVALID},
    [REJECT_PULL_RUNS] = {409, "pull_runs", INVALID},
    [REJECT_MEDIA_MEMORY] = {413, "media_too_large", INVALID},
    [REJECT_REQUEST_TOO_LARGE] = {413, "request_too_large", INVALID},
    [REJECT_BUSY] = {429, "busy", "rate_limit_error"},
    [REJECT_QUEUE_FULL] = {429, "queue_full", "rate_limit_error"},
    [REJECT_TOO_MANY_REQUESTS] = {429, "too_many_requests", "rate_limit_error"},
    [REJECT_REQUEST_CANCELLED] = {499, "request_cancelled", INVALID},
    [REJECT_ENGINE_ERROR] = {500, "engine_error", SERVER},
    [REJECT_AGENTS_FULL] = {503, "agents_full", SERVER},
    [REJECT_MEMORY_SHORT] = {503, "memory_short", SERVER},
    [REJECT_MODEL_FAILED] = {503, "model_failed", SERVER},
    [REJECT_MODEL_LOAD_FAILED] = {503, "model_load_failed", SERVER},
    [REJECT_MODEL_LOADING] = {503, "model_loading", SERVER},
    [REJECT_MODEL_UNLOADING] = {503, "model_unloading", SERVER},
    [REJECT_PREPARATION_TIMEOUT] = {503, "preparation_timeout", SERVER},
    [REJECT_QUEUE_TIMEOUT] = {503, "queue_timeout", SERVER},
    [REJECT_SHUTTING_DOWN] = {503, "shutting_down", SERVER},
    [REJECT_OUT_OF_MEMORY] = {507, "out_of_memory", SERVER},
};

static const struct row *row_of(enum reject_kind kind)
{
    ASSERT(kind > REJECT_NONE && kind < REJECT_KIND_COUNT && rows[kind].status);
    return &rows[kind];
}

unsigned reject_status(const struct reject *r)
{
    return r->kind ? row_of(r->kind)->status : 0;
}

const char *reject_code(const struct reject *r)
{
    return r->kind ? row_of(r->kind)->code : NULL;
}

void reject_write(const struct reject *r, const char *id, struct buf *ret)
{
    struct json_out j = json_out_object(ret);
    (void)id;
    json_open(&j, "error");
    JSON_PUT_STRINGS(&j, {"message", r->message}, {"type", row_of(r->kind)->openai_type},
                     {"param", r->param[0] ? r->param : NULL}, {"code", reject_code(r)});
    json_close(&j);
    json_end(&j);
}

const struct reject_envelope reject_openai = {reject_status, reject_write};

void reject_respond(const struct reject *why, const struct reject_envelope *envelope, const char *id,
                    struct http_request *r)
{
    unsigned status = envelope->status(why);
    char seconds[16];
    struct buf body;
    buf_init(&body, 8192, NULL);
    envelope->write(why, id, &body);
    uint32_t retry_s = why->retry_after_s == 0 && status == 529 ? 1 : why->retry_after_s;
    snprintf(seconds, sizeof(seconds), "%u", retry_s);
    if (retry_s > 0)
        http_header_set(r, "retry-after", seconds);
    if (status == 401)
        http_header_set(r, "www-authenticate", "Bearer");
    http_respond(r, status, "application/json", buf_slice(&body));
    buf_done(&body);
}
