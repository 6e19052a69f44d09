/* http_state.h - shared by the files of this folder only.
 *
 * A connection's slot holds the one request that it can have at a time. Everything belongs to the network
 * thread, except fields that http_server marks as read or set by other threads.
 *
 * Bound in bytes: the server HTTP_SERVER_BYTES_MAX, each connection with its request HTTP_CONN_BYTES_MAX.
 * Both are asserted below. Each connection also has a pool (struct http_pool), send_bytes_max, and a share of
 * the table of addresses. http_server_bytes() is the sum, reserved at creation. A body is reserved as it
 * arrives, body_bytes_max at most. */
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
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Connections beyond connections_max: only vital paths are answered on them, all others get 429. */
#define HTTP_EXCESS_MAX 6
/* Connections that are being closed and have a slot, but no place; unused places serve for that as well.
 * With all taken, the one that has lingered longest is closed for a new connection, or none is accepted. */
#define HTTP_LEAVING_MAX 2
/* Between two calls of the handler's tick. */
#define HTTP_TICK_NS (250 * NS_PER_MS)
/* Fields of a head: headers, query arguments, and as many again for cookies, which http_raw charges. */
#define HTTP_FIELDS_MAX 88
/* Bytes read at once. */
#define HTTP_IN_BYTES 8192
/* The largest head of an answer, of which HTTP_HEADER_BYTES are the handler's, and a refusal's body. */
#define HTTP_OUT_BYTES 2560
/* A body may come as slowly as this, after the idle timeout; a client that drips is cut. */
#define HTTP_BODY_BYTES_PER_S 1024

enum http_phase {
    HTTP_PHASE_NONE,     /* between requests */
    HTTP_PHASE_HEADER,   /* a header is coming in */
    HTTP_PHASE_BODY,     /* the header passed; a body may be coming in */
    HTTP_PHASE_WAITING,  /* the handler owes an answer */
    HTTP_PHASE_ANSWERED, /* the answer is whole and goes out */
    HTTP_PHASE_STREAM,   /* the answer has begun */
    HTTP_PHASE_OVER      /* `ended` was called, or need not be; the connection is being closed */
};

/* Memory of an open connection; given back when it lingers or closes. A larger one than HTTP_POOL_HEAP_MAX is
 * mapped: the allocator would count its pages as resident, of which a short header touches few. */
#define HTTP_POOL_HEAP_MAX ((size_t)32 << 10)
struct http_pool {
    char out[HTTP_OUT_BYTES];
    char in[HTTP_IN_BYTES];
    struct http_field fields[HTTP_FIELDS_MAX];
    char text[]; /* header_bytes_max of them, of struct http_head */
};

/* Bytes for the socket, in this order: text, payload, the end of a chunk. */
struct http_out {
    uint32_t text_end, text_left;   /* text in http_pool.out: a head, a chunk's size; it ends at text_end */
    uint64_t payload_left;          /* bytes of the answer's body, or at the ring's head */
    uint32_t tail_bytes, tail_left; /* end of a chunk, and the last chunk where tail_bytes says so */
};

/* The body of an answer in one piece. */
struct http_reply {
    struct slice body;
    struct buf given;    /* owner of the body where http_respond_buf() took it */
    size_t own, charged; /* bytes of the connection's send buffer, bytes on top of it */
    char bytes[];
};

struct http_ring {
    char *bytes; /* send_bytes_max of them; NULL = no stream */
    size_t head, count;
    bool ended;           /* no more comes in */
    bool closed;          /* the end of the stream is in http_out */
    bool want_room;       /* a write did not fit */
    bool want_low;        /* http_stream_is_behind() said so */
    uint64_t progress_ns; /* when bytes last left, or came into the empty ring */
};

struct http_request {
    enum http_phase phase;
    bool begun;         /* the handler knows it */
    bool late;          /* its header came while the server stops: the grace does not wait for its end */
    bool bad_target;    /* a malformed %-escape in it */
    bool is_head;       /* its method is HEAD */
    bool body_expected; /* the header announces one */
    bool closing;       /* in http_server.closing */
    struct slice method;
    struct slice path;
    struct slice authority; /* host and port of a target that has them */
    void *user;
    struct buf body;
    uint64_t body_bytes;      /* received so far, of this request's body */
    uint64_t since_ns;        /* when its first byte came */
    uint64_t tenant;          /* whose connection it is; 0 = not said */
    struct http_reply *reply; /* a body in one piece that is not in http_pool.out; NULL = none */
    unsigned status;          /* status of the answer; 0 = none yet */
    uint64_t reply_bytes;     /* bytes of a body in one piece */
    struct http_ring ring;
    uint32_t header_count;
    size_t header_bytes;
    char headers[HTTP_HEADER_BYTES]; /* "name\0value\0" each */
};

union http_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct http_conn {
    struct http_server *server;
    uint32_t generation; /* use of the slot: tells events of an earlier connection apart */
    bool open;           /* from its accept until it lingers or is closed */
    bool placed;         /* counts against connections_max; until it is to go */
    bool excess;         /* came when all places were taken: vital paths only, else 429 */
    bool crowded;        /* came when its client's share was taken: vital paths only, else 429 */
    bool served;         /* a request has ended */
    bool gone;           /* the client has closed its sending half, or all */
    bool last;           /* it closes after this answer; nothing more is parsed */
    bool unread;         /* further bytes of the request may be coming in when it closes */
    bool lingering;      /* its answer is out: bytes are read and thrown away, see http_io.c */
    bool readable;       /* bytes, or the end of them, may be there */
    bool full;           /* the system takes no more bytes now */
    enum http_idle idle; /* which list of those it is in; HTTP_IDLES = none */
    int fd;              /* -1 = the slot is free */
    union http_address from;
    struct http_peer *peer; /* NULL = its address has no limit */
    struct http_pool *pool; /* while open */
    uint32_t in_at, in_end; /* bytes of pool->in that are not parsed yet */
    struct http_out out;
    struct http_raw raw;
    struct http_head head; /* the request's, as it came */
    uint64_t since_ns;     /* opened, last request ended, or began to linger */
    uint64_t active_ns;    /* when bytes last came or went, or began to wait */
    uint64_t linger_left;  /* bytes that it may still send */
    struct list free;      /* in http_server.free while closed, in .lingering while it lingers */
    struct list active;    /* in http_server.active: has something to do */
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
    size_t pool_bytes; /* bytes of one connection without its send buffer */
    uint64_t reserved_bytes;
    uint16_t port;
    int epoll_fd, wake_fd;

    /* Network thread. */
    int listen_fd; /* -1 = closed */
    struct http_accept accept;
    struct http_conn *conns;
    struct http_peers peers;
    struct list idles[HTTP_IDLES]; /* oldest first */
    struct list free, active, writable, closing, leaving;
    struct list lingering; /* oldest first */
    uint32_t conns_open, conns_placed, requests_open;
    uint64_t now_ns, tick_ns;
    bool quiesced, stopping;
    uint64_t last_words_ns; /* when `stopping` was called; 0 = not yet */
    int64_t date_s;         /* second of `date`, the value of that header */
    char date[30];
    struct http_watch watches[HTTP_WATCHES_MAX];
    struct http_server *joined[HTTP_JOINED_MAX];
    uint32_t joined_count;
    bool due; /* it joined another one, whose loop saw that it has something to do */

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
    HTTP_EVENT_WAKE,
    HTTP_EVENT_WATCH,
    HTTP_EVENT_CLIENT,
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

/* True: it is not whole yet, or has not begun. */
static inline bool http_request_is_coming(const struct http_request *r)
{
    return r->phase == HTTP_PHASE_NONE || r->phase == HTTP_PHASE_HEADER || r->phase == HTTP_PHASE_BODY;
}

/* The next turn, or this one, looks at the connection. */
static inline void http_conn_wake(struct http_conn *c)
{
    if (list_empty(&c->active))
        list_push_back(&c->server->active, &c->active);
}

/* True: bytes wait for the system to take them. */
static inline bool http_out_waits(const struct http_out *o)
{
    return o->text_left > 0 || o->payload_left > 0 || o->tail_left > 0;
}

/* http_conn.c */
/* A connection on the connected socket `fd`, from there on the server's. 0, or -ENOMEM (closed): no slot is
 * free, or no memory. */
int http_conn_open(struct http_server *s, int fd, const union http_address *from);
/* Ends its request, if one is open, and closes it at once; again: nothing. */
void http_conn_close(struct http_conn *c);
/* Closes it when the system has all of its last answer: at once, or after lingering. */
void http_conn_finish(struct http_conn *c);
/* Closes the connection that has lingered longest. False: none does. */
bool http_conn_close_lingering(struct http_server *s);
/* The client has left. */
void http_conn_gone(struct http_conn *c);
/* Closes connections that are too slow. */
void http_conn_check_deadline(struct http_conn *c, uint64_t now_ns);
/* Answers and closes evicted connections. */
void http_conn_leave_all(struct http_server *s);

/* http_io.c */
/* Sends, reads and parses for each active connection, as far as its socket and the handler let it. */
void http_io_run(struct http_server *s);

/* http_answer.c */
/* Writes the head of the answer for r->status into http_pool.out, but for its length. `close`: the connection
 * closes after the answer, even if the request does not demand it. */
void http_answer_begin(struct http_request *r, const char *content_type, bool close);
/* Another header, between begin and end. */
void http_answer_put_header(struct http_conn *c, const char *name, const char *value);
/* The answer, of which the body is put where it belongs at once, goes out in this turn or the next.
 * HTTP_BODY_UNKNOWN: a stream, in chunks; to a client of HTTP/1.0 up to the close. */
#define HTTP_BODY_UNKNOWN UINT64_MAX
void http_answer_end(struct http_request *r, uint64_t body_bytes);
/* Appends to http_pool.out. */
void http_answer_put(struct http_conn *c, const char *bytes, size_t len);
/* The standard's phrase for a status, or "Unknown". */
struct slice http_answer_reason(unsigned status);

/* http_request.c */
void http_request_begin(struct http_request *r);
/* Tells the handler, once, and gives back what the request held. */
void http_request_over(struct http_request *r, bool completed);

/* http_stream.c */
/* `bytes` of the ring's head have gone out. */
void http_stream_took(struct http_request *r, size_t bytes);

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
/* Refuses a request that is not whole, in any phase: it ends, and the connection closes after the refusal.
 * Never from inside the handler. */
void http_refuse_last(struct http_conn *c, const struct http_refusal *why);
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
/* A connection has closed: accepting goes on. */
static inline void http_accept_closed(struct http_server *s)
{
    s->accept.paused_until_ns = 0;
}
/* Closes the listening socket; again: nothing. */
void http_accept_stop(struct http_server *s);
/* Opens a connection on a connected socket. 0 or -ENOMEM (closed). */
int http_accept_add(struct http_server *s, int fd, union http_address *from, socklen_t len);

/* http_place.c */
/* A connection is open: makes room for it, or marks it. */
void http_place_take(struct http_conn *c);
/* It is to go, or closed; again: nothing. */
void http_place_leave(struct http_conn *c);
/* Notes that the connection may wait for something else now. */
void http_place_note(struct http_conn *c);
/* Evicts the first connection in the order of http_place.c. False: each has a request open. */
bool http_place_evict_any(struct http_server *s);
/* True: bytes that are not parsed yet may be a request. */
bool http_place_has_unread(const struct http_conn *c);
/* Tries once more to make room for an excess connection. */
void http_place_judge(struct http_conn *c);

/* http_loop.c */
/* Every request ends and every connection is closed, as far as that is possible now. */
void http_loop_end_all(struct http_server *s);

/* http_listen.c */
/* False: the client on this Unix socket is neither the process's own user nor root. */
bool http_listen_peer_is_own(int fd);

#endif
