/* http_accept.c - accepts connections; also when the process has no descriptor left for one.
 *
 * The listening socket lies in the server's epoll set, level-triggered. It is polled only while a connection
 * could be accepted, so a turn never comes for nothing.
 *
 * Without descriptors a lingering connection is closed first. Then the order of http_place.c applies: the
 * longest idle connection is evicted, and accepting goes on when it has closed. With none to evict, a spare
 * descriptor is closed, the client is accepted with it, gets 503 and is closed, and the spare is opened
 * again. When another thread has taken the spare, or the system lacks memory, accepting pauses. */
#include "http/http_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* In one turn; the others follow in the next. */
#define ACCEPTS_MAX 10
#define PAUSE_NS    (100 * NS_PER_MS)
#define LOG_NS      (10 * NS_PER_S)
/* Bytes of a refused client's request that are read, so that its close is not a reset. */
#define REFUSED_BYTES_MAX 4096

/* ---- one connection ---- */

/* A Unix socket's address is longer, and of no interest, or has not even a family. */
int http_accept_add(struct http_server *s, int fd, union http_address *from, socklen_t len)
{
    if (len < sizeof(from->any.sa_family) || len > sizeof(*from))
        from->any.sa_family = AF_UNIX;
    return http_conn_open(s, fd, from);
}

static int take_waiting(struct http_server *s, union http_address *from, socklen_t *len)
{
    *len = sizeof(*from);
    int fd = accept4(s->listen_fd, &from->any, len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* ---- without a descriptor ---- */

static int open_spare(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void refuse(struct http_server *s, int fd)
{
    char waste[REFUSED_BYTES_MAX];
    s->accept.refused++;
    http_refuse_unaccepted(s, fd);
    shutdown(fd, SHUT_WR);
    (void)recvfrom(fd, waste, sizeof(waste), MSG_DONTWAIT, NULL, NULL);
    close(fd);
}

/* accept() says EMFILE before it looks whether a client waits. */
static bool one_waits(const struct http_server *s)
{
    struct pollfd p = {.fd = s->listen_fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* True: one was refused, and there may be more. */
static bool refuse_one(struct http_server *s)
{
    struct http_accept *a = &s->accept;
    union http_address from;
    socklen_t len;
    if (a->spare_fd < 0)
        return false;
    close(a->spare_fd);
    int fd = take_waiting(s, &from, &len);
    if (fd >= 0)
        refuse(s, fd);
    a->spare_fd = open_spare();
    return fd >= 0;
}

static void log_starved(struct http_server *s, int error)
{
    struct http_accept *a = &s->accept;
    if (a->log_ns && s->now_ns < a->log_ns)
        return;
    a->log_ns = s->now_ns + LOG_NS;
    log_write(LOG_LEVEL_WARN, "accept_failed",
              "error=\"%s\" connections=%u evicted=%llu refused=%llu hint=\"%s\"", strerror(error),
              s->conns_open, (ull)a->evicted, (ull)a->refused,
              error == EMFILE ? "raise the limit of open files (ulimit -n, LimitNOFILE=)" : "");
}

/* True: another attempt may succeed at once. */
static bool starve(struct http_server *s, int error)
{
    struct http_accept *a = &s->accept;
    bool again = false, evicted = false;
    if (error != ENOMEM && !one_waits(s))
        return false;
    a->starved = true;
    if (error != ENOMEM && http_conn_close_lingering(s))
        return true;
    if (error == EMFILE || error == ENFILE) {
        evicted = http_place_evict_any(s);
        a->evicted += evicted;
        again = !evicted && refuse_one(s);
    }
    if (!again)
        a->paused_until_ns = s->now_ns + PAUSE_NS;
    log_starved(s, error);
    return again;
}

/* ---- the listening socket ---- */

/* True: there may be more. */
static bool accept_one(struct http_server *s)
{
    union http_address from = {.any.sa_family = AF_UNIX};
    socklen_t len;
    int fd = take_waiting(s, &from, &len);
    if (fd == -EAGAIN)
        return false;
    if (fd == -EINTR || fd == -ECONNABORTED)
        return true;
    if (fd < 0)
        return starve(s, -fd);
    s->accept.starved = false;
    if (s->accept.spare_fd < 0)
        s->accept.spare_fd = open_spare();
    return http_accept_add(s, fd, &from, len) == 0 || starve(s, ENOMEM);
}

static bool has_slot(const struct http_server *s)
{
    return !list_empty(&s->free) || !list_empty(&s->lingering);
}

static bool may_accept(const struct http_server *s)
{
    return !s->quiesced && has_slot(s) && s->now_ns >= s->accept.paused_until_ns;
}

void http_accept_ready(struct http_server *s)
{
    for (int i = 0; i < ACCEPTS_MAX && may_accept(s); i++)
        if (!accept_one(s))
            return;
}

void http_accept_arm(struct http_server *s)
{
    bool wanted = may_accept(s);
    if (s->quiesced || wanted == s->accept.armed)
        return;
    struct epoll_event e = {.events = wanted ? EPOLLIN : 0,
                            .data.u64 = http_event_pack(HTTP_EVENT_ACCEPT, 0, 0)};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fd, &e) == 0)
        s->accept.armed = wanted;
}

uint64_t http_accept_wait_ms(const struct http_server *s, uint64_t ms)
{
    uint64_t until_ns = s->accept.paused_until_ns;
    if (s->quiesced || s->accept.armed || !has_slot(s))
        return ms;
    return MIN_OF(ms, until_ns > s->now_ns ? DIV_UP(until_ns - s->now_ns, NS_PER_MS) : 0);
}

int http_accept_open(struct http_server *s)
{
    int flags = fcntl(s->listen_fd, F_GETFL);
    if (flags < 0 || fcntl(s->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    s->accept.spare_fd = open_spare();
    if (s->accept.spare_fd < 0)
        return -errno;
    s->accept.armed = true;
    return http_epoll_add(s, s->listen_fd, http_event_pack(HTTP_EVENT_ACCEPT, 0, 0));
}

void http_accept_stop(struct http_server *s)
{
    if (s->quiesced)
        return;
    s->quiesced = true;
    if (s->listen_fd >= 0) {
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
        close(s->listen_fd);
    }
    s->listen_fd = -1;
    if (s->accept.spare_fd >= 0)
        close(s->accept.spare_fd);
    s->accept.spare_fd = -1;
}
