/* http_conn.c - a connection from its accept to its close.
 *
 * A connection is open, then lingers where bytes may still be coming in, then its slot is free. Lingering
 * keeps the slot and the descriptor only: its place, its memory and its request are given back before.
 *
 * The handler is never called from inside its own calls: a request that it closes goes into a list, which
 * the loop empties. So does an evicted connection:
 *   - One with a complete request stays. One that is idle after a request is closed without an answer, as a
 *     server may at any time. Any other gets 429. */
#include "http/http_state.h"

#include "base/clock.h"
#include "memory/ledger.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel's part of a client that does not read: 64 KiB, not the 4 MiB it would grow to. */
#define SOCKET_SEND_BYTES 65536
/* Part of them: bytes that the client's window does not accept yet. They bound the tokens computed for a
 * client that stops reading. */
#define SOCKET_UNSENT_BYTES 1024
#define EXCESS_NS           (5 * NS_PER_S)
#define LINGER_NS           NS_PER_S
#define LINGER_BYTES        ((uint64_t)64 << 20)

/* ---- pools ---- */

/* NULL: no memory. */
static struct http_pool *pool_create(size_t bytes)
{
    void *p = bytes <= HTTP_POOL_HEAP_MAX
                  ? malloc(bytes)
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void pool_free(struct http_pool *p, size_t bytes)
{
    if (bytes <= HTTP_POOL_HEAP_MAX)
        free(p);
    else
        munmap(p, bytes);
}

/* ---- from the accept ---- */

/* Neither is possible on a socket that is not TCP; nothing depends on it. */
static void set_options(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_SEND_BYTES}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){SOCKET_UNSENT_BYTES}, sizeof(int));
}

static void begin(struct http_conn *c, int fd, const union http_address *from, struct http_pool *pool)
{
    struct http_server *s = c->server;
    list_remove(&c->free);
    c->open = true;
    c->served = c->gone = c->last = c->unread = c->full = false;
    c->readable = true;
    c->fd = fd;
    c->from = *from;
    c->pool = pool;
    c->in_at = c->in_end = 0;
    c->out = (struct http_out){0};
    c->head =
        (struct http_head){.text = pool->text, .fields = pool->fields, .fields_max = COUNT_OF(pool->fields)};
    http_raw_init(&c->raw, &s->raw_limits);
    c->since_ns = c->active_ns = s->now_ns;
    c->request.phase = HTTP_PHASE_NONE;
    c->request.closing = false;
    s->conns_open++;
    account_use(s->opts.network, s->pool_bytes);
    HTTP_COUNT(s, connections_total, 1);
    HTTP_COUNT(s, connections_now, 1);
}

int http_conn_open(struct http_server *s, int fd, const union http_address *from)
{
    if (list_empty(&s->free))
        http_conn_close_lingering(s);
    struct http_pool *pool = list_empty(&s->free) ? NULL : pool_create(s->pool_bytes);
    if (!pool) {
        close(fd);
        return -ENOMEM;
    }
    struct http_conn *c = LIST_FIRST(&s->free, struct http_conn, free);
    begin(c, fd, from, pool);
    set_options(fd);
    http_place_take(c);
    http_conn_wake(c);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.u64 =
                                http_event_pack(HTTP_EVENT_CLIENT, (uint32_t)(c - s->conns), c->generation)};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ||
        (s->opts.own_user_only && !http_listen_peer_is_own(fd)))
        http_conn_close(c);
    return 0;
}

/* ---- to the close ---- */

/* Gives back all but the slot and the descriptor. */
static void give_back(struct http_conn *c)
{
    struct http_server *s = c->server;
    http_request_over(&c->request, false);
    http_place_leave(c);
    list_remove(&c->leaving);
    list_remove(&c->active);
    c->open = false;
    c->request.phase = HTTP_PHASE_NONE;
    pool_free(c->pool, s->pool_bytes);
    c->pool = NULL;
    s->conns_open--;
    account_unuse(s->opts.network, s->pool_bytes);
    HTTP_COUNT(s, connections_now, (uint64_t)-1);
}

static void free_slot(struct http_conn *c)
{
    list_remove(&c->active);
    list_remove(&c->free);
    close(c->fd); /* leaves the epoll set with it */
    c->fd = -1;
    c->lingering = false;
    c->generation++;
    list_push_back(&c->server->free, &c->free);
    http_accept_closed(c->server);
}

void http_conn_close(struct http_conn *c)
{
    if (c->open)
        give_back(c);
    if (c->fd >= 0)
        free_slot(c);
}

bool http_conn_close_lingering(struct http_server *s)
{
    if (list_empty(&s->lingering))
        return false;
    http_conn_close(LIST_FIRST(&s->lingering, struct http_conn, free));
    return true;
}

void http_conn_finish(struct http_conn *c)
{
    struct http_server *s = c->server;
    bool linger = (c->unread || http_place_has_unread(c)) && !s->stopping && !s->accept.starved;
    if (!linger) {
        http_conn_close(c);
        return;
    }
    give_back(c);
    shutdown(c->fd, SHUT_WR);
    c->lingering = true;
    c->linger_left = LINGER_BYTES;
    c->since_ns = s->now_ns;
    list_push_back(&s->lingering, &c->free);
    http_conn_wake(c);
}

void http_conn_gone(struct http_conn *c)
{
    struct http_request *r = &c->request;
    c->gone = true;
    /* While a header or body arrives, recv() says where it ends. A client that has closed its sending half
     * only may still read a complete answer. */
    if (r->phase == HTTP_PHASE_WAITING || (r->phase == HTTP_PHASE_STREAM && !r->ring.ended))
        http_request_close(r);
}

/* UINT64_MAX: it waits for the handler. */
static uint64_t deadline_of(const struct http_conn *c)
{
    const struct http_request *r = &c->request;
    uint64_t idle_ns = c->server->opts.idle_timeout_s * NS_PER_S, quiet_ns = c->active_ns + idle_ns;
    if (c->lingering)
        return c->since_ns + LINGER_NS;
    switch (r->phase) {
    case HTTP_PHASE_NONE:
    case HTTP_PHASE_HEADER:
        /* Single bytes now and then would hold the connection without limit. */
        return MIN_OF(quiet_ns, c->since_ns + (c->excess ? MIN_OF(EXCESS_NS, 2 * idle_ns) : 2 * idle_ns));
    case HTTP_PHASE_BODY:
        return MIN_OF(quiet_ns, r->since_ns + idle_ns + r->body_bytes * (NS_PER_S / HTTP_BODY_BYTES_PER_S));
    default:
        return http_out_waits(&c->out) ? quiet_ns : UINT64_MAX;
    }
}

void http_conn_check_deadline(struct http_conn *c, uint64_t now_ns)
{
    if (c->fd >= 0 && now_ns > deadline_of(c))
        http_conn_close(c);
}

/* ---- evicted ones ---- */

static void leave(struct http_conn *c)
{
    if (c->request.closing)
        return;
    if (!http_request_is_coming(&c->request)) {
        http_place_take(c);
        return;
    }
    if (c->served && http_raw_rests(&c->raw)) {
        c->unread = true;
        http_conn_finish(c);
        return;
    }
    struct http_refusal why = http_refuse_place(c);
    http_refuse_last(c, &why);
}

void http_conn_leave_all(struct http_server *s)
{
    while (!list_empty(&s->leaving)) {
        struct http_conn *c = LIST_FIRST(&s->leaving, struct http_conn, leaving);
        list_remove(&c->leaving);
        leave(c);
    }
}
