/* service.h - a server among other services: what systemd is told of it, and when.
 *
 * READY=1 when requests are taken (what is loaded at the start is loaded); until then EXTEND_TIMEOUT_USEC for
 * as long as the load gets on. WATCHDOG=1 for as long as the network thread turns and no engine is stuck.
 * RELOADING=1 and READY=1 around a reload, STOPPING=1 when it ends. STATUS= whenever it is another. Without
 * NOTIFY_SOCKET it is no more than a struct. Network thread. */
#ifndef PLATEAU_CLI_SERVICE_H
#define PLATEAU_CLI_SERVICE_H

#include "api/api.h"
#include "cli/notify.h"

#define SERVICE_STATUS_BYTES 256

struct service {
    struct notify notify;
    struct api *api;
    struct http_server *http;
    int timer; /* timerfd; -1: none is needed */
    bool ready, stopping;
    uint64_t load_done; /* of the load, when its progress was last told */
    char status[SERVICE_STATUS_BYTES];
};

/* What is wrong with NOTIFY_SOCKET is a line in the log. 0, or what the timer or its watch said. */
int service_open(struct service *s, struct api *a, struct http_server *h, struct err *e);
void service_reloading(struct service *s);
void service_reloaded(struct service *s);
/* It will take `bound_ns` at most until the process is gone. */
void service_stopping(struct service *s, uint64_t bound_ns);
/* Before the server it watches is gone. A service that was never opened has timer and notify.fd -1. */
void service_close(struct service *s);

#endif
