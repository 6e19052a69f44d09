/* http_peer.h - how many connections each client address has.
 *
 * A table of fixed size with an entry for each address that is connected now. A client is an IPv4 address or
 * an IPv6 /64, which is what one customer gets; addresses of IPv4 in IPv6 are the former.
 *
 * Bound in bytes: http_peers_bytes(), at most 96 for each of connections_max (an entry, and its share of the
 * chains' heads). */
#ifndef PLATEAU_HTTP_HTTP_PEER_H
#define PLATEAU_HTTP_HTTP_PEER_H

#include "base/list.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* States of a connection without an open request: in this order they are closed to make room. */
enum http_idle {
    HTTP_IDLE_REST,   /* between requests */
    HTTP_IDLE_HEADER, /* a header has begun */
    HTTP_IDLE_BODY,   /* a body is coming in */
    HTTP_IDLES
};

struct http_peer {
    unsigned char address[16];
    uint32_t count;                /* open connections; 0 = the entry is free */
    uint32_t next;                 /* index of the next entry of the chain, + 1 */
    struct list idles[HTTP_IDLES]; /* idle connections; oldest first */
};

struct http_peers {
    struct http_peer *entries;
    uint32_t *heads; /* heads of the chains: index of an entry, + 1 */
    uint32_t heads_count, free;
};

/* Returns the bytes that http_peers_init() allocates. */
size_t http_peers_bytes(uint32_t connections_max);
/* 0 or -ENOMEM. */
int http_peers_init(struct http_peers *p, uint32_t connections_max);
void http_peers_done(struct http_peers *p);

/* One connection more from there. Returns NULL for an address that is neither of IPv4 nor of IPv6. */
struct http_peer *http_peer_join(struct http_peers *p, const struct sockaddr *a);
void http_peer_leave(struct http_peers *p, struct http_peer *peer);

/* 127/8, ::1, their mapped forms, and local sockets. */
bool http_peer_is_loopback(const struct sockaddr *a);

#endif
