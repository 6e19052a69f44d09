/* notify.c - the protocol is a datagram of lines; it takes less code than the library that does it. */
#include "host/notify.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A socket that is not connected does not say when its reader has room. */
#define WAIT_MS 10

/* Of a NOTIFY_SOCKET's value, a path or @ and an abstract name. 0, or -EINVAL: it is neither, or too long. */
static int parse_address(const char *socket, struct sockaddr_un *ret, socklen_t *ret_len)
{
    size_t len = strlen(socket);
    bool abstract = socket[0] == '@';
    if ((socket[0] != '/' && !abstract) || len < 2 || len >= sizeof(ret->sun_path))
        return -EINVAL;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, socket, len);
    /* An abstract name begins with a zero and ends with the address; a path ends with a zero. */
    if (abstract)
        ret->sun_path[0] = 0;
    *ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + !abstract);
    return 0;
}

/* Zero without a watchdog, or with one for another process. */
static uint64_t watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t us = 0, of = 0;
    if (pid && (!slice_u64(slice_of(pid), INT32_MAX, &of) || of != (uint64_t)getpid()))
        return 0;
    if (!usec || !slice_u64(slice_of(usec), UINT64_MAX / 1000, &us))
        return 0;
    return us * 1000;
}

int notify_open(struct notify *n, struct err *e)
{
    const char *name = getenv("NOTIFY_SOCKET");
    *n = (struct notify){.fd = -1};
    if (!name || !name[0])
        return 0;
    if (parse_address(name, &n->address, &n->address_len) < 0)
        return err_set(e, -EINVAL, "NOTIFY_SOCKET is neither a path nor @ and a name");
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0)
        return err_set(e, -errno, "no socket for NOTIFY_SOCKET: %s", strerror(errno));
    n->watchdog_ns = watchdog_ns();
    return 0;
}

static int send_once(const struct notify *n, const char *text, size_t len)
{
    ssize_t sent = sendto(n->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&n->address,
                          n->address_len);
    return sent < 0 ? -errno : 0;
}

int notify_send(struct notify *n, const char *format, ...)
{
    char text[NOTIFY_BYTES_MAX];
    va_list ap;
    if (n->fd < 0)
        return 0;
    va_start(ap, format);
    int len = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (len < 0 || (size_t)len >= sizeof(text))
        return -EMSGSIZE;
    int r = send_once(n, text, (size_t)len);
    for (int waits = n->full ? 0 : NOTIFY_WAIT_MS / WAIT_MS; r == -EAGAIN && waits > 0; waits--) {
        poll(NULL, 0, WAIT_MS);
        r = send_once(n, text, (size_t)len);
    }
    n->full = r == -EAGAIN;
    return r;
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}
