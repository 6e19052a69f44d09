/* http_answer.c - the head of an answer, as text.
 *
 * The head is written once it is known, into the connection's pool, behind what may still lie there: a "100
 * Continue". It decides whether the connection closes behind the answer, and says so. */
#include "http/http_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static const char statuses[] = "\n200 OK\n201 Created\n202 Accepted\n204 No Content\n206 Partial Content"
                               "\n304 Not Modified\n400 Bad Request\n401 Unauthorized\n403 Forbidden"
                               "\n404 Not Found\n405 Method Not Allowed\n408 Request Timeout\n409 Conflict"
                               "\n413 Content Too Large\n414 URI Too Long\n415 Unsupported Media Type"
                               "\n422 Unprocessable Content\n429 Too Many Requests"
                               "\n431 Request Header Fields Too Large\n500 Internal Server Error"
                               "\n501 Not Implemented\n502 Bad Gateway\n503 Service Unavailable"
                               "\n504 Gateway Timeout\n505 HTTP Version Not Supported"
                               "\n507 Insufficient Storage\n";

struct slice http_answer_reason(unsigned status)
{
    struct slice all = {statuses, sizeof(statuses) - 1};
    char line[8];
    size_t len = (size_t)snprintf(line, sizeof(line), "\n%03u ", status % 1000);
    size_t at = slice_find(all, (struct slice){line, len}, 0);
    return at == SIZE_MAX ? SLICE("Unknown")
                          : slice_sub(all, at + len, slice_find(all, SLICE("\n"), at + 1) - at - len);
}

void http_answer_put(struct http_conn *c, const char *bytes, size_t len)
{
    struct http_out *o = &c->out;
    if (o->text_left == 0)
        o->text_end = 0;
    ASSERT(len <= HTTP_OUT_BYTES - o->text_end);
    memcpy(c->pool->out + o->text_end, bytes, len);
    o->text_end += (uint32_t)len;
    o->text_left += (uint32_t)len;
}

static void put(struct http_conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct http_conn *c, const char *format, ...)
{
    char line[128];
    va_list ap;
    va_start(ap, format);
    int len = vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    ASSERT(len > 0 && (size_t)len < sizeof(line));
    http_answer_put(c, line, (size_t)len);
}

static const char *date_of(struct http_server *s)
{
    time_t now = time(NULL);
    struct tm t;
    if (now != s->date_s && gmtime_r(&now, &t) &&
        strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &t) > 0)
        s->date_s = now;
    return s->date;
}

/* True: one of the request's Connection headers has the token. */
static bool asks_for(const struct http_head *h, struct slice token)
{
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct http_field *f = &h->fields[i];
        struct slice value = {h->text + f->value, f->value_bytes};
        if (!slice_eq_any_case((struct slice){h->text + f->name, f->name_bytes}, SLICE("connection")))
            continue;
        for (size_t at = 0; at < value.len;) {
            size_t comma = MIN_OF(slice_find(value, SLICE(","), at), value.len);
            if (slice_eq_any_case(slice_trim(slice_sub(value, at, comma - at), " \t"), token))
                return true;
            at = comma + 1;
        }
    }
    return false;
}

/* A connection beyond the limit would send further requests, and blocks the place of another client's
 * refusal; a client of a stopping server should look for another one. */
static void put_connection(struct http_conn *c, bool close)
{
    bool asks = asks_for(&c->head, c->head.http_1_0 ? SLICE("keep-alive") : SLICE("close"));
    c->last = c->last || close || c->excess || c->server->stopping || asks != c->head.http_1_0;
    if (c->last)
        put(c, "Connection: close\r\n");
    else if (c->head.http_1_0)
        put(c, "Connection: Keep-Alive\r\n");
}

void http_answer_put_header(struct http_conn *c, const char *name, const char *value)
{
    http_answer_put(c, name, strlen(name));
    http_answer_put(c, ": ", 2);
    http_answer_put(c, value, strlen(value));
    http_answer_put(c, "\r\n", 2);
}

void http_answer_begin(struct http_request *r, const char *content_type, bool close)
{
    struct http_conn *c = http_conn_of(r);
    ASSERT(r->status != 0 && c->out.payload_left == 0);
    struct slice reason = http_answer_reason(r->status);
    put(c, "HTTP/1.1 %u %.*s\r\nDate: %s\r\n", r->status, SLICE_ARGS(reason), date_of(c->server));
    put_connection(c, close);
    if (content_type)
        http_answer_put_header(c, "Content-Type", content_type);
    const char *at = r->headers;
    for (uint32_t i = 0; i < r->header_count; i++) {
        const char *value = at + strlen(at) + 1;
        http_answer_put_header(c, at, value);
        at = value + strlen(value) + 1;
    }
}

void http_answer_end(struct http_request *r, uint64_t body_bytes)
{
    struct http_conn *c = http_conn_of(r);
    if (body_bytes != HTTP_BODY_UNKNOWN && r->status != 204)
        put(c, "Content-Length: %llu\r\n", (ull)body_bytes);
    else if (body_bytes == HTTP_BODY_UNKNOWN && !c->head.http_1_0)
        put(c, "Transfer-Encoding: chunked\r\n");
    http_answer_put(c, "\r\n", 2);
    if (r->phase == HTTP_PHASE_WAITING)
        r->phase = HTTP_PHASE_ANSWERED;
    http_conn_wake(c);
}
