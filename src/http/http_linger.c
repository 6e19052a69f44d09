/* http_linger.c - closes a connection so that the last answer arrives.
 *
 * A socket closed with unread bytes resets the connection, and the reset overtakes the answer. A client that
 * is still sending its 100 MiB body would see "connection reset" instead of 413. MHD sends its FIN and
 * closes; we keep a copy of the descriptor and read further bytes, within bounds. With all places taken the
 * client sees the reset. */
#include "http/http_state.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_NS    NS_PER_S
#define LINGER_BYTES ((size_t)64 << 20)

static void linger_close(struct http_server *s, struct http_linger *l)
{
    if (l->fd < 0)
        return;
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
    close(l->fd);
    l->fd = -1;
    l->generation++;
}

void http_linger_add(struct http_server *s, int fd)
{
    struct http_linger *l = NULL;
    for (uint32_t i = 0; i < HTTP_LINGERS_MAX && !l; i++)
        if (s->lingers[i].fd < 0)
            l = &s->lingers[i];
    if (!l)
        return;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return;
    l->fd = copy;
    l->until_ns = s->now_ns + LINGER_NS;
    l->bytes_left = LINGER_BYTES;
    struct epoll_event e = {
        .events = EPOLLIN | EPOLLRDHUP,
        .data.u64 = http_event_pack(HTTP_EVENT_LINGER, (uint32_t)(l - s->lingers), l->generation)};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, copy, &e) < 0)
        linger_close(s, l);
}

void http_linger_ready(struct http_server *s, uint32_t index, uint32_t generation)
{
    struct http_linger *l = &s->lingers[index];
    char waste[16384];
    if (l->fd < 0 || l->generation != generation)
        return;
    ssize_t n = recvfrom(l->fd, waste, sizeof(waste), MSG_DONTWAIT, NULL, NULL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || (size_t)n >= l->bytes_left)
        linger_close(s, l);
    else
        l->bytes_left -= (size_t)n;
}

void http_linger_check(struct http_server *s, uint64_t now_ns)
{
    for (uint32_t i = 0; i < HTTP_LINGERS_MAX; i++)
        if (s->lingers[i].fd >= 0 && now_ns >= s->lingers[i].until_ns)
            linger_close(s, &s->lingers[i]);
}

void http_linger_close_all(struct http_server *s)
{
    for (uint32_t i = 0; i < HTTP_LINGERS_MAX; i++)
        linger_close(s, &s->lingers[i]);
}
