/* zmq_library.h - libzmq, opened when it is needed.
 *
 * One option needs it, and its development package brings 150 MB of others: the program is built without it.
 * Names and numbers are libzmq 4's; they are part of its ABI, libzmq.so.5. */
#ifndef PLATEAU_EVENTS_ZMQ_LIBRARY_H
#define PLATEAU_EVENTS_ZMQ_LIBRARY_H

#include <stddef.h>

struct err;

enum zmq_kind { ZMQ_PUB = 1, ZMQ_ROUTER = 6 };
enum zmq_option {
    ZMQ_RCVMORE = 13,
    ZMQ_LINGER = 17,
    ZMQ_MAXMSGSIZE = 22,
    ZMQ_SNDHWM = 23,
    ZMQ_ROUTER_MANDATORY = 33,
    ZMQ_IPV6 = 42
};
enum zmq_flag { ZMQ_DONTWAIT = 1, ZMQ_SNDMORE = 2 };
enum { ZMQ_POLLIN = 1 };

/* A socket, or with `socket` NULL a descriptor. */
struct zmq_poll_item {
    void *socket;
    int fd;
    short events, revents;
};

/* Its functions; each has the name zmq_NAME there. */
struct zmq_library {
    void *(*ctx_new)(void);
    int (*ctx_term)(void *context);
    void *(*socket)(void *context, int kind);
    int (*close)(void *socket);
    int (*setsockopt)(void *socket, int option, const void *value, size_t len);
    int (*getsockopt)(void *socket, int option, void *value, size_t *len);
    int (*bind)(void *socket, const char *endpoint);
    int (*send)(void *socket, const void *bytes, size_t len, int flags);
    int (*recv)(void *socket, void *bytes, size_t len, int flags);
    int (*poll)(struct zmq_poll_item *items, int count, long timeout_ms);
    const char *(*strerror)(int error);
};

/* The library, which stays open until the process ends. Any thread. 0, or -ENOPKG: it is not installed, or
 * lacks a function; `e` says which package has it. */
int zmq_library_open(struct zmq_library *ret, struct err *e);

#endif
