/* reject.c - the type of an error follows from its status, as OpenAI pairs them. */
#include "api/reject.h"

#include "text/chat_format.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* A message may quote a client's bytes and may be cut anywhere: makes it UTF-8 without control characters again. */
static void clean(char *text)
{
    struct slice s = slice_of(text);
    size_t at = 0, to = 0;
    while (at < s.len) {
        struct utf8_char c = utf8_at(s, at);
        if (c.valid && c.code >= ' ' && c.code != 0x7f) {
            memmove(text + to, text + at, c.bytes);
            to += c.bytes;
        }
        at += c.bytes;
    }
    text[to] = 0;
}

static void fill(struct reject *r, unsigned status, const char *code, const char *param, const char *format,
                 va_list ap) __attribute__((format(printf, 5, 0)));

static void fill(struct reject *r, unsigned status, const char *code, const char *param, const char *format,
                 va_list ap)
{
    if (r->status != 0)
        return;
    r->status = status;
    r->code = code;
    snprintf(r->param, sizeof(r->param), "%s", param ? param : "");
    clean(r->param);
    vsnprintf(r->message, sizeof(r->message), format, ap);
    clean(r->message);
}

bool reject_set(struct reject *r, unsigned status, const char *code, const char *param, const char *format,
                ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, status, code, param, format, ap);
    va_end(ap);
    return false;
}

bool reject_value(struct reject *r, const char *param, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, 400, "invalid_value", param, format, ap);
    va_end(ap);
    return false;
}

bool reject_unsupported(struct reject *r, const char *param, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, 400, "unsupported_value", param, format, ap);
    va_end(ap);
    return false;
}

static const char *type_of(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

bool reject_unwanted(struct reject *r, int why)
{
    if (why == -ETIME) {
        r->retry_after_s = 10;
        return reject_set(r, 503, "preparation_timeout", NULL,
                          "The request was not read and tokenized within %d s. Send a shorter one, or try "
                          "again when the server is less busy.",
                          REJECT_PREPARATION_S);
    }
    return reject_set(r, 499, "request_cancelled", NULL, "The request was cancelled.");
}

void reject_write(const struct reject *r, struct buf *ret)
{
    buf_puts(ret, "{\"error\":{\"message\":");
    json_write_string(ret, slice_of(r->message));
    buf_printf(ret, ",\"type\":\"%s\",\"param\":", type_of(r->status));
    if (r->param[0])
        json_write_string(ret, slice_of(r->param));
    else
        buf_puts(ret, "null");
    buf_puts(ret, ",\"code\":");
    if (r->code)
        json_write_string(ret, slice_of(r->code));
    else
        buf_puts(ret, "null");
    buf_puts(ret, "}}");
}

void reject_respond(const struct reject *why, struct http_request *r)
{
    char seconds[16];
    struct buf body;
    buf_init(&body, 8192, NULL);
    reject_write(why, &body);
    snprintf(seconds, sizeof(seconds), "%u", why->retry_after_s);
    if (why->retry_after_s > 0)
        http_header_set(r, "retry-after", seconds);
    if (why->status == 401)
        http_header_set(r, "www-authenticate", "Bearer");
    http_respond(r, why->status, "application/json", buf_slice(&body));
    buf_done(&body);
}
