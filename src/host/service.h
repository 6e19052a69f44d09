/* service.h - reports the server's state to systemd: datagrams to the socket of NOTIFY_SOCKET.
 *
 * READY=1 when requests are accepted (the models of the start are loaded); until then EXTEND_TIMEOUT_USEC
 * while the load makes progress. WATCHDOG=1 while the network thread runs and no engine is stuck.
 * RELOADING=1 and READY=1 around a reload, STOPPING=1 at the end. STATUS= at each change. Without
 * NOTIFY_SOCKET it is only a struct. A full queue is waited for once, for NOTIFY_WAIT_MS; further datagrams
 * are lost until it has room again. Network thread. */
#ifndef PLATEAU_HOST_SERVICE_H
#define PLATEAU_HOST_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct api;
struct err;

#define SERVICE_STATUS_BYTES 256
#define NOTIFY_WAIT_MS       200

struct notify {
    int fd; /* -1: no socket */
    struct sockaddr_un address;
    socklen_t address_len;
    bool full;            /* the last datagram was lost because the queue was full */
    uint64_t watchdog_ns; /* it wants WATCHDOG=1 at least so often; 0: never */
};

struct service {
    struct notify notify;
    struct api *api;
    struct http_server *http;
    int timer; /* timerfd; -1: none is needed */
    bool ready, stopping;
    uint64_t load_done; /* progress of the load at the last report */
    char status[SERVICE_STATUS_BYTES];
};

/* A problem of NOTIFY_SOCKET is a line in the log. 0, or an error of the timer or its watch. */
int service_open(struct service *s, struct api *a, struct http_server *h, struct err *e);
void service_reloading(struct service *s);
void service_reloaded(struct service *s);
/* It will take `bound_ns` at most until the process is gone. */
void service_stopping(struct service *s, uint64_t bound_ns);
/* Before the server it watches is gone. A service that was never opened has timer and notify.fd -1. */
void service_close(struct service *s);

#endif
