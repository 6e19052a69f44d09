/* http_place.c - chooses the connections to evict when there are more than connections_max, or too many of
 * one client.
 *
 * A connection without an open request is in a list by the event it waits for, longest waiting first. When
 * all places are taken, a new connection gets the place of the first evictable one: an idle one, else one
 * with an incomplete header, else one with a body slower than HTTP_BODY_BYTES_PER_S. New ones are spared as
 * long as there are others: a client needs a moment to send. When all have requests open, the new connection
 * is an excess one: of HTTP_EXCESS_MAX further places, on which only vital paths are answered. Excess places
 * are evicted in the same order, so dripping clients do not hold them. A client beyond its own share loses
 * its own connections in this order, never others'.
 *
 * An evicted connection is only marked here: the loop closes it (http_conn.c) at the end of the turn, unless
 * its request has become complete meanwhile. */
#include "http/http_state.h"

#include "base/clock.h"

#include <sys/ioctl.h>

/* Entries of a list that are examined: only few cannot be evicted. */
#define LOOK_MAX 64
#define SLOW_NS  (2 * NS_PER_S)
/* Since it was opened, or its last request ended: another one may be under way. */
#define NEW_NS NS_PER_S

static enum http_idle idle_of(const struct http_conn *c)
{
    if (!c->placed)
        return HTTP_IDLES;
    switch (c->request.phase) {
    case HTTP_PHASE_NONE:
    case HTTP_PHASE_HEADER:
        return http_raw_rests(&c->raw) ? HTTP_IDLE_REST : HTTP_IDLE_HEADER;
    case HTTP_PHASE_BODY:
        return HTTP_IDLE_BODY;
    default:
        return HTTP_IDLES;
    }
}

void http_place_note(struct http_conn *c)
{
    enum http_idle idle = idle_of(c);
    if (idle == c->idle)
        return;
    list_remove(&c->idle_link);
    list_remove(&c->peer_link);
    c->idle = idle;
    if (idle == HTTP_IDLES)
        return;
    list_push_back(&c->server->idles[idle], &c->idle_link);
    if (c->peer)
        list_push_back(&c->peer->idles[idle], &c->peer_link);
}

bool http_place_has_unread(const struct http_conn *c)
{
    int bytes = 0;
    return c->in_at < c->in_end || (ioctl(c->fd, FIONREAD, &bytes) == 0 && bytes > 0);
}

static bool is_slow(const struct http_conn *c)
{
    const struct http_request *r = &c->request;
    uint64_t ns = c->server->now_ns - r->since_ns;
    return ns > SLOW_NS && r->body_bytes < ns / (NS_PER_S / HTTP_BODY_BYTES_PER_S);
}

static bool may_go(const struct http_conn *c, const struct http_conn *for_whom, bool excess)
{
    if (c == for_whom || c->excess != excess)
        return false;
    switch (c->idle) {
    case HTTP_IDLE_REST:
        return !http_place_has_unread(c);
    case HTTP_IDLE_BODY:
        return is_slow(c);
    default:
        return true;
    }
}

static bool is_new(const struct http_conn *c)
{
    return c->idle != HTTP_IDLE_BODY && c->server->now_ns - c->since_ns < NEW_NS;
}

/* Looks among those that are not new, then among the new ones too. */
static struct http_conn *first_that_may_go(struct list idles[HTTP_IDLES], bool of_peer,
                                           const struct http_conn *for_whom, bool excess)
{
    for (int i = 0; i < 2 * HTTP_IDLES; i++) {
        int looked = 0;
        bool with_new = i >= HTTP_IDLES;
        LIST_EACH(l, &idles[i % HTTP_IDLES]) {
            struct http_conn *c = of_peer ? LIST_ENTRY(l, struct http_conn, peer_link)
                                          : LIST_ENTRY(l, struct http_conn, idle_link);
            if ((with_new || !is_new(c)) && may_go(c, for_whom, excess))
                return c;
            if (++looked == LOOK_MAX)
                break;
        }
    }
    return NULL;
}

void http_place_leave(struct http_conn *c)
{
    if (!c->placed)
        return;
    c->placed = false;
    http_place_note(c);
    c->server->conns_placed--;
    if (c->peer)
        http_peer_leave(&c->server->peers, c->peer);
    c->peer = NULL;
}

static void evict(struct http_conn *c)
{
    ASSERT(c->open && list_empty(&c->leaving));
    http_place_leave(c);
    list_push_back(&c->server->leaving, &c->leaving);
}

/* True when one of the client's own, else one of all, makes room. */
static bool take_from(struct list idles[HTTP_IDLES], bool of_peer, struct http_conn *c, bool excess)
{
    struct http_conn *victim = first_that_may_go(idles, of_peer, c, excess);
    if (victim)
        evict(victim);
    return victim != NULL;
}

bool http_place_evict_any(struct http_server *s)
{
    return take_from(s->idles, false, NULL, false) || take_from(s->idles, false, NULL, true);
}

static uint32_t peer_max(const struct http_server *s)
{
    return s->opts.connections_per_ip ? s->opts.connections_per_ip : MAX_OF(s->opts.connections_max / 2, 1u);
}

static bool is_crowded(struct http_conn *c)
{
    struct http_peer *peer = c->peer;
    return peer && peer->count > peer_max(c->server) && !take_from(peer->idles, true, c, false) &&
           !take_from(peer->idles, true, c, true);
}

static bool is_over(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (s->conns_placed <= s->opts.connections_max || take_from(s->idles, false, c, false))
        return false;
    if (s->conns_placed > s->opts.connections_max + HTTP_EXCESS_MAX)
        take_from(s->idles, false, c, true);
    return true;
}

void http_place_judge(struct http_conn *c)
{
    /* Its own client's first: then no other client loses one. */
    c->crowded = is_crowded(c);
    c->excess = is_over(c) || c->crowded;
}

void http_place_take(struct http_conn *c)
{
    struct http_server *s = c->server;
    const struct sockaddr *from = &c->from.any;
    bool limited = s->opts.connections_per_ip > 0 || !http_peer_is_loopback(from);
    c->peer = limited ? http_peer_join(&s->peers, from) : NULL;
    c->placed = true;
    c->excess = c->crowded = false;
    c->idle = HTTP_IDLES;
    s->conns_placed++;
    http_place_note(c);
    http_place_judge(c);
}

bool http_request_share(struct http_request *r, uint64_t tenant)
{
    struct http_server *s = http_conn_of(r)->server;
    ASSERT(r->begun && tenant != 0);
    r->tenant = tenant;
    uint32_t others = s->requests_open - !r->late, own = 0;
    uint32_t free_places = s->opts.connections_max - MIN_OF(others, s->opts.connections_max);
    /* Most requests come while few connections are in use: then no count can be above the share. */
    if (others < (uint64_t)HTTP_SHARE_OF_FREE * free_places)
        return true;
    for (uint32_t i = 0; i < s->conns_max; i++) {
        const struct http_request *other = &s->conns[i].request;
        bool open = s->conns[i].open && other->begun && other->phase != HTTP_PHASE_OVER;
        own += open && other != r && other->tenant == tenant;
    }
    return own < (uint64_t)HTTP_SHARE_OF_FREE * free_places;
}
