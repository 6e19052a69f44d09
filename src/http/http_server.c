/* http_server.c - one thread and one epoll set.
 *
 * The set holds the listening socket (http_accept.c), the clients' sockets, the watches of the layers above
 * and a wake-up. A turn waits, accepts, notes what sockets and watches say, serves the connections that have
 * something to do (http_io.c), and then does the work that was queued. Since everything happens on this one
 * thread, an answer may be given at any time without a lock. */
#include "http/http_state.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "memory/ledger.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- creation ---- */

static void fill_defaults(struct http_server_opts *o)
{
    o->header_bytes_max = o->header_bytes_max ? o->header_bytes_max : 8192;
    o->body_bytes_max = o->body_bytes_max ? o->body_bytes_max : (size_t)64 << 20;
    o->send_bytes_max = o->send_bytes_max ? o->send_bytes_max : 65536;
    o->idle_timeout_s = o->idle_timeout_s ? o->idle_timeout_s : 60;
}

static int check_opts(struct http_server_opts *o, struct err *e)
{
    if (o->connections_max == 0 || o->connections_max > 65536)
        return err_set(e, -EINVAL, "connections_max is %u; it must be 1 to 65536", o->connections_max);
    ASSERT(o->network && (o->host || o->listen_fd > 0) && o->handler.begin && o->handler.ready &&
           o->handler.ended);
    fill_defaults(o);
    if (o->header_bytes_max < 512 || o->header_bytes_max > (size_t)1 << 20)
        return err_set(e, -EINVAL, "header_bytes_max is %zu; it must be 512 to 1048576", o->header_bytes_max);
    if (o->send_bytes_max < 1024 || o->send_bytes_max > (size_t)64 << 20)
        return err_set(e, -EINVAL, "send_bytes_max is %zu; it must be 1024 to 67108864", o->send_bytes_max);
    return 0;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    char port[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        getnameinfo((struct sockaddr *)&a, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV);
    return (uint16_t)atoi(port);
}

static int open_loop(struct http_server *s, struct err *e)
{
    int r;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->wake_fd < 0)
        return err_set(e, -errno, "no descriptors for the network loop: %s", strerror(errno));
    s->listen_fd = s->opts.listen_fd;
    r = s->listen_fd > 0 ? 0 : http_listen_on(s->opts.host, s->opts.port, e, &s->listen_fd);
    if (r < 0)
        return r;
    s->port = port_of(s->listen_fd);
    r = http_accept_open(s);
    if (r == 0)
        r = http_epoll_add(s, s->wake_fd, http_event_pack(HTTP_EVENT_WAKE, 0, 0));
    return r < 0 ? err_set(e, r, "cannot watch the network's descriptors: %s", strerror(-r)) : 0;
}

static void init_slots(struct http_server *s)
{
    for (uint32_t i = 0; i < s->conns_max; i++) {
        struct http_conn *c = &s->conns[i];
        c->server = s;
        c->fd = -1;
        c->idle = HTTP_IDLES;
        list_init(&c->leaving);
        list_init(&c->idle_link);
        list_init(&c->peer_link);
        list_init(&c->free);
        list_init(&c->active);
        list_init(&c->writable);
        list_init(&c->closing);
        list_push_back(&s->free, &c->free);
    }
}

static size_t pool_bytes(const struct http_server_opts *o)
{
    return sizeof(struct http_pool) + o->header_bytes_max;
}

static uint32_t slots_max(const struct http_server_opts *o)
{
    return o->connections_max + HTTP_EXCESS_MAX + HTTP_LEAVING_MAX;
}

/* Returns the bytes that the server allocates once: slots, and the table that finds clients by address. */
static uint64_t tables_bytes(uint32_t slots)
{
    return (uint64_t)slots * sizeof(struct http_conn) + http_peers_bytes(slots);
}

uint64_t http_server_bytes(const struct http_server_opts *opts, uint64_t *connection)
{
    struct http_server_opts o = *opts;
    fill_defaults(&o);
    uint64_t slots = slots_max(&o), tables = tables_bytes(slots_max(&o));
    *connection = DIV_UP(tables, slots) + pool_bytes(&o) + o.send_bytes_max;
    return slots * *connection;
}

static int allocate(struct http_server *s, struct err *e)
{
    s->conns = calloc(s->conns_max, sizeof(*s->conns));
    if (s->conns)
        init_slots(s);
    if (!s->conns || http_peers_init(&s->peers, s->conns_max) < 0)
        return err_set(e, -ENOMEM, "no memory for %u connections", s->opts.connections_max);
    account_use(s->opts.network, tables_bytes(s->conns_max));
    return 0;
}

static int reserve(struct http_server *s, struct err *e)
{
    uint64_t connection, bytes = http_server_bytes(&s->opts, &connection);
    s->conns_max = slots_max(&s->opts);
    s->pool_bytes = pool_bytes(&s->opts);
    s->raw_limits =
        (struct http_raw_limits){s->opts.header_bytes_max, HTTP_FIELDS_MAX * HTTP_RAW_FIELD_BYTES};
    if (account_reserve(s->opts.network, bytes) < 0)
        return err_set(
            e, -ENOMEM,
            "%u connections need %llu bytes, which the memory limit does not leave: lower --max-connections",
            s->opts.connections_max, (ull)bytes);
    s->reserved_bytes = bytes;
    return allocate(s, e);
}

static void init_lists(struct http_server *s)
{
    list_init(&s->free);
    list_init(&s->active);
    list_init(&s->lingering);
    list_init(&s->writable);
    list_init(&s->closing);
    list_init(&s->leaving);
    for (int i = 0; i < HTTP_IDLES; i++)
        list_init(&s->idles[i]);
    for (uint32_t i = 0; i < HTTP_WATCHES_MAX; i++)
        s->watches[i].fd = -1;
}

int http_server_create(const struct http_server_opts *opts, struct err *e, struct http_server **ret)
{
    struct http_server_opts checked = *opts;
    int r = check_opts(&checked, e);
    if (r < 0)
        return r;
    struct http_server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(e, -ENOMEM, "no memory for the HTTP server");
    s->opts = checked;
    s->charge = account_charge(checked.network);
    s->epoll_fd = s->wake_fd = s->listen_fd = s->accept.spare_fd = -1;
    init_lists(s);
    atomic_init(&s->stop_at_ns, UINT64_MAX);
    s->now_ns = clock_now_ns();
    s->tick_ns = s->now_ns + HTTP_TICK_NS;
    r = reserve(s, e);
    if (r == 0)
        r = open_loop(s, e);
    if (r < 0) {
        if (checked.listen_fd > 0)
            s->listen_fd = -1; /* still the caller's */
        http_server_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void http_server_set_live(struct http_server *s, const struct http_server_opts *now)
{
    s->opts.idle_timeout_s = now->idle_timeout_s;
    s->opts.body_bytes_max = now->body_bytes_max;
    s->opts.loopback_host_only = now->loopback_host_only;
    fill_defaults(&s->opts);
}

/* ---- the end ---- */

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    while (s->joined_count > 0)
        http_server_free(s->joined[--s->joined_count]);
    http_accept_stop(s);
    http_loop_end_all(s);
    ASSERT(s->conns_open == 0 && s->requests_open == 0);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->peers.entries)
        account_unuse(s->opts.network, tables_bytes(s->conns_max));
    account_release(s->opts.network, s->reserved_bytes);
    http_peers_done(&s->peers);
    free(s->conns);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

/* ---- from other threads ---- */

static void wake(struct http_server *s)
{
    uint64_t one = 1;
    if (write(s->wake_fd, &one, sizeof(one)) < 0)
        ASSERT(errno == EAGAIN);
}

void http_server_stop(struct http_server *s, uint64_t grace_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t at = grace_ns < UINT64_MAX - 1 - now ? now + grace_ns : UINT64_MAX - 1;
    uint64_t known = atomic_load(&s->stop_at_ns);
    while (at < known && !atomic_compare_exchange_weak(&s->stop_at_ns, &known, at))
        ;
    wake(s);
}

static void add_pools(struct http_server *s, struct http_pools *ret)
{
    uint64_t now = atomic_load_explicit(&s->counters.connections_now, memory_order_relaxed);
    *(s->pool_bytes <= HTTP_POOL_HEAP_MAX ? &ret->heap : &ret->mapped) += now * s->pool_bytes;
}

struct http_pools http_server_pools(struct http_server *s)
{
    struct http_pools pools = {0};
    add_pools(s, &pools);
    for (uint32_t i = 0; i < s->joined_count; i++)
        add_pools(s->joined[i], &pools);
    return pools;
}

struct http_counters http_server_counters(struct http_server *s)
{
    struct http_counters n = {0};
#define READ(field) n.field = atomic_load_explicit(&s->counters.field, memory_order_relaxed)
    READ(connections_total);
    READ(connections_now);
    READ(requests_total);
    READ(requests_now);
    READ(bytes_in);
    READ(bytes_out);
    for (size_t i = 0; i < COUNT_OF(n.answers); i++)
        READ(answers[i]);
    for (size_t i = 0; i < COUNT_OF(n.refused); i++)
        READ(refused[i]);
#undef READ
    return n;
}

/* ---- watches, adopted connections ---- */

int http_server_watch(struct http_server *s, int fd, void (*ready)(void *arg, int fd), void *arg)
{
    for (uint32_t i = 0; i < HTTP_WATCHES_MAX; i++) {
        struct http_watch *w = &s->watches[i];
        if (w->fd >= 0)
            continue;
        int r = http_epoll_add(s, fd, http_event_pack(HTTP_EVENT_WATCH, i, w->generation));
        if (r == 0)
            *w = (struct http_watch){.fd = fd, .generation = w->generation, .ready = ready, .arg = arg};
        return r;
    }
    return -ENOSPC;
}

void http_server_unwatch(struct http_server *s, int fd)
{
    for (uint32_t i = 0; i < HTTP_WATCHES_MAX; i++) {
        if (s->watches[i].fd != fd || fd < 0)
            continue;
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        s->watches[i].fd = -1;
        s->watches[i].generation++;
    }
}

int http_server_adopt(struct http_server *s, int fd)
{
    union http_address from = {.any.sa_family = AF_UNIX};
    socklen_t len = sizeof(from);
    if (getpeername(fd, &from.any, &len) < 0)
        len = 0;
    s->now_ns = clock_now_ns();
    return http_accept_add(s, fd, &from, len);
}
