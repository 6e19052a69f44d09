/* admin_client.h - asks a server as its administrator: over its Unix socket, or at an address with its
 * key. */
#ifndef PLATEAU_CLI_ADMIN_CLIENT_H
#define PLATEAU_CLI_ADMIN_CLIENT_H

#include "base/buf.h"

#include <jansson.h>

struct err;
struct settings;

#define ADMIN_REPLY_BYTES_MAX ((size_t)16 << 20)

struct curl_slist;

struct admin_client {
    char socket[108]; /* its path, or "@NAME" of an abstract one; "": `url` */
    const char *url;
    char base[1024];  /* "": `url` */
    char key[1025];   /* "": none */
    const char *body; /* JSON that an order sends; NULL: nothing */
};

/* A server at `url`, with or without a "/v1" at its end, and a key of `o` for --api-key. 0 or -EINVAL. */
int admin_client_open_url(const struct settings *o, struct admin_client *ret, struct err *e);
/* Finds the server: that of --socket or --url, else the only one of this machine. Borrows texts of `o`. 0,
 * -ENOENT (none runs here), -E2BIG (several do: e lists them), -EINVAL, or an error of the key's file. */
int admin_client_open(const struct settings *o, struct admin_client *ret, struct err *e);
void admin_client_close(struct admin_client *c);

struct admin_reply {
    unsigned status;
    struct buf body;
    json_t *json; /* the body; NULL: not JSON */
};
/* 0; -ECONNREFUSED: no server answers; -EPROTO: the status is 400 or more, e has the server's sentence; -EIO,
 * -ENOMEM. admin_reply_done() either way. */
int admin_client_order(const struct admin_client *c, const char *method, const char *path,
                       struct admin_reply *ret, struct err *e);
void admin_reply_done(struct admin_reply *r);

/* Sets address, socket and headers of a request that streams; h: a CURL handle. *headers is the caller's,
 * until the request has ended. 0, -EINVAL (the address is too long), -ENOMEM. */
int admin_client_prepare(const struct admin_client *c, void *h, const char *path, struct curl_slist **headers,
                         struct err *e);
/* Why a request failed, by its CURLcode. */
int admin_client_explain(const struct admin_client *c, int code, struct err *e);
/* The sentence of an error's body, or NULL. */
const char *admin_client_sentence(const json_t *body);

/* Appends the value as JSON. 0 or -ENOMEM. */
int admin_write_json(const json_t *value, struct buf *ret);

/* PREFIX, the id percent-encoded, SUFFIX. -ENAMETOOLONG. */
int admin_path(const char *prefix, const char *id, const char *suffix, char *ret, size_t bytes_max);

#endif
