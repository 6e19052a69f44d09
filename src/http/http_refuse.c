/* http_refuse.c - refusals by http itself, in OpenAI's envelope, with the limit and its option.
 *
 * Two ends have to agree on the end of a request, or a proxy in front and this server could be made to see
 * different requests in the same bytes. So each fault of the raw bytes (http_raw.c) is answered and closes
 * the connection; the following bytes are never read as a request. The checks of a complete header come after
 * that; those of its body's length close as well. */
#include "http/http_state.h"

#include "base/buf.h"
#include "base/hex.h"
#include "base/json/json_out.h"
#include "http/http_guard.h"
#include "memory/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#define ENVELOPE_MAX 512
#define HEAD_MAX     256

/* The only place of these codes. A code that the API uses too has the same status there. */
static const struct row {
    unsigned status;
    const char *code;
} rows[HTTP_REFUSAL_COUNT] = {
    [HTTP_REFUSAL_AMBIGUOUS_LENGTH] = {400, "ambiguous_length"},
    [HTTP_REFUSAL_BAD_CHUNK] = {400, "bad_chunk"},
    [HTTP_REFUSAL_BAD_HEADER] = {400, "bad_header"},
    [HTTP_REFUSAL_BAD_HOST] = {400, "bad_host"},
    [HTTP_REFUSAL_BAD_LENGTH] = {400, "bad_length"},
    [HTTP_REFUSAL_BAD_LINE_END] = {400, "bad_line_end"},
    [HTTP_REFUSAL_BAD_REQUEST_LINE] = {400, "bad_request_line"},
    [HTTP_REFUSAL_BAD_TARGET] = {400, "bad_target"},
    [HTTP_REFUSAL_BAD_TRAILER] = {400, "bad_trailer"},
    [HTTP_REFUSAL_DUPLICATE_HEADER] = {400, "duplicate_header"},
    [HTTP_REFUSAL_FOLDED_HEADER] = {400, "folded_header"},
    [HTTP_REFUSAL_HOST_MISMATCH] = {400, "host_mismatch"},
    [HTTP_REFUSAL_HOST_MISSING] = {400, "host_missing"},
    [HTTP_REFUSAL_NOT_HTTP] = {400, "not_http"},
    [HTTP_REFUSAL_TRANSFER_ENCODING_1_0] = {400, "transfer_encoding"},
    [HTTP_REFUSAL_HOST_NOT_ALLOWED] = {403, "host_not_allowed"},
    [HTTP_REFUSAL_ORIGIN_NOT_ALLOWED] = {403, "origin_not_allowed"},
    [HTTP_REFUSAL_BODY_TOO_LARGE] = {413, "body_too_large"},
    [HTTP_REFUSAL_REQUEST_LINE_TOO_LARGE] = {414, "header_too_large"},
    [HTTP_REFUSAL_BUSY] = {429, "busy"},
    [HTTP_REFUSAL_TOO_MANY_CONNECTIONS] = {429, "too_many_connections"},
    [HTTP_REFUSAL_HEADER_TOO_LARGE] = {431, "header_too_large"},
    [HTTP_REFUSAL_TRANSFER_ENCODING] = {501, "transfer_encoding"},
    [HTTP_REFUSAL_NO_DESCRIPTORS] = {503, "no_descriptors"},
    [HTTP_REFUSAL_SHUTTING_DOWN] = {503, "shutting_down"},
    [HTTP_REFUSAL_HTTP_VERSION] = {505, "http_version"},
    [HTTP_REFUSAL_OUT_OF_MEMORY] = {507, "out_of_memory"},
};

unsigned http_refusal_status(enum http_refusal_kind kind)
{
    ASSERT(kind < HTTP_REFUSAL_COUNT && rows[kind].status);
    return rows[kind].status;
}

const char *http_refusal_code(enum http_refusal_kind kind)
{
    ASSERT(kind < HTTP_REFUSAL_COUNT && rows[kind].code);
    return rows[kind].code;
}

static struct http_refusal refusal(enum http_refusal_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static struct http_refusal refusal(enum http_refusal_kind kind, const char *format, ...)
{
    unsigned status = http_refusal_status(kind);
    const char *type = status >= 500   ? "server_error"
                       : status == 429 ? "rate_limit_error"
                                       : "invalid_request_error";
    struct http_refusal f = {status, type, http_refusal_code(kind), {0}};
    va_list ap;
    va_start(ap, format);
    vsnprintf(f.message, sizeof(f.message), format, ap);
    va_end(ap);
    return f;
}

static size_t write_envelope(const struct http_refusal *why, char ret[ENVELOPE_MAX])
{
    struct buf text = {.ptr = ret, .capacity = ENVELOPE_MAX, .bytes_max = ENVELOPE_MAX - 1};
    struct json_out j = json_out_object(&text);
    json_open(&j, "error");
    JSON_PUT_STRINGS(&j, {"message", why->message}, {"type", why->type});
    json_put_null(&j, "param");
    json_put_string(&j, "code", why->code);
    json_close(&j);
    json_end(&j);
    buf_putc(&text, 0);
    ASSERT(text.error == 0);
    return text.len - 1;
}

static bool tells_when(const struct http_refusal *why)
{
    return why->status == 429 || why->status == 503 || why->status == 529;
}

/* Gives a request without an id one, and the handler its turn. Returns the body's bytes. */
static size_t word(struct http_request *r, struct http_refusal *why, char ret[ENVELOPE_MAX])
{
    const struct http_server *s = http_conn_of(r)->server;
    char id[33] = "";
    write_envelope(why, ret);
    if (r->header_count == 0) {
        hex_secret(16, id);
        ASSERT(http_header_set(r, "x-request-id", id) == 0);
    }
    struct http_wording w = {why->status, why->message, id[0] ? id : NULL, ret, ENVELOPE_MAX, why->code};
    if (s->opts.handler.refusing)
        s->opts.handler.refusing(s->opts.arg, r, &w);
    why->status = w.status;
    return strlen(ret);
}

void http_refuse(struct http_request *r, const struct http_refusal *given)
{
    struct http_refusal copy = *given, *why = &copy;
    struct http_conn *c = http_conn_of(r);
    char body[ENVELOPE_MAX];
    size_t body_bytes = word(r, why, body);
    r->status = why->status;
    r->reply_bytes = body_bytes;
    http_answer_begin(r, "application/json", r->phase == HTTP_PHASE_HEADER && r->body_expected);
    if (tells_when(why))
        http_answer_put_header(c, "Retry-After", "1");
    http_answer_end(r, body_bytes);
    if (!r->is_head)
        http_answer_put(c, body, body_bytes);
}

void http_refuse_last(struct http_conn *c, const struct http_refusal *why)
{
    struct http_request *r = &c->request;
    if (r->phase != HTTP_PHASE_BODY)
        HTTP_COUNT(c->server, requests_total, 1);
    if (r->phase == HTTP_PHASE_NONE)
        http_request_begin(r);
    r->is_head = r->is_head || c->raw.head;
    c->last = c->unread = true;
    http_refuse(r, why);
    http_request_over(r, false);
    http_place_leave(c);
}

struct http_refusal http_refuse_body_too_large(const struct http_server *s)
{
    return refusal(HTTP_REFUSAL_BODY_TOO_LARGE,
                   "The request's body is larger than %zu bytes. Send less, or raise --max-body-bytes.",
                   s->opts.body_bytes_max);
}

/* Returns the bytes that the account leaves for all bodies together. */
static uint64_t bodies_bytes_max(const struct http_server *s)
{
    uint64_t limit = account_numbers(s->opts.network).limit;
    return limit > s->reserved_bytes ? limit - s->reserved_bytes : 0;
}

static struct http_refusal refuse_busy(const char *what, uint64_t bytes)
{
    return refusal(HTTP_REFUSAL_BUSY,
                   "There is no memory now for %llu bytes of %s: other requests have it. Try again when they "
                   "have ended.",
                   (ull)bytes, what);
}

static struct http_refusal refuse_body_for_ever(const struct http_server *s)
{
    return refusal(HTTP_REFUSAL_BODY_TOO_LARGE,
                   "The request's body is larger than the %llu bytes planned for all bodies together. Send "
                   "less, or raise --text-limit or --memory-limit.",
                   (ull)bodies_bytes_max(s));
}

/* A buffer has one byte more than its content. */
static bool body_never_fits(const struct http_server *s, uint64_t bytes)
{
    return bytes > 0 && bytes >= bodies_bytes_max(s);
}

struct http_refusal http_refuse_body(const struct http_server *s, uint64_t bytes)
{
    return body_never_fits(s, bytes) ? refuse_body_for_ever(s) : refuse_busy("this body", bytes);
}

struct http_refusal http_refuse_reply(const struct http_server *s, uint64_t bytes)
{
    if (bytes <= bodies_bytes_max(s))
        return refuse_busy("the answer", bytes);
    return refusal(HTTP_REFUSAL_OUT_OF_MEMORY,
                   "The answer has %llu bytes, and %llu are planned for all bodies together. Ask for less.",
                   (ull)bytes, (ull)bodies_bytes_max(s));
}

static bool origin_is_foreign(const struct http_request *r, struct http_refusal *ret)
{
    struct slice host = {0}, origin;
    if (http_request_header(r, "host", &host) && !http_guard_host_is_loopback(host))
        *ret =
            refusal(HTTP_REFUSAL_HOST_NOT_ALLOWED,
                    "Without API keys only loopback names are served (Host: localhost, 127.0.0.1 or [::1]). "
                    "Use one of them, or start the server with --api-key.");
    else if (http_request_header(r, "origin", &origin) && !http_guard_origin_is_host(origin, host))
        *ret = refusal(
            HTTP_REFUSAL_ORIGIN_NOT_ALLOWED,
            "Without API keys a page may only call the server that it came from: Origin and Host differ. "
            "--api-key and --allow-origin open it to other pages.");
    else
        return false;
    return true;
}

static bool is_vital(const struct http_request *r)
{
    const char *const *paths = http_conn_of((struct http_request *)(uintptr_t)r)->server->opts.vital_paths;
    bool found = false;
    for (; paths && *paths && !found; paths++)
        found = slice_eq(r->path, slice_of(*paths));
    return found && slice_eq(r->method, SLICE("GET"));
}

/* One that came when all places were taken is like any other once there is room. */
static bool is_excess(const struct http_request *r, struct http_conn *c)
{
    if (c->excess)
        http_place_judge(c);
    return c->excess && !is_vital(r);
}

static struct http_refusal refuse_descriptors(const struct http_server *s)
{
    return refusal(
        HTTP_REFUSAL_NO_DESCRIPTORS,
        "The server has no file descriptor for another connection; %u are open. Try again, or raise "
        "its limit of open files (ulimit -n, LimitNOFILE=).",
        s->conns_open);
}

void http_refuse_unaccepted(struct http_server *s, int fd)
{
    struct http_refusal why = refuse_descriptors(s);
    struct slice reason = http_answer_reason(why.status);
    char body[ENVELOPE_MAX], id[33], text[HEAD_MAX + ENVELOPE_MAX];
    size_t body_bytes = write_envelope(&why, body);
    hex_secret(16, id);
    int len = snprintf(text, sizeof(text),
                       "HTTP/1.1 %u %.*s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                       "Connection: close\r\nRetry-After: 1\r\nx-request-id: %s\r\n\r\n%s",
                       why.status, SLICE_ARGS(reason), body_bytes, id, body);
    ASSERT(len > 0 && (size_t)len < sizeof(text));
    HTTP_COUNT(s, refused[why.status - 400], 1);
    /* A new socket has room for it, or the client has gone. */
    (void)send(fd, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct http_refusal http_refuse_place(const struct http_conn *c)
{
    const struct http_server *s = c->server;
    if (c->crowded)
        return refusal(HTTP_REFUSAL_TOO_MANY_CONNECTIONS,
                       "Your address has as many connections open as one client may. Close some, or raise "
                       "--connections-per-ip.");
    if (s->accept.starved)
        return refuse_descriptors(s);
    return refusal(HTTP_REFUSAL_TOO_MANY_CONNECTIONS,
                   "%u connections are open, as many as are allowed. Try again, or raise --max-connections.",
                   s->opts.connections_max);
}

static bool does_not_fit(const struct http_request *r, struct http_refusal *ret)
{
    struct http_conn *c = http_conn_of((struct http_request *)(uintptr_t)r);
    const struct http_server *s = c->server;
    uint64_t length = c->head.length;
    if (length > s->opts.body_bytes_max)
        *ret = http_refuse_body_too_large(s);
    else if (body_never_fits(s, length))
        *ret = refuse_body_for_ever(s);
    else if (s->last_words_ns > 0)
        *ret = refusal(HTTP_REFUSAL_SHUTTING_DOWN, "The server is shutting down.");
    else if (is_excess(r, c))
        *ret = http_refuse_place(c);
    else
        return false;
    return true;
}

bool http_refuse_wanted(const struct http_request *r, struct http_refusal *ret)
{
    const struct http_server *s = http_conn_of((struct http_request *)(uintptr_t)r)->server;
    struct slice host;
    if (r->bad_target || !(slice_starts(r->path, SLICE("/")) || slice_eq(r->path, SLICE("*")))) {
        *ret = refusal(HTTP_REFUSAL_BAD_TARGET,
                       "The request's target must be a path that starts with /, without spaces, whose "
                       "%%-escapes are whole.");
        return true;
    }
    if (r->authority.len > 0 && http_request_header(r, "host", &host) &&
        !slice_eq_any_case(r->authority, host)) {
        *ret = refusal(HTTP_REFUSAL_HOST_MISMATCH,
                       "The request's target and its Host header name different hosts.");
        return true;
    }
    if (does_not_fit(r, ret))
        return true;
    return s->opts.loopback_host_only && origin_is_foreign(r, ret);
}

/* ---- raw bytes ---- */

/* The mistake, and the correct form. */
static const struct {
    enum http_refusal_kind kind;
    const char *message;
} faults[HTTP_FAULTS] = {
    [HTTP_FAULT_TLS] =
        {HTTP_REFUSAL_NOT_HTTP,
         "This port speaks HTTP without TLS, and the bytes look like a TLS handshake. Use http://."},
    [HTTP_FAULT_REQUEST_LINE] =
        {HTTP_REFUSAL_BAD_REQUEST_LINE,
         "A request begins with a line such as GET /path HTTP/1.1, with one space between "
         "its parts and CR LF at its end."},
    [HTTP_FAULT_TARGET] =
        {HTTP_REFUSAL_BAD_TARGET,
         "The request's target must be a path without spaces and control characters. Escape "
         "them with %."},
    [HTTP_FAULT_VERSION] = {HTTP_REFUSAL_HTTP_VERSION,
                            "The version of HTTP is not served. Use HTTP/1.1, also where HTTP/2 was tried."},
    [HTTP_FAULT_LINE_END] = {HTTP_REFUSAL_BAD_LINE_END,
                             "A line of the header ends with CR LF; neither of the two stands alone."},
    [HTTP_FAULT_CONTROL] = {HTTP_REFUSAL_BAD_HEADER,
                            "A header's value holds a control character. Tab is the only one allowed."},
    [HTTP_FAULT_FOLD] =
        {HTTP_REFUSAL_FOLDED_HEADER,
         "A line of the header begins with a blank. Headers are not continued on further lines."},
    [HTTP_FAULT_NAME] = {HTTP_REFUSAL_BAD_HEADER,
                         "A header is a name of letters, digits and !#$%&'*+-.^_`|~, then a colon without a "
                         "blank before it."},
    [HTTP_FAULT_DUPLICATE] =
        {HTTP_REFUSAL_DUPLICATE_HEADER,
         "Host, Content-Length, Transfer-Encoding, Authorization, x-api-key and Origin may "
         "stand once in a request."},
    [HTTP_FAULT_HOST] = {HTTP_REFUSAL_BAD_HOST, "Host must be a name or an address, with a port or without."},
    [HTTP_FAULT_HOST_MISSING] = {HTTP_REFUSAL_HOST_MISSING, "A request of HTTP/1.1 has a Host header."},
    [HTTP_FAULT_LENGTH] = {HTTP_REFUSAL_BAD_LENGTH,
                           "Content-Length is one number, written with digits alone."},
    [HTTP_FAULT_ENCODING] = {HTTP_REFUSAL_TRANSFER_ENCODING,
                             "The only Transfer-Encoding understood is chunked."},
    [HTTP_FAULT_ENCODING_1_0] =
        {HTTP_REFUSAL_TRANSFER_ENCODING_1_0,
         "A request of HTTP/1.0 has no Transfer-Encoding. Use HTTP/1.1, or Content-Length."},
    [HTTP_FAULT_TWO_LENGTHS] = {HTTP_REFUSAL_AMBIGUOUS_LENGTH,
                                "A request has Content-Length or Transfer-Encoding, not both."},
    [HTTP_FAULT_CHUNK] =
        {HTTP_REFUSAL_BAD_CHUNK,
         "A chunk is its size in hexadecimal digits, CR LF, as many bytes, CR LF; an extension "
         "after the size has 240 bytes at most."},
    [HTTP_FAULT_TRAILER] = {HTTP_REFUSAL_BAD_TRAILER,
                            "Headers about framing, hosts, keys and cookies may not stand after the body."},
};

struct http_refusal http_refuse_fault(const struct http_server *s, enum http_fault fault)
{
    size_t header_max = s->raw_limits.header_bytes_max;
    switch (fault) {
    case HTTP_FAULT_TARGET_LONG:
        return refusal(HTTP_REFUSAL_REQUEST_LINE_TOO_LARGE,
                       "The request line is longer than %zu bytes. Send less, or raise --max-header-bytes.",
                       header_max);
    case HTTP_FAULT_HEADER_LONG:
        return refusal(
            HTTP_REFUSAL_HEADER_TOO_LARGE,
            "The request's header is longer than %zu bytes. Send less, or raise --max-header-bytes.",
            header_max);
    case HTTP_FAULT_FIELDS:
        return refusal(
            HTTP_REFUSAL_HEADER_TOO_LARGE,
            "The request's headers, query arguments and cookies count for more than %zu bytes, %d for each "
            "and those of the cookies. Send fewer.",
            s->raw_limits.field_bytes_max, HTTP_RAW_FIELD_BYTES);
    case HTTP_FAULT_LENGTH_HUGE:
        return http_refuse_body_too_large(s);
    default:
        ASSERT(faults[fault].message);
        return refusal(faults[fault].kind, "%s", faults[fault].message);
    }
}
