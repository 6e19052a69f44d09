/* hiredis_library.h - libhiredis, opened when it is needed, as libzmq is.
 *
 * Structures have the members of libhiredis.so.0.14 up to the last one that is read. */
#ifndef PLATEAU_STORE_HIREDIS_LIBRARY_H
#define PLATEAU_STORE_HIREDIS_LIBRARY_H

#include <stddef.h>

struct err;
struct timeval;

/* A reply, or a part of one, that the library's reader is at. */
struct hiredis_task {
    int type, elements, index;
    void *object;
    struct hiredis_task *parent; /* the array that it is in; NULL: it is the reply itself */
    void *arg;                   /* the reader's */
};

/* Allocators of the objects of a reply. One that returns NULL ends the connection. */
struct hiredis_makers {
    void *(*string)(const struct hiredis_task *t, char *text, size_t len);
    void *(*array)(const struct hiredis_task *t, int elements);
    void *(*integer)(const struct hiredis_task *t, long long value);
    void *(*nil)(const struct hiredis_task *t);
    void (*free)(void *object);
};

struct hiredis_reader {
    int err;
    char errstr[128], *buffer;
    size_t used_bytes, buffer_bytes, spare_bytes_max;
    struct hiredis_task tasks[9];
    int task;
    void *reply;
    const struct hiredis_makers *makers;
    void *arg;
};

struct hiredis_context {
    int err; /* 0: it can be used */
    char errstr[128];
    int fd, flags;
    char *commands; /* not sent yet */
    struct hiredis_reader *reader;
};

enum hiredis_type {
    HIREDIS_STRING = 1,
    HIREDIS_ARRAY,
    HIREDIS_INTEGER,
    HIREDIS_NIL,
    HIREDIS_STATUS,
    HIREDIS_ERROR
};

struct hiredis_reply {
    int type;
    long long integer;
    size_t len;
    char *str;
    size_t elements;
    struct hiredis_reply **element;
};

/* Its functions. */
struct hiredis_library {
    struct hiredis_context *(*connect)(const char *host, int port, struct timeval timeout);
    int (*set_timeout)(struct hiredis_context *c, struct timeval timeout);
    int (*append)(struct hiredis_context *c, int argc, const char **argv, const size_t *lens);
    int (*write)(struct hiredis_context *c, int *done);
    int (*read)(struct hiredis_context *c);
    int (*next)(struct hiredis_context *c, void **reply);
    void (*free_reply)(void *reply);
    void (*free)(struct hiredis_context *c);
};

/* The library, which stays open until the process ends. Any thread. 0, or -ENOPKG: it is not installed, or
 * lacks a function; `e` says which package has it. */
int hiredis_library_open(struct hiredis_library *ret, struct err *e);

#endif
