/* http_peer.c - chains of entries below a table of heads; entries never move, so connections point to
 * them. */
#include "http/http_peer.h"

#include "base/hash.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

static uint32_t heads_for(uint32_t connections_max)
{
    uint32_t count = 16;
    while (count < connections_max)
        count *= 2;
    return count;
}

size_t http_peers_bytes(uint32_t connections_max)
{
    return (size_t)connections_max * sizeof(struct http_peer) + heads_for(connections_max) * sizeof(uint32_t);
}

int http_peers_init(struct http_peers *p, uint32_t connections_max)
{
    p->heads_count = heads_for(connections_max);
    p->entries = calloc(connections_max, sizeof(*p->entries));
    p->heads = calloc(p->heads_count, sizeof(*p->heads));
    if (!p->entries || !p->heads) {
        http_peers_done(p);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < connections_max; i++)
        p->entries[i].next = i + 1 < connections_max ? i + 2 : 0;
    p->free = 1;
    return 0;
}

void http_peers_done(struct http_peers *p)
{
    free(p->entries);
    free(p->heads);
    *p = (struct http_peers){0};
}

static bool is_mapped(const struct in6_addr *a)
{
    return IN6_IS_ADDR_V4MAPPED(a);
}

static bool read_address(const struct sockaddr *a, unsigned char ret[16])
{
    memset(ret, 0, 16);
    if (a && a->sa_family == AF_INET) {
        ret[10] = ret[11] = 0xff;
        memcpy(ret + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
        return true;
    }
    if (!a || a->sa_family != AF_INET6)
        return false;
    const struct in6_addr *in = &((const struct sockaddr_in6 *)a)->sin6_addr;
    memcpy(ret, in, is_mapped(in) ? 16 : 8);
    return true;
}

static uint32_t *head_of(struct http_peers *p, const unsigned char address[16])
{
    return &p->heads[hash_bytes(address, 16) & (p->heads_count - 1)];
}

static struct http_peer *peer_create(struct http_peers *p, uint32_t *head, const unsigned char address[16])
{
    /* There are as many entries as connections. */
    ASSERT(p->free != 0);
    uint32_t index = p->free;
    struct http_peer *peer = &p->entries[index - 1];
    p->free = peer->next;
    memcpy(peer->address, address, 16);
    peer->next = *head;
    *head = index;
    for (int i = 0; i < HTTP_IDLES; i++)
        list_init(&peer->idles[i]);
    return peer;
}

struct http_peer *http_peer_join(struct http_peers *p, const struct sockaddr *a)
{
    unsigned char address[16];
    if (!read_address(a, address))
        return NULL;
    uint32_t *head = head_of(p, address);
    struct http_peer *peer = NULL;
    for (uint32_t i = *head; i && !peer; i = p->entries[i - 1].next)
        if (memcmp(p->entries[i - 1].address, address, 16) == 0)
            peer = &p->entries[i - 1];
    if (!peer)
        peer = peer_create(p, head, address);
    peer->count++;
    return peer;
}

void http_peer_leave(struct http_peers *p, struct http_peer *peer)
{
    ASSERT(peer->count > 0);
    if (--peer->count > 0)
        return;
    uint32_t index = (uint32_t)(peer - p->entries) + 1;
    uint32_t *at = head_of(p, peer->address);
    while (*at != index) {
        ASSERT(*at != 0);
        at = &p->entries[*at - 1].next;
    }
    *at = peer->next;
    peer->next = p->free;
    p->free = index;
}

bool http_peer_is_loopback(const struct sockaddr *a)
{
    if (a && a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    if (a && a->sa_family == AF_INET6) {
        const struct in6_addr *in = &((const struct sockaddr_in6 *)a)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(in) || (is_mapped(in) && in->s6_addr[12] == 127);
    }
    return a && a->sa_family == AF_UNIX;
}
