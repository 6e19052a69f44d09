/* http_listen.c - listening sockets, their access rules, and servers that share a loop.
 *
 * A server that joined another one is complete: epoll set, MHD, places, limits. Its epoll descriptor lies
 * in the other's set, and a turn of the other is followed by one of its own when it has work. So a full
 * server takes no place of another. */
#include "http/http_state.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- sockets ---- */

static int listen_on(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

int http_listen_on(const char *host, uint16_t port, struct err *e, int *ret)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char text[8];
    snprintf(text, sizeof(text), "%u", port);
    int failed = getaddrinfo(host, text, &hints, &found);
    if (failed)
        return err_set(e, -EINVAL, "cannot listen on \"%s\": %s", host, gai_strerror(failed));
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = listen_on(a);
    freeaddrinfo(found);
    if (fd < 0)
        return err_set(e, fd, "cannot listen on %s port %u: %s", host, port, strerror(-fd));
    *ret = fd;
    return 0;
}

bool http_listen_peer_is_own(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || len != sizeof(peer))
        return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

/* ---- servers that share a loop ---- */

int http_server_join(struct http_server *s, struct http_server *other)
{
    if (s->joined_count == HTTP_JOINED_MAX)
        return -ENOSPC;
    uint64_t data = http_event_pack(HTTP_EVENT_JOINED, s->joined_count, 0);
    int r = http_server_epoll_add(s, other->epoll_fd, data);
    if (r == 0)
        s->joined[s->joined_count++] = other;
    return r;
}

int http_joined_wait_ms(struct http_server *s, int wait_ms)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        j->now_ns = s->now_ns;
        wait_ms = http_server_wait_ms(j, wait_ms);
    }
    return wait_ms;
}

/* A client of its own, a request that the handler ended or answered from the other's turn, or its clock. */
static bool is_due(struct http_server *j)
{
    return j->due || !list_empty(&j->closing) || !list_empty(&j->leaving) ||
           http_server_wait_ms(j, INT_MAX) == 0;
}

void http_joined_turn(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        j->now_ns = s->now_ns;
        if (!is_due(j))
            continue;
        j->due = false;
        http_server_turn(j, 0);
    }
}

void http_joined_obey(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        atomic_store(&j->quiesce_wanted, atomic_load(&s->quiesce_wanted));
        atomic_store(&j->stop_at_ns, atomic_load(&s->stop_at_ns));
        j->stopping = s->stopping;
    }
}

uint32_t http_joined_requests(const struct http_server *s)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < s->joined_count; i++)
        open += s->joined[i]->requests_open;
    return open;
}

void http_joined_end_all(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++)
        http_server_end_all(s->joined[i]);
}

void http_joined_free(struct http_server *s)
{
    while (s->joined_count > 0)
        http_server_free(s->joined[--s->joined_count]);
}
