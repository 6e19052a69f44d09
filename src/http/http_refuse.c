/* http_refuse.c - what http refuses by itself, in OpenAI's envelope, naming the limit and its option.
 *
 * Two ends have to agree on where a request stops, or a proxy in front and this server could be made to see
 * different requests in the same bytes: so what the library would take leniently (two lengths, an unknown transfer
 * encoding) is refused here. What it cannot parse at all, and headers larger than the whole connection memory, it
 * refuses by itself with 400, 414, 431 or 505 and a text of its own, and closes; 0.9.75 writes the head of its answer
 * twice when Content-Length is not a number. A request line without a space it answers not at all. */
#include "http/http_state.h"

#include "base/rng.h"
#include "http/http_guard.h"

#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

#define ENVELOPE_MAX 512

static struct http_refusal refusal(unsigned status, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static struct http_refusal refusal(unsigned status, const char *code, const char *format, ...)
{
    const char *type = status >= 500   ? "server_error"
                       : status == 429 ? "rate_limit_error"
                                       : "invalid_request_error";
    struct http_refusal f = {status, type, code, {0}};
    va_list ap;
    va_start(ap, format);
    vsnprintf(f.message, sizeof(f.message), format, ap);
    va_end(ap);
    return f;
}

/* The messages are ours: nothing in them needs escaping. */
static size_t write_envelope(const struct http_refusal *why, char ret[ENVELOPE_MAX])
{
    int n = snprintf(ret, ENVELOPE_MAX,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
                     why->message, why->type, why->code);
    ASSERT(n > 0 && n < ENVELOPE_MAX);
    return (size_t)n;
}

static bool tells_when(const struct http_refusal *why)
{
    return why->status == 429 || why->status == 503;
}

static void make_id(char ret[33])
{
    unsigned char bytes[16];
    rng_secret(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

void http_refuse(struct http_request *r, const struct http_refusal *why)
{
    char body[ENVELOPE_MAX], id[33];
    size_t body_bytes = write_envelope(why, body);
    struct MHD_Response *reply = MHD_create_response_from_buffer(body_bytes, body, MHD_RESPMEM_MUST_COPY);
    if (!reply) {
        http_request_close(r);
        return;
    }
    if (!r->begun) {
        /* Otherwise the handler gave the request its id. */
        make_id(id);
        ASSERT(http_header_set(r, "x-request-id", id) == 0);
    }
    if (tells_when(why))
        MHD_add_response_header(reply, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    r->reply_bytes = body_bytes;
    if (r->phase == HTTP_PHASE_WAITING)
        r->phase = HTTP_PHASE_ANSWERED;
    http_request_set_reply(r, reply, why->status, "application/json");
}

/* The headers that the handler has set so far, as text; its own id if it has set none. */
static void write_headers(const struct http_request *r, struct buf *ret)
{
    char id[33];
    const char *at = r->headers;
    if (r->header_count == 0) {
        make_id(id);
        buf_printf(ret, "x-request-id: %s\r\n", id);
    }
    for (uint32_t i = 0; i < r->header_count; i++) {
        const char *value = at + strlen(at) + 1;
        buf_printf(ret, "%s: %s\r\n", at, value);
        at = value + strlen(value) + 1;
    }
}

void http_refuse_raw(struct http_request *r, const struct http_refusal *why)
{
    struct http_conn *c = http_conn_of(r);
    char body[ENVELOPE_MAX];
    size_t body_bytes = write_envelope(why, body);
    struct buf head;
    buf_init(&head, HTTP_HEADER_BYTES + 512,
             NULL); /* A moment's bytes; the connection's reserve has room for them. */
    buf_printf(
        &head,
        "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n",
        why->status, MHD_get_reason_phrase_for(why->status), body_bytes);
    if (tells_when(why))
        buf_puts(&head, "Retry-After: 1\r\n");
    write_headers(r, &head);
    buf_puts(&head, "\r\n");
    buf_put(&head, body, body_bytes);
    r->status = why->status;
    /* Nothing but "100 Continue" went out before: two kilobytes fit, or the client has gone. */
    if (head.error || send(c->fd, head.ptr, head.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        c->gone = true;
    buf_done(&head);
}

struct http_refusal http_refuse_body_too_large(const struct http_server *s)
{
    return refusal(413, "body_too_large",
                   "The request's body is larger than %zu bytes. Send less, or raise --max-body-bytes.",
                   s->opts.body_bytes_max);
}

/* What the account leaves for all bodies together. */
static uint64_t bodies_bytes_max(const struct http_server *s)
{
    uint64_t limit = account_numbers(s->opts.network).limit;
    return limit > s->reserved_bytes ? limit - s->reserved_bytes : 0;
}

static struct http_refusal refuse_busy(const char *what, uint64_t bytes)
{
    return refusal(429, "busy",
                   "There is no memory now for %llu bytes of %s: other requests have it. Try again when they "
                   "have ended.",
                   (unsigned long long)bytes, what);
}

static struct http_refusal refuse_body_for_ever(const struct http_server *s)
{
    return refusal(413, "body_too_large",
                   "The request's body is larger than the %llu bytes planned for all bodies together. Send "
                   "less, or raise --text-limit or --memory-limit.",
                   (unsigned long long)bodies_bytes_max(s));
}

struct http_refusal http_refuse_body(const struct http_server *s, uint64_t bytes)
{
    return bytes > bodies_bytes_max(s) ? refuse_body_for_ever(s) : refuse_busy("this body", bytes);
}

struct http_refusal http_refuse_reply(const struct http_server *s, uint64_t bytes)
{
    if (bytes <= bodies_bytes_max(s))
        return refuse_busy("the answer", bytes);
    return refusal(507, "out_of_memory",
                   "The answer has %llu bytes, and %llu are planned for all bodies together. Ask for less.",
                   (unsigned long long)bytes, (unsigned long long)bodies_bytes_max(s));
}

/* What the headers hold that decides how the request is framed and where it came from. */
struct framing {
    uint32_t hosts, lengths, encodings, origins;
    struct slice host, length, encoding, origin;
};

static enum MHD_Result collect(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_bytes,
                               const char *value, size_t value_bytes)
{
    struct framing *f = arg;
    const struct {
        struct slice name;
        uint32_t *count;
        struct slice *value;
    } wanted[] = {
        {SLICE("host"), &f->hosts, &f->host},
        {SLICE("content-length"), &f->lengths, &f->length},
        {SLICE("transfer-encoding"), &f->encodings, &f->encoding},
        {SLICE("origin"), &f->origins, &f->origin},
    };
    (void)kind;
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        if (key_bytes == wanted[i].name.len && strncasecmp(key, wanted[i].name.ptr, key_bytes) == 0) {
            *wanted[i].count += 1;
            *wanted[i].value = (struct slice){value, value_bytes};
        }
    }
    return MHD_YES;
}

static bool framing_is_wrong(const struct framing *f, bool http_1_0, struct http_refusal *ret)
{
    if (f->hosts == 0 && !http_1_0)
        *ret = refusal(400, "host_missing", "A request of HTTP/1.1 has a Host header.");
    else if (f->hosts > 1 || f->lengths > 1 || f->encodings > 1 || f->origins > 1)
        *ret = refusal(400, "duplicate_header",
                       "Host, Content-Length, Transfer-Encoding and Origin may stand once in a request.");
    else if (f->lengths && f->encodings)
        *ret =
            refusal(400, "ambiguous_length", "A request has Content-Length or Transfer-Encoding, not both.");
    else if (f->encodings && !(f->encoding.len == 7 && strncasecmp(f->encoding.ptr, "chunked", 7) == 0))
        *ret = refusal(501, "transfer_encoding", "The only Transfer-Encoding understood is chunked.");
    else
        return false;
    return true;
}

static bool origin_is_foreign(const struct framing *f, struct http_refusal *ret)
{
    if (f->hosts && !http_guard_host_is_loopback(f->host))
        *ret =
            refusal(403, "host_not_allowed",
                    "Without API keys only loopback names are served (Host: localhost, 127.0.0.1 or [::1]). "
                    "Use one of them, or start the server with --api-key.");
    else if (f->origins && !http_guard_origin_is_host(f->origin, f->host))
        *ret = refusal(
            403, "origin_not_allowed",
            "Without API keys a page may only call the server that it came from: Origin and Host differ.");
    else
        return false;
    return true;
}

/* One that came when all were open is like any other once there is room. */
static bool is_excess(struct http_conn *c)
{
    const struct http_server *s = c->server;
    c->excess = c->excess && s->conns_open > s->opts.connections_max;
    return c->excess;
}

static bool does_not_fit(const struct http_request *r, const struct framing *f, struct http_refusal *ret)
{
    struct http_conn *c = http_conn_of((struct http_request *)(uintptr_t)r);
    const struct http_server *s = c->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    uint64_t length = 0;
    if (info && info->header_size > s->opts.header_bytes_max)
        *ret = refusal(
            431, "header_too_large",
            "The request's header is %zu bytes, more than %zu. Send less, or raise --max-header-bytes.",
            info->header_size, s->opts.header_bytes_max);
    else if (f->lengths && !slice_u64(f->length, s->opts.body_bytes_max, &length))
        *ret = http_refuse_body_too_large(s);
    else if (f->lengths && length > bodies_bytes_max(s))
        *ret = refuse_body_for_ever(s);
    else if (s->last_words_ns > 0)
        *ret = refusal(503, "shutting_down", "The server is shutting down.");
    else if (is_excess(c))
        *ret =
            refusal(429, "too_many_connections",
                    "%u connections are open, as many as are allowed. Try again, or raise --max-connections.",
                    s->opts.connections_max);
    else
        return false;
    return true;
}

bool http_refuse_wanted(const struct http_request *r, struct http_refusal *ret)
{
    struct http_conn *c = http_conn_of((struct http_request *)(uintptr_t)r);
    struct framing f = {0};
    MHD_get_connection_values_n(c->mhd, MHD_HEADER_KIND, collect, &f);
    if (r->bad_target || !(slice_starts(r->path, SLICE("/")) || slice_eq(r->path, SLICE("*")))) {
        *ret = refusal(400, "bad_target",
                       "The request's target must be a path that starts with /, without spaces, whose "
                       "%%-escapes are whole.");
        return true;
    }
    if (framing_is_wrong(&f, r->http_1_0, ret) || does_not_fit(r, &f, ret))
        return true;
    return c->server->opts.loopback_host_only && origin_is_foreign(&f, ret);
}
