/* http_io.c - a connection's bytes, from the socket to the handler and back.
 *
 * The way of a byte: the socket, http_pool.in, http_raw_feed(), which judges it, and the head or the body of
 * the request. It is parsed once, and only when the request before it has been answered; further bytes wait
 * in `in` or in the kernel. The way back: http_pool.out, a chunk's size, the answer's body or the stream's
 * ring, in one sendmsg(). A ring's bytes leave it only when the system has taken them.
 *
 * Sockets are polled edge-triggered for everything, once: an edge sets `readable` or clears `full`, and the
 * connection becomes active. A read that returns less than it asked for has emptied the socket. So a small
 * request on an open connection costs an epoll_wait, a recv and a sendmsg.
 *
 * Lingering: a socket that is closed with unread bytes resets the connection, and the reset overtakes the
 * answer. A client that is still sending its 100 MiB body would see "connection reset" instead of 413. So the
 * sending half is shut, and bytes are read and thrown away for a moment, within bounds. */
#include "http/http_state.h"

#include "http/http_target.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Requests, or pieces of a body, that one connection gets in a turn, and reads of one that lingers. */
#define STEPS_MAX 16
/* The end of a chunk, and, with all of it, the last chunk. */
static const char chunk_end[] = "\r\n0\r\n\r\n";
#define CHUNK_END_BYTES  2
#define STREAM_END_BYTES 7
/* Text, payload in two pieces where the ring wraps, tail. */
#define PARTS_MAX 4
/* Bytes of a body that the system is given at once, and how often in a turn: it copies as long as the client
 * reads. */
#define PAYLOAD_MAX ((size_t)256 << 10)
#define SENDS_MAX   4

/* ---- sending ---- */

/* Makes a chunk of what the ring holds, or the end of the stream. */
static void fill_from_ring(struct http_conn *c)
{
    struct http_ring *ring = &c->request.ring;
    struct http_out *o = &c->out;
    if (c->request.is_head || ring->closed || (ring->count == 0 && !ring->ended))
        return;
    ring->closed = ring->ended;
    o->payload_left = ring->count;
    if (c->head.http_1_0)
        return; /* Its end is the connection's. */
    char size[20];
    if (ring->count > 0)
        http_answer_put(c, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", ring->count));
    else
        http_answer_put(c, chunk_end + CHUNK_END_BYTES, STREAM_END_BYTES - CHUNK_END_BYTES);
    if (ring->count > 0)
        o->tail_bytes = o->tail_left = ring->closed ? STREAM_END_BYTES : CHUNK_END_BYTES;
}

static size_t put_part(struct iovec *to, const char *bytes, size_t len)
{
    *to = (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    return len > 0;
}

static size_t put_payload(const struct http_conn *c, struct iovec *to)
{
    const struct http_request *r = &c->request;
    size_t left = (size_t)c->out.payload_left;
    if (left == 0)
        return 0;
    if (r->reply) {
        struct slice body = r->reply->body;
        return put_part(to, body.ptr + body.len - left, MIN_OF(left, PAYLOAD_MAX));
    }
    size_t first = MIN_OF(left, c->server->opts.send_bytes_max - r->ring.head);
    put_part(to, r->ring.bytes + r->ring.head, first);
    return 1 + put_part(to + 1, r->ring.bytes, left - first);
}

/* Returns what sendmsg() does; *offered: bytes that it could have taken. */
static ssize_t send_parts(const struct http_conn *c, size_t *offered)
{
    const struct http_out *o = &c->out;
    struct iovec parts[PARTS_MAX];
    size_t n = put_part(parts, c->pool->out + o->text_end - o->text_left, o->text_left);
    n += put_payload(c, parts + n);
    n += put_part(parts + n, chunk_end + o->tail_bytes - o->tail_left, o->tail_left);
    *offered = 0;
    for (size_t i = 0; i < n; i++)
        *offered += parts[i].iov_len;
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
    return sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The system has taken `n` bytes. */
static void took(struct http_conn *c, size_t n)
{
    struct http_out *o = &c->out;
    size_t text = MIN_OF(n, (size_t)o->text_left), payload = (size_t)MIN_OF(n - text, o->payload_left);
    ASSERT(n - text - payload <= o->tail_left);
    o->text_left -= (uint32_t)text;
    o->payload_left -= payload;
    o->tail_left -= (uint32_t)(n - text - payload);
    if (payload > 0 && !c->request.reply)
        http_stream_took(&c->request, payload);
}

/* True: the system has taken all that it was offered, and may take more. */
static bool send_some(struct http_conn *c)
{
    size_t offered;
    ssize_t n = send_parts(c, &offered);
    if (n < 0 && errno != EAGAIN) {
        http_conn_close(c);
        return false;
    }
    /* A client that reads nothing is silent from here on. */
    c->active_ns = c->server->now_ns;
    if (n > 0)
        took(c, (size_t)n);
    c->full = n < 0 || (size_t)n < offered;
    return !c->full;
}

/* Sends what is there. False: the system takes no more now, or the connection is closed. */
static bool flush(struct http_conn *c)
{
    for (int i = 0; i < SENDS_MAX; i++) {
        if (c->request.phase == HTTP_PHASE_STREAM && c->out.payload_left == 0 && c->out.tail_left == 0)
            fill_from_ring(c);
        if (!http_out_waits(&c->out))
            return true;
        if (c->full || !send_some(c))
            return false;
    }
    http_conn_wake(c);
    return false;
}

/* ---- requests ---- */

/* Asks the checks, then the handler. */
static void judge_header(struct http_request *r)
{
    struct http_server *s = http_conn_of(r)->server;
    struct http_refusal why;
    if (http_refuse_wanted(r, &why)) {
        http_refuse(r, &why);
        return;
    }
    r->begun = true;
    r->late = s->stopping;
    s->requests_open += !r->late;
    HTTP_COUNT(s, requests_now, 1);
    int status = s->opts.handler.begin(s->opts.arg, r);
    ASSERT((status != 0) == (r->status != 0) || r->closing);
}

static bool expects_100(const struct http_request *r)
{
    struct slice value;
    return r->body_expected && !http_conn_of(r)->head.http_1_0 && http_request_header(r, "expect", &value) &&
           slice_eq_any_case(value, SLICE("100-continue"));
}

static void on_head(struct http_conn *c)
{
    struct http_request *r = &c->request;
    struct http_server *s = c->server;
    r->method = (struct slice){c->head.text, c->head.method_bytes};
    r->is_head = slice_eq(r->method, SLICE("HEAD"));
    r->bad_target = !http_target_read(&c->head, &r->path, &r->authority);
    HTTP_COUNT(s, requests_total, 1);
    HTTP_COUNT(s, bytes_in, c->head.bytes);
    r->body_expected = c->head.chunked || c->head.length > 0;
    uint64_t limit = s->opts.body_bytes_max;
    buf_init(&r->body, c->head.chunked ? limit : MIN_OF(c->head.length, limit), &s->charge);
    judge_header(r);
    if (r->closing)
        return;
    r->phase = r->status ? HTTP_PHASE_ANSWERED : HTTP_PHASE_BODY;
    if (r->status) {
        c->unread = r->body_expected;
        return;
    }
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (expects_100(r))
        http_answer_put(c, go_on, sizeof(go_on) - 1);
}

static void on_body(struct http_conn *c, const char *data, size_t bytes)
{
    struct http_request *r = &c->request;
    HTTP_COUNT(c->server, bytes_in, bytes);
    r->body_bytes += bytes;
    buf_put(&r->body, data, bytes);
    if (r->body.error == 0)
        return;
    struct http_refusal why = r->body.error == -E2BIG ? http_refuse_body_too_large(c->server)
                                                      : http_refuse_body(c->server, r->body.len + bytes);
    http_refuse_last(c, &why);
}

static void on_whole(struct http_conn *c)
{
    struct http_request *r = &c->request;
    struct http_server *s = c->server;
    r->phase = HTTP_PHASE_WAITING;
    http_place_note(c);
    s->opts.handler.ready(s->opts.arg, r);
    if (r->status == 0 && c->gone)
        http_request_close(r);
}

static void on_fault(struct http_conn *c)
{
    /* Without its LF there is no request yet. */
    if (c->raw.fault == HTTP_FAULT_REQUEST_END) {
        c->unread = true;
        http_conn_finish(c);
        return;
    }
    struct http_refusal why = http_refuse_fault(c->server, c->raw.fault);
    http_refuse_last(c, &why);
}

/* ---- reading ---- */

static bool is_reading(const struct http_conn *c)
{
    return c->open && !c->request.closing && http_request_is_coming(&c->request);
}

/* False: there is nothing to read, or the connection is closed. */
static bool receive(struct http_conn *c)
{
    if (c->in_at < c->in_end)
        return true;
    if (!c->readable)
        return false;
    ssize_t n = recv(c->fd, c->pool->in, HTTP_IN_BYTES, MSG_DONTWAIT);
    c->readable = n == HTTP_IN_BYTES || c->gone;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        http_conn_close(c);
        return false;
    }
    c->active_ns = c->server->now_ns;
    c->in_at = 0;
    c->in_end = (uint32_t)n;
    return true;
}

/* Takes the bytes up to the next event. */
static void parse_event(struct http_conn *c)
{
    struct http_request *r = &c->request;
    if (r->phase == HTTP_PHASE_NONE)
        http_request_begin(r);
    c->in_at += (uint32_t)http_raw_feed(&c->raw, c->pool->in + c->in_at, c->in_end - c->in_at);
    if (c->raw.fault) {
        on_fault(c);
        return;
    }
    if (c->raw.events & HTTP_RAW_HEAD)
        on_head(c);
    if (c->raw.events & HTTP_RAW_BODY && r->phase == HTTP_PHASE_BODY)
        on_body(c, c->pool->in + c->in_at - c->raw.payload_bytes, c->raw.payload_bytes);
    if (c->raw.events & HTTP_RAW_END && r->phase == HTTP_PHASE_BODY && !r->closing)
        on_whole(c);
}

static void parse(struct http_conn *c)
{
    while (c->in_at < c->in_end && is_reading(c))
        parse_event(c);
    if (c->open)
        http_place_note(c);
}

/* ---- the end of an answer ---- */

/* True: all of it has gone out. */
static bool is_answered(const struct http_conn *c)
{
    const struct http_request *r = &c->request;
    bool streamed = r->phase == HTTP_PHASE_STREAM && (r->is_head || r->ring.closed);
    return streamed || r->phase == HTTP_PHASE_ANSWERED || r->phase == HTTP_PHASE_OVER;
}

static void end_answer(struct http_conn *c)
{
    http_request_over(&c->request, true);
    if (c->last) {
        http_conn_finish(c);
        return;
    }
    c->request.phase = HTTP_PHASE_NONE;
    c->since_ns = c->server->now_ns;
    c->served = true;
    http_place_note(c);
}

/* ---- lingering ---- */

static void drain(struct http_conn *c)
{
    char waste[16384];
    for (int i = 0; i < STEPS_MAX; i++) {
        ssize_t n = recv(c->fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || (uint64_t)n >= c->linger_left) {
            http_conn_close(c);
            return;
        }
        c->linger_left -= (uint64_t)n;
    }
    http_conn_wake(c);
}

/* ---- a turn ---- */

static void step(struct http_conn *c)
{
    for (int i = 0; i < STEPS_MAX; i++) {
        if (!c->open || c->request.closing || !flush(c))
            return;
        if (is_answered(c)) {
            end_answer(c);
            continue;
        }
        if (!is_reading(c) || !receive(c))
            return;
        parse(c);
    }
    http_conn_wake(c);
}

void http_io_run(struct http_server *s)
{
    struct list now;
    list_init(&now);
    list_move_all(&s->active, &now);
    while (!list_empty(&now)) {
        struct http_conn *c = LIST_FIRST(&now, struct http_conn, active);
        list_remove(&c->active);
        if (c->lingering)
            drain(c);
        else
            step(c);
    }
}
