/* http_stream.c - an answer of unknown length: a ring of bytes between the handler and MHD.
 *
 * The handler puts whole messages in, MHD's reader takes what it can send. An empty ring suspends the
 * connection, a write resumes it, so a silent stream costs nothing and a client that does not read stops its
 * own stream only. */
#include "http/http_state.h"

#include "base/clock.h"
#include "memory/ledger.h"

#include <errno.h>
#include <stdlib.h>

static ssize_t on_read(void *arg, uint64_t position, char *to, size_t bytes_max);

static struct MHD_Response *create_reply(struct http_request *r)
{
    /* To a HEAD, 0.9.75 would send the last chunk of a body of unknown length, into the next answer. */
    if (slice_eq(r->method, SLICE("HEAD")))
        return MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    /* The block is what MHD reads through for a client of HTTP/1.0; for others it sends chunks from the
     * pool. */
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 2048, on_read, r, NULL);
}

int http_stream_begin(struct http_request *r, unsigned status, const char *content_type)
{
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return -EPIPE;
    ASSERT(r->phase == HTTP_PHASE_WAITING && !r->reply);
    char *bytes = malloc(s->opts.send_bytes_max);
    struct MHD_Response *reply = bytes ? create_reply(r) : NULL;
    if (!reply) {
        free(bytes);
        return -ENOMEM;
    }
    account_use(s->opts.network, s->opts.send_bytes_max);
    r->ring = (struct http_ring){.bytes = bytes};
    r->phase = HTTP_PHASE_STREAM;
    http_request_set_reply(r, reply, status, content_type);
    return 0;
}

bool http_stream_is_begun(const struct http_request *r)
{
    return r->phase == HTTP_PHASE_STREAM;
}

/* Copies into or out of the ring at `at`, in two pieces where it wraps. */
static void ring_copy_in(struct http_ring *ring, size_t size, struct slice bytes)
{
    size_t at = (ring->head + ring->count) % size;
    size_t first = MIN_OF(bytes.len, size - at);
    memcpy(ring->bytes + at, bytes.ptr, first);
    memcpy(ring->bytes, bytes.ptr + first, bytes.len - first);
    ring->count += bytes.len;
}

static size_t ring_copy_out(struct http_ring *ring, size_t size, char *to, size_t bytes_max)
{
    size_t n = MIN_OF(ring->count, bytes_max);
    size_t first = MIN_OF(n, size - ring->head);
    memcpy(to, ring->bytes + ring->head, first);
    memcpy(to + first, ring->bytes, n - first);
    ring->head = (ring->head + n) % size;
    ring->count -= n;
    return n;
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
    ring_copy_in(&r->ring, size, bytes);
    http_conn_resume(c);
    return 0;
}

void http_stream_end(struct http_request *r)
{
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return;
    ASSERT(r->phase == HTTP_PHASE_STREAM && !r->ring.ended);
    r->ring.ended = true;
    list_remove(&http_conn_of(r)->writable);
    http_conn_resume(http_conn_of(r));
}

size_t http_stream_room(const struct http_request *r)
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

static ssize_t on_read(void *arg, uint64_t position, char *to, size_t bytes_max)
{
    struct http_request *r = arg;
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    (void)position;
    s->activity++;
    if (c->killed) {
        /* Its socket is shut: sending anything ends the connection at once. After an error, 0.9.75 marks
         * it closed and forgets it until all older connections have moved, or timed out. */
        *to = '\n';
        return 1;
    }
    if (r->phase != HTTP_PHASE_STREAM)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t half = s->opts.send_bytes_max / 2, before = r->ring.count;
    size_t n = ring_copy_out(&r->ring, s->opts.send_bytes_max, to, bytes_max);
    if (n > 0) {
        r->ring.progress_ns = s->now_ns;
        HTTP_COUNT(s, bytes_out, n);
        bool half_empty = r->ring.count < half && (before >= half || r->ring.want_room);
        bool low = r->ring.want_low && r->ring.count <= HTTP_STREAM_BEHIND_BYTES;
        if ((half_empty || low) && !r->ring.ended && list_empty(&c->writable))
            list_push_back(&s->writable, &c->writable);
        return (ssize_t)n;
    }
    if (r->ring.ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    return 0;
}
