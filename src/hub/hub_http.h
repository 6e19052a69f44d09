/* hub_http.h - requests to the hub: up to HUB_TRANSFERS_MAX at once, on the thread that polls.
 *
 * The token goes to the endpoint's scheme, host and port and nowhere else; a redirect to another host
 * goes without it. Addresses are https, or of this machine. Redirects to private addresses are followed
 * only when the endpoint is private itself. A transfer neither retries nor writes: its owner does. */
#ifndef PLATEAU_HUB_HUB_HTTP_H
#define PLATEAU_HUB_HUB_HTTP_H

#include "base/err.h"
#include "base/slice.h"

#define HUB_TRANSFERS_MAX 4
#define HUB_URL_BYTES     8192

struct hub_http;

struct hub_http_opts {
    const char *endpoint; /* NULL: the public hub */
    const char *token;    /* NULL: none; copied */
    unsigned stall_s;     /* less than 1 kB/s for that long is a broken connection */
};

enum hub_end {
    HUB_END_OK,
    HUB_END_AGAIN, /* the request may succeed later; wait_s says when, 0: at once */
    HUB_END_WHOLE, /* the request had a range, but the whole file came: nothing was taken */
    HUB_END_FAILED /* it will not succeed; `code` and `why` */
};

struct hub_transfer {
    /* The caller's. `path` begins with a slash and is encoded. */
    char path[HUB_URL_BYTES];
    uint64_t from, bytes; /* bytes 0: no range, and at most bytes_max come */
    uint64_t file_bytes;  /* bytes of the whole file; 0: not known */
    uint64_t bytes_max;
    int (*take)(void *arg, struct slice bytes); /* negative: ends it, as HUB_END_FAILED with that code */
    void *arg;
    /* The result. */
    enum hub_end end;
    int code;
    unsigned wait_s;
    uint64_t came; /* bytes that were taken */
    struct err why;
    char next[HUB_URL_BYTES]; /* path of the next page of a list; "" */
    void *state;              /* state of hub_http.c while it runs; NULL otherwise */
};

/* 0, -EINVAL (an endpoint that is not https and not of this machine), -ENOMEM. */
int hub_http_create(const struct hub_http_opts *opts, struct hub_http **ret, struct err *e);
/* NULL is fine. Ends all transfers. */
void hub_http_free(struct hub_http *h);
/* 0 or -ENOMEM. There may be HUB_TRANSFERS_MAX at once; `t` stays until it has ended or was dropped. */
int hub_http_begin(struct hub_http *h, struct hub_transfer *t, struct err *e);
void hub_http_drop(struct hub_http *h, struct hub_transfer *t);
/* Moves bytes. Returns a transfer that has ended, or NULL. */
struct hub_transfer *hub_http_poll(struct hub_http *h);
/* Waits up to `ms` for something to move. */
void hub_http_wait(struct hub_http *h, unsigned ms);

/* "%"-encodes all but letters, digits, "-._~/" of `name` to ret; false: no room. */
bool hub_http_encode(const char *name, char *ret, size_t bytes_max);

#endif
