/* http_server.h - bytes to requests and answers to bytes, on one thread.
 *
 * The thread that calls http_server_run() is the network thread: the handler, the watches and all of
 * http_request.h happen on it, so nothing above needs a lock. A connection that waits for its answer is
 * watched for a disconnect, which is noticed within milliseconds; a client that shuts down only its sending
 * half counts as gone as well, unless it has its answer already.
 *
 * Memory: everything that connections need (header memory, send buffer, bookkeeping, for each of
 * connections_max and 8 more: excess ones and closing ones) is reserved in `network` at creation; bodies, and
 * answers longer than a send buffer, reserve as they come. Refusals have messages: 400 malformed, 403 foreign
 * Host or Origin, 413 body, 414 target, 429 connections or memory in use, 431 header, 501 encoding, 503
 * shutdown, 505 version.
 *
 * Framing: bytes are parsed once (http_raw.h). Bytes with two readings are refused, and the connection is
 * closed. */
#ifndef PLATEAU_HTTP_HTTP_SERVER_H
#define PLATEAU_HTTP_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct account;
struct err;
struct http_request;
struct http_server;

/* A refusal by http itself, before it goes out. The body is OpenAI's envelope; the handler may write another
 * and change the status, for routes of other APIs. */
struct http_wording {
    unsigned status;
    const char *message, *id; /* id NULL: the handler gave the request its own */
    char *body;               /* a JSON text, terminated */
    size_t body_bytes_max;
    const char *code; /* constant */
};

struct http_handler {
    /* The header is complete: 0 = go on (the body will be read), or the HTTP status with which
     * http_respond() was called: then the body is not read and `ready` does not come. After
     * http_request_close(): either. */
    int (*begin)(void *arg, struct http_request *r);
    /* The request is whole. Answer now or later; until then nothing more is read from the connection. */
    void (*ready)(void *arg, struct http_request *r);
    /* A stream's send buffer is half empty again. May be NULL. */
    void (*writable)(void *arg, struct http_request *r);
    /* Exactly once for each `begin`, whatever the end: completed = the whole answer was given to the system;
     * else the client left, was too slow, sent nonsense, or the server stops. Then `r` is dead. */
    void (*ended)(void *arg, struct http_request *r, bool completed);
    /* About every 250 ms. May be NULL. */
    void (*tick)(void *arg, uint64_t now_ns);
    /* The grace of http_server_stop() is over: once, the time to answer open requests. Bytes not sent
     * HTTP_LAST_WORDS_NS later are cut. May be NULL. */
    void (*stopping)(void *arg);
    /* http refuses the request, of which only what came is known: the path may be empty. May be NULL. */
    void (*refusing)(void *arg, struct http_request *r, struct http_wording *w);
};

struct http_server_opts {
    const char *host; /* name or address to listen on */
    uint16_t port;    /* 0 = any free one: http_server_port() */
    int listen_fd; /* > 0: already listening, owned by the server once created; host and port are ignored */
    uint8_t listener;   /* http_request_listener() of its requests */
    bool own_user_only; /* Unix socket: only the process's own user and root may connect */
    /* 1 to 65536; beyond it a connection without an open request is closed, or the new one gets 429. */
    uint32_t connections_max;
    /* Limit of connections_max for one address; 0 = half of connections_max, and none for loopback. */
    uint32_t connections_per_ip;
    /* GETs that are answered beyond these limits as well; up to a NULL. NULL = none. */
    const char *const *vital_paths;
    size_t header_bytes_max; /* request line, headers and trailers; 0 = 8 KiB */
    size_t body_bytes_max;   /* 0 = 64 MiB */
    size_t send_bytes_max;   /* bytes of a stream that wait for its client; 0 = 64 KiB */
    uint32_t idle_timeout_s; /* connections between requests, and requests without progress; 0 = 60 */
    struct account *network; /* outlives the server */
    bool loopback_host_only; /* Host must be a loopback name and a browser's Origin must equal it, else 403 */
    struct http_handler handler;
    void *arg; /* argument of all the handler's functions */
};

/* Returns the bytes that the server will reserve at creation; *connection: their part for each connection.
 * Bodies and long answers come on top. */
uint64_t http_server_bytes(const struct http_server_opts *opts, uint64_t *connection);

/* Listens; connections are accepted once the loop runs. 0, -EINVAL, -ENOMEM (the account said no), or what
 * the system said about the address. */
int http_server_create(const struct http_server_opts *opts, struct err *e, struct http_server **ret);
/* Not while it runs. Requests still open end (completed == false). NULL is fine. */
void http_server_free(struct http_server *s);

uint16_t http_server_port(const struct http_server *s);

/* Serves until stopped; the caller becomes the network thread. 0, or what epoll said. */
int http_server_run(struct http_server *s);
/* One turn of run(): waits for at most `wait_ms` for something to do, and does it. For tests and other
 * loops. */
int http_server_turn(struct http_server *s, int wait_ms);

/* Takes what may change at run time: idle_timeout_s, body_bytes_max and loopback_host_only, for open
 * connections as well. Network thread, or before it runs. */
void http_server_set_live(struct http_server *s, const struct http_server_opts *now);

#define HTTP_LAST_WORDS_NS ((uint64_t)250000000)
/* Any thread, also from a signal handler. run() returns when the open requests have ended or the grace is
 * over: then `stopping` is called and they end. Until then connections are accepted and the handler is
 * called, so that clients get an answer that the server ends; each answer is its connection's last, and
 * late requests do not extend the grace. A second call can only shorten the grace. */
void http_server_stop(struct http_server *s, uint64_t grace_ns);

/* From now on the loop of `s` serves `other` too, and http_server_free(s) frees it. Each has its own
 * places, limits and memory, so that clients that fill one do not block the other. They drain and stop
 * together; `other` needs no `tick` and no `stopping`. Before the loop runs. 0, -ENOSPC (HTTP_JOINED_MAX)
 * or an error of epoll: `other` is still the caller's. */
#define HTTP_JOINED_MAX 8
int http_server_join(struct http_server *s, struct http_server *other);

/* A socket that listens on the first address of `host` on which it can, for listen_fd: 0 or what the system
 * said. */
int http_listen_on(const char *host, uint16_t port, struct err *e, int *ret);

/* Calls `ready` on the network thread whenever `fd` is readable. On that thread, or before it runs.
 * 0, -ENOSPC (HTTP_WATCHES_MAX), or what epoll said. */
#define HTTP_WATCHES_MAX 64
int http_server_watch(struct http_server *s, int fd, void (*ready)(void *arg, int fd), void *arg);
/* Not watched: nothing. Before `fd` is closed. */
void http_server_unwatch(struct http_server *s, int fd);

/* Takes a connected stream socket as if it had been accepted, and owns it. On the network thread.
 * 0 or -ENOMEM (closed). */
int http_server_adopt(struct http_server *s, int fd);

#define HTTP_REFUSED_STATUSES 200 /* 400 to 599 */

struct http_counters {
    uint64_t connections_total, connections_now;
    uint64_t requests_total, requests_now;   /* requests_now: between begin and ended */
    uint64_t answers[6];                     /* by class of status: [2] = 2xx; [0] = none was given */
    uint64_t refused[HTTP_REFUSED_STATUSES]; /* by status: [29] = 429 */
    uint64_t bytes_in, bytes_out;            /* headers and bodies received, bodies sent */
};
/* Any thread. */
struct http_counters http_server_counters(struct http_server *s);

/* Bytes of the pools of open connections, with joined servers: blocks of the general heap, or mapped. A
 * connection touches part of its own. Any thread, after the last http_server_join(). */
struct http_pools {
    uint64_t heap, mapped;
};
struct http_pools http_server_pools(struct http_server *s);

#endif
