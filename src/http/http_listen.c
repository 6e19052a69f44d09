/* http_listen.c - listening sockets, their access rules, and servers that share a loop (http_loop.c). */
#include "http/http_state.h"

#include "base/err.h"

#include <errno.h>
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
    int r = http_epoll_add(s, other->epoll_fd, data);
    if (r == 0)
        s->joined[s->joined_count++] = other;
    return r;
}
