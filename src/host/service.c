/* service.c - a timer checks, three times in a watchdog's interval and at least once a second.
 *
 * The tick runs on the network thread, so a blocked loop sends nothing. It sends WATCHDOG=1 only when no
 * engine is stuck, judged by finished layers. Only bytes read extend the service manager's timeout for a
 * load.
 * The protocol is a datagram of lines; it takes less code than the library that does it. */
#include "host/service.h"

#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/slice.h"
#include "http/http_server.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* How long a load may make no progress before the service manager's timeout comes. */
#define LOAD_EXTEND_NS   (60 * NS_PER_S)
#define NOTIFY_BYTES_MAX 1024
/* A socket that is not connected does not say when its reader has room. */
#define WAIT_MS 10

/* --- datagrams --- */

/* Parses NOTIFY_SOCKET, a path or @ and an abstract name. 0, or -EINVAL: it is neither, or too long. */
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

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. 0, or why nothing can be sent (`e` has the reason); it
 * is open either way. */
static int notify_open(struct notify *n, struct err *e)
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

static int notify_send(struct notify *n, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lines of NAME=VALUE. 0: sent, or no socket. -EMSGSIZE, or a system error. */
static int notify_send(struct notify *n, const char *format, ...)
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

/* --- the state --- */

/* False: it did not arrive, and must be sent again. */
static bool told(int r)
{
    if (r < 0)
        LOG_DEBUG("notify_failed", "error=\"%s\"", strerror(-r));
    return r == 0;
}

static void set_status(struct service *s, const char *status)
{
    if (strcmp(s->status, status) == 0)
        return;
    if (told(notify_send(&s->notify, "STATUS=%s", status)))
        snprintf(s->status, sizeof(s->status), "%s", status);
}

/* Writes the state as `systemctl status` shows it. */
static void write_status(const struct service *s, const struct api_glance *g, char ret[SERVICE_STATUS_BYTES])
{
    static const char *const words[] = {[API_LOADING] = "Loading",
                                        [API_READY] = "Ready",
                                        [API_LEAVING] = "Draining: requests are still taken",
                                        [API_DRAINING] = "Draining",
                                        [API_FAILED] = "The model could not be loaded"};
    if (s->stopping && g->state != API_LEAVING)
        snprintf(ret, SERVICE_STATUS_BYTES, "Ending: open requests are finished");
    else if (g->state == API_READY && g->stuck)
        snprintf(ret, SERVICE_STATUS_BYTES, "Stuck: %.200s has work and finishes no layer", g->stuck);
    else if (g->state == API_LOADING && g->load_total > 0)
        snprintf(ret, SERVICE_STATUS_BYTES, "Loading: %.0f %%",
                 100.0 * (double)MIN_OF(g->load_done, g->load_total) / (double)g->load_total);
    else
        snprintf(ret, SERVICE_STATUS_BYTES, "%s", words[g->state]);
}

static void look(struct service *s)
{
    struct api_glance g;
    char status[SERVICE_STATUS_BYTES];
    api_glance(s->api, &g);
    write_status(s, &g, status);
    if (!s->ready && g.state == API_READY) {
        s->ready = told(notify_send(&s->notify, "READY=1"));
    } else if (!s->ready && g.load_done != s->load_done) {
        s->load_done = g.load_done;
        told(notify_send(&s->notify, "EXTEND_TIMEOUT_USEC=%llu", (ull)(LOAD_EXTEND_NS / 1000)));
    }
    set_status(s, status);
    if (s->notify.watchdog_ns > 0 && !g.stuck)
        told(notify_send(&s->notify, "WATCHDOG=1"));
}

static void on_timer(void *arg, int fd)
{
    uint64_t times;
    if (read(fd, &times, sizeof(times)) == sizeof(times))
        look(arg);
}

static int start_timer(struct service *s)
{
    uint64_t ns = NS_PER_S;
    if (s->notify.watchdog_ns > 0)
        ns = MAX_OF(MIN_OF(ns, s->notify.watchdog_ns / 3), NS_PER_MS);
    struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    struct itimerspec each = {.it_interval = t, .it_value = t};
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->timer < 0 || timerfd_settime(s->timer, 0, &each, NULL) < 0)
        return -errno;
    return http_server_watch(s->http, s->timer, on_timer, s);
}

int service_open(struct service *s, struct api *a, struct http_server *h, struct err *e)
{
    *s = (struct service){.api = a, .http = h, .timer = -1};
    if (notify_open(&s->notify, e) < 0) {
        LOG_WARN("notify_failed", "error=\"%s\"", e->text);
        return 0;
    }
    if (s->notify.fd < 0)
        return 0;
    int r = start_timer(s);
    if (r < 0)
        return err_set(e, r, "the watchdog's timer: %s", strerror(-r));
    look(s);
    return 0;
}

void service_reloading(struct service *s)
{
    told(notify_send(&s->notify, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=Reading settings again",
                     (ull)(clock_now_ns() / 1000)));
}

/* Ready again, or as before; the status is sent again. */
void service_reloaded(struct service *s)
{
    if (s->notify.fd < 0)
        return;
    s->ready = false;
    s->status[0] = 0;
    look(s);
}

void service_stopping(struct service *s, uint64_t bound_ns)
{
    s->stopping = true;
    told(notify_send(&s->notify, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", (ull)(bound_ns / 1000)));
    if (s->notify.fd >= 0)
        look(s);
}

void service_close(struct service *s)
{
    if (s->timer >= 0) {
        http_server_unwatch(s->http, s->timer);
        close(s->timer);
    }
    s->timer = -1;
    if (s->notify.fd >= 0)
        close(s->notify.fd);
    s->notify.fd = -1;
}
