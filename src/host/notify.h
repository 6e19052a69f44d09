/* notify.h - notifies systemd: one datagram each, to the socket of NOTIFY_SOCKET.
 *
 * Without NOTIFY_SOCKET every call does nothing. A full queue is waited for once, for NOTIFY_WAIT_MS;
 * further datagrams are lost until it has room again. One thread. */
#ifndef PLATEAU_HOST_NOTIFY_H
#define PLATEAU_HOST_NOTIFY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NOTIFY_WAIT_MS   200
#define NOTIFY_BYTES_MAX 1024

struct notify {
    int fd; /* -1: no socket */
    struct sockaddr_un address;
    socklen_t address_len;
    bool full;            /* the last datagram was lost because the queue was full */
    uint64_t watchdog_ns; /* it wants WATCHDOG=1 at least so often; 0: never */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. 0, or why nothing can be sent (`e` has the reason); it
 * is open either way. */
int notify_open(struct notify *n, struct err *e);
/* Lines of NAME=VALUE. 0: sent, or no socket. -EMSGSIZE, or a system error. */
int notify_send(struct notify *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
void notify_close(struct notify *n);

#endif
