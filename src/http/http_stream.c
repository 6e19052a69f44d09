/* http_stream.c - an answer of unknown length: a ring of bytes between the handler and the socket.
 *
 * The handler puts whole messages in, http_io.c takes what the system accepts. An empty ring leaves the
 * connection alone, a write wakes it, so a silent stream costs nothing and a client that does not read stops
 * its own stream only. */
#include "http/http_state.h"

#include "base/clock.h"
#include "memory/ledger.h"

#include <errno.h>
#include <stdlib.h>

int http_stream_begin(struct http_request *r, unsigned status, const char *content_type)
{
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return -EPIPE;
    ASSERT(r->phase == HTTP_PHASE_WAITING && r->status == 0);
    char *bytes = malloc(s->opts.send_bytes_max);
    if (!bytes)
        return -ENOMEM;
    account_use(s->opts.network, s->opts.send_bytes_max);
    r->ring = (struct http_ring){.bytes = bytes};
    r->phase = HTTP_PHASE_STREAM;
    r->status = status;
    http_answer_begin(r, content_type, c->head.http_1_0);
    http_answer_end(r, HTTP_BODY_UNKNOWN);
    return 0;
}

bool http_stream_is_begun(const struct http_request *r)
{
    return r->phase == HTTP_PHASE_STREAM;
}

/* In two pieces where the ring wraps. */
static void ring_put(struct http_ring *ring, size_t size, struct slice bytes)
{
    size_t at = (ring->head + ring->count) % size;
    size_t first = MIN_OF(bytes.len, size - at);
    memcpy(ring->bytes + at, bytes.ptr, first);
    memcpy(ring->bytes, bytes.ptr + first, bytes.len - first);
    ring->count += bytes.len;
}

int http_stream_write(struct http_request *r, struct slice bytes)
{
    struct http_conn *c = http_conn_of(r);
    size_t size = c->server->opts.send_bytes_max;
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return -EPIPE;
    ASSERT(r->phase == HTTP_PHASE_STREAM && !r->ring.ended);
    if (bytes.len > size)
        return -EMSGSIZE;
    if (bytes.len > size - r->ring.count) {
        r->ring.want_room = true;
        return -EAGAIN;
    }
    if (bytes.len == 0)
        return 0;
    if (r->ring.count == 0)
        r->ring.progress_ns = clock_now_ns();
    ring_put(&r->ring, size, bytes);
    http_conn_wake(c);
    return 0;
}

void http_stream_end(struct http_request *r)
{
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return;
    ASSERT(r->phase == HTTP_PHASE_STREAM && !r->ring.ended);
    r->ring.ended = true;
    list_remove(&http_conn_of(r)->writable);
    http_conn_wake(http_conn_of(r));
}

size_t http_stream_free_bytes(const struct http_request *r)
{
    if (r->phase != HTTP_PHASE_STREAM || r->ring.ended || r->closing)
        return 0;
    return http_conn_of(r)->server->opts.send_bytes_max - r->ring.count;
}

bool http_stream_is_behind(struct http_request *r)
{
    r->ring.want_low = r->phase == HTTP_PHASE_STREAM && r->ring.count > HTTP_STREAM_BEHIND_BYTES;
    return r->ring.want_low;
}

uint64_t http_stream_stalled_ns(const struct http_request *r)
{
    if (r->phase != HTTP_PHASE_STREAM || r->ring.count == 0)
        return 0;
    uint64_t now = clock_now_ns();
    return now > r->ring.progress_ns ? now - r->ring.progress_ns : 0;
}

void http_stream_took(struct http_request *r, size_t bytes)
{
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    struct http_ring *ring = &r->ring;
    size_t half = s->opts.send_bytes_max / 2, before = ring->count;
    ASSERT(r->phase == HTTP_PHASE_STREAM && bytes <= before);
    ring->head = (ring->head + bytes) % s->opts.send_bytes_max;
    ring->count -= bytes;
    ring->progress_ns = s->now_ns;
    HTTP_COUNT(s, bytes_out, bytes);
    bool half_empty = ring->count < half && (before >= half || ring->want_room);
    bool low = ring->want_low && ring->count <= HTTP_STREAM_BEHIND_BYTES;
    if ((half_empty || low) && !ring->ended && list_empty(&c->writable))
        list_push_back(&s->writable, &c->writable);
}
