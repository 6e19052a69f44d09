/* http_state.h - shared by the files of this folder only.
 *
 * A connection's slot holds the one request that it can have at a time. Everything belongs to the network
 * thread, except fields that http_server marks as read or set by other threads.
 *
 * Bound in bytes: the server HTTP_SERVER_BYTES_MAX, each connection with its request HTTP_CONN_BYTES_MAX.
 * Both are asserted below. Each connection also has the library's pool, send_bytes_max, and a share of the
 * table of addresses. http_server_bytes() is the sum, reserved at creation. A body is reserved as it arrives,
 * body_bytes_max at most. */
#ifndef PLATEAU_HTTP_HTTP_STATE_H
#define PLATEAU_HTTP_HTTP_STATE_H

#include "http/http_request.h"

#include "base/check.h"
#include "base/list.h"
#include "base/slice.h"
#include "http/http_peer.h"
#include "http/http_raw.h"
#include "http/http_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Connections beyond connections_max: only vital paths are answered on them, all others get 429. */
#define HTTP_EXCESS_MAX 6
/* Connections marked for closing that MHD has not closed yet; unused excess places serve for that as well.
 * With all taken, no connection is accepted until one closes. */
#define HTTP_LEAVING_MAX 2
/* Closed connections whose clients are still sending: read from and thrown away, so that the refusal
 * arrives. */
#define HTTP_LINGERS_MAX 64
/* Between two calls of the handler's tick. */
#define HTTP_TICK_NS (250 * NS_PER_MS)
/* A body may come as slowly as this, after the idle timeout; a client that drips is cut. */
#define HTTP_BODY_BYTES_PER_S 1024

enum http_phase {
    HTTP_PHASE_NONE,     /* between requests, or a header is coming in */
    HTTP_PHASE_HEADER,   /* the request line is here */
    HTTP_PHASE_BODY,     /* the header passed; a body may be coming in */
    HTTP_PHASE_WAITING,  /* the handler owes an answer */
    HTTP_PHASE_ANSWERED, /* the answer is whole and goes out */
    HTTP_PHASE_STREAM,   /* the answer has begun */
    HTTP_PHASE_OVER      /* `ended` was called, or need not be; the connection is being closed */
};

struct http_ring {
    char *bytes; /* send_bytes_max of them; NULL = no stream */
    size_t head, count;
    bool ended;           /* no more comes in */
    bool want_room;       /* a write did not fit */
    bool want_low;        /* http_stream_is_behind() said so */
    uint64_t progress_ns; /* when bytes last left, or came into the empty ring */
};

struct http_request {
    enum http_phase phase;
    bool begun;      /* the handler knows it */
    bool late;       /* its header came while the server stops: the grace does not wait for its end */
    bool bad_target; /* a malformed %-escape in it, or a space */
    bool http_1_0;
    bool body_expected; /* the header announces one */
    bool turned;        /* MHD has been asked for another turn: see wait_turn() */
    bool closing;       /* in http_server.closing */
    struct slice method, path;
    struct slice authority; /* host and port of a target that has them */
    void *user;
    struct buf body;
    uint64_t body_bytes; /* received so far, of this request's body */
    uint64_t since_ns;   /* when the request line came */
    uint64_t tenant;     /* whose connection it is; 0 = not said */
    /* The answer, from http_respond() or http_stream_begin() until MHD has it. */
    struct MHD_Response *reply;
    unsigned status;      /* 0 = none yet */
    uint64_t reply_bytes; /* bytes of a body in one piece */
    struct http_ring ring;
    uint32_t header_count;
    size_t header_bytes;
    char headers[HTTP_HEADER_BYTES]; /* "name\0value\0" each */
};

enum http_leave { HTTP_LEAVE_NOT, HTTP_LEAVE_EVICTED, HTTP_LEAVE_FAULT };

struct http_conn {
    struct http_server *server;
    uint32_t generation; /* use of the slot: tells events of an earlier connection apart */
    bool open;
    bool placed;    /* counts against connections_max; until it is to go */
    bool excess;    /* came when all places were taken: vital paths only, else 429 */
    bool crowded;   /* came when its client's share was taken: vital paths only, else 429 */
    bool shut;      /* answered past MHD, which reads the end of it next */
    bool gone;      /* the client has closed its sending half, or all */
    bool killed;    /* no byte more goes out; MHD is about to close it */
    bool suspended; /* MHD has suspended it */
    bool linger;    /* unread bytes may be coming in when it closes */
    enum http_leave leave;
    enum http_idle idle; /* which list of those it is in; HTTP_IDLES = none */
    int fd;
    uint32_t fd_next; /* in http_server.fd_heads: index of the next, + 1 */
    struct MHD_Connection *mhd;
    struct http_peer *peer; /* NULL = its address has no limit */
    struct http_raw raw;
    uint64_t ended;    /* requests that MHD has done with */
    uint64_t since_ns; /* opened, or last request ended */
    uint64_t gone_ns, shut_ns;
    struct list free;      /* in http_server.free while closed */
    struct list writable;  /* in http_server.writable: tell the handler */
    struct list closing;   /* in http_server.closing: end and close */
    struct list leaving;   /* in http_server.leaving: answer and close */
    struct list idle_link; /* in http_server.idles */
    struct list peer_link; /* in http_peer.idles */
    struct http_request request;
};

struct http_watch {
    int fd; /* -1 = free */
    uint32_t generation;
    void (*ready)(void *arg, int fd);
    void *arg;
};

struct http_linger {
    int fd; /* -1 = free */
    uint32_t generation;
    uint64_t until_ns;
    size_t bytes_left;
};

/* The listening socket's; see http_accept.c. */
struct http_accept {
    int spare_fd;             /* closed to accept and refuse one client without it; -1 = none */
    bool armed;               /* the socket is polled */
    bool starved;             /* the last attempt failed for want of a descriptor or memory */
    uint64_t paused_until_ns; /* 0 = not paused */
    uint64_t log_ns;          /* when the next failure is logged again */
    uint64_t evicted, refused;
};

struct http_server {
    /* Set by create, then constant. */
    struct http_server_opts opts;
    struct charge charge; /* charge on opts.network */
    uint32_t conns_max;   /* slots: connections_max + HTTP_EXCESS_MAX + HTTP_LEAVING_MAX */
    struct http_raw_limits raw_limits;
    size_t conn_bytes; /* bytes of one connection without its send buffer */
    uint64_t reserved_bytes;
    uint16_t port;
    uint32_t mhd_timeout_s; /* timeout of connections without one of their own */
    int epoll_fd, wake_fd, mhd_epoll_fd;
    struct MHD_Daemon *mhd;

    /* Network thread. */
    int listen_fd; /* -1 = closed */
    struct http_accept accept;
    struct http_conn *conns;
    uint32_t *fd_heads; /* chains of connections by descriptor: index of the first, + 1 */
    uint32_t fd_heads_count;
    struct http_peers peers;
    struct list idles[HTTP_IDLES]; /* oldest first */
    struct list free, writable, closing, leaving;
    uint32_t conns_open, conns_placed, requests_open;
    uint64_t now_ns, tick_ns;
    bool quiesced, stopping;
    uint64_t last_words_ns; /* when `stopping` was called; 0 = not yet */
    bool resumed;           /* MHD has something to do that it does not wait for */
    uint64_t activity;      /* calls from MHD, to tell a busy turn from a useless one */
    uint32_t useless_turns; /* in a row */
    struct http_watch watches[HTTP_WATCHES_MAX];
    struct http_server *joined[HTTP_JOINED_MAX];
    uint32_t joined_count;
    bool due; /* it joined another one, whose loop saw that it has something to do */
    struct http_linger lingers[HTTP_LINGERS_MAX];

    /* Any thread sets them, then wakes the loop. */
    _Atomic uint64_t stop_at_ns; /* UINT64_MAX = not stopping */

    /* Network thread writes, any thread reads. */
    struct {
        _Atomic uint64_t connections_total, connections_now, requests_total, requests_now, answers[6],
            bytes_in, bytes_out, refused[HTTP_REFUSED_STATUSES];
    } counters;
};

#define HTTP_COUNT(s, field, n) atomic_fetch_add_explicit(&(s)->counters.field, (n), memory_order_relaxed)

static inline struct http_conn *http_conn_of(const struct http_request *r)
{
    return CONTAINER(r, struct http_conn, request);
}

/* Kinds of epoll events of the server's own set. */
enum http_event {
    HTTP_EVENT_MHD,
    HTTP_EVENT_WAKE,
    HTTP_EVENT_WATCH,
    HTTP_EVENT_CLIENT,
    HTTP_EVENT_LINGER,
    HTTP_EVENT_JOINED,
    HTTP_EVENT_ACCEPT
};

static inline uint64_t http_event_pack(enum http_event kind, uint32_t index, uint32_t generation)
{
    return (uint64_t)kind << 60 | (uint64_t)(index & 0xfffffff) << 32 | generation;
}

static inline int http_epoll_add(struct http_server *s, int fd, uint64_t data)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = data};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

/* The client's address; NULL: none. */
static inline const struct sockaddr *http_conn_address(const struct http_conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}

/* MHD looks at the connection again. */
static inline void http_conn_resume(struct http_conn *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    c->server->resumed = true;
    MHD_resume_connection(c->mhd);
}

/* http_conn.c: MHD's callbacks, and what they and the loop do to a connection. */
void *http_conn_on_target(void *arg, const char *target, struct MHD_Connection *mhd);
size_t http_conn_on_unescape(void *arg, struct MHD_Connection *mhd, char *text);
enum MHD_Result http_conn_on_access(void *arg, struct MHD_Connection *mhd, const char *target,
                                    const char *method, const char *version, const char *data,
                                    size_t *data_bytes, void **context);
void http_conn_on_completed(void *arg, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code);
void http_conn_on_connection(void *arg, struct MHD_Connection *mhd, void **context,
                             enum MHD_ConnectionNotificationCode code);
/* The client has left. */
void http_conn_gone(struct http_conn *c);
/* Lets MHD close the connection as soon as it can. */
void http_conn_kill(struct http_conn *c);
/* Closes connections that are too slow. */
void http_conn_check_deadline(struct http_conn *c, uint64_t now_ns);

/* http_request.c */
void http_request_begin(struct http_request *r);
/* Tells the handler, once, and gives back what the request held. */
void http_request_over(struct http_request *r, bool completed);
/* Gives the prepared answer to MHD; from inside MHD's callback, or suspended. False when MHD does not take
 * it. */
bool http_request_queue_reply(struct http_request *r);
/* The prepared answer is now `reply`; when the connection is suspended it goes out at once. */
void http_request_set_reply(struct http_request *r, struct MHD_Response *reply, unsigned status,
                            const char *content_type);

/* http_refuse.c: answers that http gives by itself. */
#define HTTP_SERVER_BYTES_MAX 8192
#define HTTP_CONN_BYTES_MAX   2048
_Static_assert(sizeof(struct http_server) <= HTTP_SERVER_BYTES_MAX, "the server's bound");
_Static_assert(sizeof(struct http_conn) <= HTTP_CONN_BYTES_MAX, "a connection's bound");

/* Two kinds may share a code where its status depends on the fault. */
enum http_refusal_kind {
    HTTP_REFUSAL_AMBIGUOUS_LENGTH,
    HTTP_REFUSAL_BAD_CHUNK,
    HTTP_REFUSAL_BAD_HEADER,
    HTTP_REFUSAL_BAD_HOST,
    HTTP_REFUSAL_BAD_LENGTH,
    HTTP_REFUSAL_BAD_LINE_END,
    HTTP_REFUSAL_BAD_REQUEST_LINE,
    HTTP_REFUSAL_BAD_TARGET,
    HTTP_REFUSAL_BAD_TRAILER,
    HTTP_REFUSAL_DUPLICATE_HEADER,
    HTTP_REFUSAL_FOLDED_HEADER,
    HTTP_REFUSAL_HOST_MISMATCH,
    HTTP_REFUSAL_HOST_MISSING,
    HTTP_REFUSAL_NOT_HTTP,
    HTTP_REFUSAL_TRANSFER_ENCODING_1_0,
    HTTP_REFUSAL_HOST_NOT_ALLOWED,
    HTTP_REFUSAL_ORIGIN_NOT_ALLOWED,
    HTTP_REFUSAL_BODY_TOO_LARGE,
    HTTP_REFUSAL_REQUEST_LINE_TOO_LARGE,
    HTTP_REFUSAL_BUSY,
    HTTP_REFUSAL_TOO_MANY_CONNECTIONS,
    HTTP_REFUSAL_HEADER_TOO_LARGE,
    HTTP_REFUSAL_TRANSFER_ENCODING,
    HTTP_REFUSAL_NO_DESCRIPTORS,
    HTTP_REFUSAL_SHUTTING_DOWN,
    HTTP_REFUSAL_HTTP_VERSION,
    HTTP_REFUSAL_OUT_OF_MEMORY,
    HTTP_REFUSAL_COUNT
};
unsigned http_refusal_status(enum http_refusal_kind kind);
const char *http_refusal_code(enum http_refusal_kind kind); /* constant */

struct http_refusal {
    unsigned status;
    const char *type, *code;
    char message[256];
};
void http_refuse(struct http_request *r, const struct http_refusal *why);
struct http_refusal http_refuse_fault(const struct http_server *s, enum http_fault fault);
/* To a client that is accepted only to be refused: there is no descriptor for its connection. */
void http_refuse_unaccepted(struct http_server *s, int fd);
/* There is no place for the connection. */
struct http_refusal http_refuse_place(const struct http_conn *c);
/* Writes the refusal past MHD, which takes no answer while it reads a body. The caller closes the
 * connection. */
void http_refuse_raw(struct http_request *r, const struct http_refusal *why);
/* True when the request may not pass, and why. */
bool http_refuse_wanted(const struct http_request *r, struct http_refusal *ret);
struct http_refusal http_refuse_body_too_large(const struct http_server *s);
/* No memory for this many bytes: of an incoming body, of an answer. */
struct http_refusal http_refuse_body(const struct http_server *s, uint64_t bytes);
struct http_refusal http_refuse_reply(const struct http_server *s, uint64_t bytes);

/* http_accept.c */
int http_accept_open(struct http_server *s);
/* The listening socket is readable. */
void http_accept_ready(struct http_server *s);
/* Polls the listening socket if a connection could be accepted now; at the end of a turn. */
void http_accept_arm(struct http_server *s);
/* At most `ms`: until a pause is over. */
uint64_t http_accept_wait_ms(const struct http_server *s, uint64_t ms);
/* A connection has closed. */
void http_accept_closed(struct http_server *s);
/* Closes the listening socket; again: nothing. */
void http_accept_stop(struct http_server *s);
/* Gives a connected socket to MHD. 0 or -ENOMEM (closed). */
int http_accept_add(struct http_server *s, int fd, struct sockaddr_storage *from, socklen_t len);

/* http_recv.c */
/* Runs MHD once. All that it reads is judged. */
void http_recv_run(struct http_server *s);
void http_recv_add(struct http_conn *c);
void http_recv_remove(struct http_conn *c);
/* 0, or -ENOTSUP: MHD reads by another way. */
int http_recv_check(struct err *e);
/* The header of the request that MHD hands over, or all of it, has been judged. False is logged: it must not
 * be served. */
bool http_recv_has_judged(const struct http_conn *c, bool whole);

/* http_place.c */
/* A connection is open: makes room for it, or marks it. */
void http_place_take(struct http_conn *c);
/* It is to go, or closed; again: nothing. */
void http_place_leave(struct http_conn *c);
/* Notes that the connection may wait for something else now. */
void http_place_note(struct http_conn *c);
/* Marks a connection whose raw bytes are faulty, once the requests before the faulty one have ended. */
void http_place_fault(struct http_conn *c);
/* Evicts the first connection in the order of http_place.c. False: each has a request open. */
bool http_place_evict_any(struct http_server *s);
/* Tries once more to make room for an excess connection. */
void http_place_judge(struct http_conn *c);

/* http_leave.c */
/* Answers and closes marked connections. Not from inside MHD. */
void http_leave_all(struct http_server *s);

/* http_loop.c */
/* Every request ends and every connection is closed, as far as that is possible now. */
void http_loop_end_all(struct http_server *s);

/* http_listen.c */
/* False: the client on this Unix socket is neither the process's own user nor root. */
bool http_listen_peer_is_own(int fd);

/* http_linger.c */
/* Reads from a copy of `fd` until its client closes, for a second and 64 MiB at most, then closes it. */
void http_linger_add(struct http_server *s, int fd);
void http_linger_ready(struct http_server *s, uint32_t index, uint32_t generation);
void http_linger_check(struct http_server *s, uint64_t now_ns);
void http_linger_close_all(struct http_server *s);

#endif
