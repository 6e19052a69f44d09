/* http_conn.c - from MHD's callbacks to the handler's.
 *
 * MHD calls back for a request line, for a header, for each piece of a body, for the end of a request, for
 * the end of its answer and for the end of the connection. A request that owes an answer is suspended; MHD
 * then ignores it, so the server's own epoll set has every client's descriptor with EPOLLRDHUP.
 *
 * The handler is never called from inside its own calls: a request that it closes goes into a list, which
 * the loop empties. */
#include "http/http_state.h"

#include "base/clock.h"
#include "memory/ledger.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* The kernel's part of a client that does not read: 64 KiB, not the 4 MiB it would grow to. */
#define SOCKET_SEND_BYTES 65536
/* Part of them: bytes that the client's window does not accept yet. They bound the tokens computed for a
 * client that stops reading. */
#define SOCKET_UNSENT_BYTES 1024
/* All that a client sent before it left is in the kernel by now: read within this, or it is not whole. */
#define GONE_NS   (500 * NS_PER_MS)
#define EXCESS_NS (5 * NS_PER_S)
/* MHD closes a connection that is shut in its next turn. */
#define SHUT_NS NS_PER_S

void http_conn_kill(struct http_conn *c)
{
    if (!c->open || c->killed)
        return;
    c->killed = true;
    http_place_leave(c);
    /* MHD sees the hang-up wherever it is: reading, writing, or once it is resumed. */
    shutdown(c->fd, SHUT_RDWR);
    http_conn_resume(c);
}

void http_conn_gone(struct http_conn *c)
{
    struct http_request *r = &c->request;
    c->gone = true;
    c->gone_ns = c->server->now_ns;
    /* While a header or body arrives, MHD reads the end by itself, or the deadline comes. A complete
     * answer may still be read by a client that has closed its sending half only. */
    if (r->phase == HTTP_PHASE_WAITING || (r->phase == HTTP_PHASE_STREAM && !r->ring.ended))
        http_request_close(r);
}

void http_conn_check_deadline(struct http_conn *c, uint64_t now_ns)
{
    const struct http_request *r = &c->request;
    uint64_t idle_ns = c->server->opts.idle_timeout_s * NS_PER_S;
    uint64_t until_ns;
    if (c->shut && now_ns > c->shut_ns + SHUT_NS)
        http_conn_kill(c);
    switch (r->phase) {
    case HTTP_PHASE_NONE:
    case HTTP_PHASE_HEADER:
        /* MHD counts from the last byte, so single bytes now and then would hold the connection without
         * limit. */
        until_ns = c->since_ns + (c->excess ? MIN_OF(EXCESS_NS, 2 * idle_ns) : 2 * idle_ns);
        break;
    case HTTP_PHASE_BODY:
        until_ns = r->since_ns + idle_ns + r->body_bytes * (NS_PER_S / HTTP_BODY_BYTES_PER_S);
        break;
    default:
        return;
    }
    /* MHD takes a short read for the last one, and so misses an end that came together with the bytes. */
    if (c->gone)
        until_ns = MIN_OF(until_ns, c->gone_ns + GONE_NS);
    if (now_ns > until_ns)
        http_conn_kill(c);
}

/* ---- connections ---- */

static struct http_conn *conn_of_mhd(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static int watch_client(struct http_conn *c)
{
    struct http_server *s = c->server;
    uint64_t data = http_event_pack(HTTP_EVENT_CLIENT, (uint32_t)(c - s->conns), c->generation);
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = data};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0 ? -errno : 0;
}

static void conn_open(struct http_server *s, struct MHD_Connection *mhd, void **context)
{
    /* MHD's limit is the number of slots. */
    ASSERT(!list_empty(&s->free));
    struct http_conn *c = LIST_FIRST(&s->free, struct http_conn, free);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    list_remove(&c->free);
    c->open = true;
    c->gone = c->killed = c->suspended = c->linger = c->shut = false;
    c->leave = HTTP_LEAVE_NOT;
    c->mhd = mhd;
    c->fd = info->connect_fd;
    c->ended = 0;
    c->since_ns = s->now_ns;
    c->request.phase = HTTP_PHASE_NONE;
    s->conns_open++;
    *context = c;
    http_raw_init(&c->raw, &s->raw_limits);
    http_recv_add(c);
    http_place_take(c);
    account_use(s->opts.network, s->conn_bytes);
    HTTP_COUNT(s, connections_total, 1);
    HTTP_COUNT(s, connections_now, 1);
    /* Neither is possible on a socket that is not TCP; nothing depends on it. */
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_SEND_BYTES}, sizeof(int));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){SOCKET_UNSENT_BYTES}, sizeof(int));
    if (s->opts.idle_timeout_s != s->mhd_timeout_s)
        MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)s->opts.idle_timeout_s);
    if (watch_client(c) < 0 || (s->opts.own_user_only && !http_listen_peer_is_own(c->fd)))
        http_conn_kill(c);
}

static void conn_close(struct http_server *s, struct http_conn *c)
{
    ASSERT(c->open);
    http_request_over(&c->request, false);
    http_place_leave(c);
    http_recv_remove(c);
    list_remove(&c->leaving);
    /* The descriptor is still open here; MHD closes it next. */
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->linger && !c->gone && !s->stopping)
        http_linger_add(s, c->fd);
    c->open = false;
    c->generation++;
    c->mhd = NULL;
    c->fd = -1;
    c->request.phase = HTTP_PHASE_NONE;
    s->conns_open--;
    account_unuse(s->opts.network, s->conn_bytes);
    HTTP_COUNT(s, connections_now, (uint64_t)-1);
    http_accept_closed(s);
    list_push_back(&s->free, &c->free);
}

void http_conn_on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                             enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = arg;
    s->activity++;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(s, mhd, context);
    else if (*context)
        conn_close(s, *context);
}

/* ---- requests ---- */

/* The request line is here, as it came. */
void *http_conn_on_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
    struct http_server *s = arg;
    struct http_conn *c = conn_of_mhd(mhd);
    s->activity++;
    http_request_begin(&c->request);
    c->request.bad_target = strpbrk(target, " \t") != NULL;
    return &c->request;
}

/* In place. An incomplete escape makes the request malformed, as does a zero byte, which would end the
 * text early for some readers only. */
size_t http_conn_on_unescape(void *arg, struct MHD_Connection *mhd, char *text)
{
    struct http_conn *c = conn_of_mhd(mhd);
    char *to = text;
    (void)arg;
    for (const char *at = text; *at; at++) {
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        int high = slice_hex(at[1]);
        int low = high < 0 ? -1 : slice_hex(at[2]);
        if (low < 0 || (high | low) == 0) {
            c->request.bad_target = true;
            break;
        }
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = 0;
    return (size_t)(to - text);
}

/* A proxy's form of the target, http://name/path, means the path; its name has to be the same as in Host. */
static void read_target(struct http_request *r, const char *target)
{
    r->path = slice_of(target);
    if (!slice_starts(r->path, SLICE("http://")))
        return;
    size_t slash = MIN_OF(slice_find(r->path, SLICE("/"), 7), r->path.len);
    r->authority = slice_sub(r->path, 7, slash - 7);
    r->path = slash == r->path.len ? SLICE("/") : slice_sub(r->path, slash, r->path.len);
}

static void note_body(struct http_request *r)
{
    struct http_server *s = http_conn_of(r)->server;
    struct slice value;
    uint64_t length = s->opts.body_bytes_max;
    r->body_expected = http_request_header(r, "transfer-encoding", &value);
    if (!r->body_expected && http_request_header(r, "content-length", &value))
        r->body_expected = slice_u64(value, UINT64_MAX, &length) ? length > 0 : true;
    buf_init(&r->body, MIN_OF(length, (uint64_t)s->opts.body_bytes_max), &s->charge);
}

static void count_header(struct http_server *s, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    HTTP_COUNT(s, requests_total, 1);
    HTTP_COUNT(s, bytes_in, info ? info->header_size : 0);
}

/* Asks the checks, then the handler. */
static void judge_header(struct http_request *r)
{
    struct http_server *s = http_conn_of(r)->server;
    struct http_refusal why;
    if (http_refuse_wanted(r, &why)) {
        http_refuse(r, &why);
        return;
    }
    r->begun = true;
    r->late = s->stopping;
    s->requests_open += !r->late;
    HTTP_COUNT(s, requests_now, 1);
    int status = s->opts.handler.begin(s->opts.arg, r);
    ASSERT((status != 0) == (r->reply != NULL) || r->closing);
}

static enum MHD_Result on_header(struct http_request *r, const char *target, const char *method,
                                 const char *version)
{
    struct http_conn *c = http_conn_of(r);
    r->method = slice_of(method);
    read_target(r, target);
    r->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    count_header(c->server, c->mhd);
    if (!http_recv_has_judged(c, false))
        return MHD_NO;
    note_body(r);
    judge_header(r);
    if (r->closing)
        return MHD_NO;
    r->phase = r->reply ? HTTP_PHASE_ANSWERED : HTTP_PHASE_BODY;
    http_place_note(c);
    if (!r->reply || !r->body_expected)
        return MHD_YES; /* An answer that needs to stop no body waits for the second call: the connection
                           lives on. */
    c->linger = true;
    return http_request_queue_reply(r) ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_body(struct http_request *r, const char *data, size_t bytes)
{
    struct http_conn *c = http_conn_of(r);
    HTTP_COUNT(c->server, bytes_in, bytes);
    r->body_bytes += bytes;
    if (r->phase != HTTP_PHASE_BODY)
        return MHD_YES; /* Answered already: thrown away. */
    buf_put(&r->body, data, bytes);
    if (r->body.error == 0)
        return MHD_YES;
    struct http_refusal why = r->body.error == -E2BIG ? http_refuse_body_too_large(c->server)
                                                      : http_refuse_body(c->server, r->body.len + bytes);
    http_refuse_raw(r, &why);
    c->linger = true;
    return MHD_NO;
}

/* After a "100 Continue" MHD takes the bytes of the next request for a body: one of zero bytes, if none was
 * announced. While that body exists it accepts no answer; in its next turn it does. True once for such a
 * request: suspended, and resumed at once. */
static bool wait_turn(struct http_request *r)
{
    struct http_conn *c = http_conn_of(r);
    struct slice value;
    if (r->turned || r->body_expected || !http_request_header(r, "expect", &value))
        return false;
    r->turned = true;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    http_conn_resume(c);
    return true;
}

static enum MHD_Result on_whole(struct http_request *r)
{
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    if (!http_recv_has_judged(c, true))
        return MHD_NO;
    if (wait_turn(r))
        return MHD_YES;
    if (r->phase == HTTP_PHASE_BODY) {
        r->phase = HTTP_PHASE_WAITING;
        http_place_note(c);
        s->opts.handler.ready(s->opts.arg, r);
    }
    if (r->reply)
        return http_request_queue_reply(r) ? MHD_YES : MHD_NO;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    if (c->gone)
        http_request_close(r);
    return MHD_YES;
}

enum MHD_Result http_conn_on_access(void *arg, struct MHD_Connection *mhd, const char *target,
                                    const char *method, const char *version, const char *data,
                                    size_t *data_bytes, void **context)
{
    struct http_server *s = arg;
    struct http_request *r = *context;
    (void)mhd;
    s->activity++;
    if (!r || http_conn_of(r)->killed || http_conn_of(r)->shut || r->phase == HTTP_PHASE_OVER)
        return MHD_NO;
    if (r->phase == HTTP_PHASE_HEADER)
        return on_header(r, target, method, version);
    if (*data_bytes == 0)
        return on_whole(r);
    size_t bytes = *data_bytes;
    *data_bytes = 0;
    return on_body(r, data, bytes);
}

void http_conn_on_completed(void *arg, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code)
{
    struct http_server *s = arg;
    struct http_request *r = *context;
    (void)mhd;
    s->activity++;
    if (!r)
        return;
    struct http_conn *c = http_conn_of(r);
    http_request_over(r, code == MHD_REQUEST_TERMINATED_COMPLETED_OK && r->status != 0 && !c->killed);
    r->phase = HTTP_PHASE_NONE;
    c->since_ns = s->now_ns;
    c->ended++;
    *context = NULL;
    http_place_note(c);
    if (c->raw.fault)
        http_place_fault(c);
}
