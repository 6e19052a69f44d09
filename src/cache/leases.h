/* leases.h - prefixes that are kept until a deadline: sessions, which hold their entries, and wishes.
 *
 * A *session* holds. It is a user of its prefix, so pressure, clears and other tenants take nothing of it.
 * Its bytes are promised before the prefix is computed (leases_open(), leases_grow()), and refused with
 * numbers where they do not fit. A *wish* holds nothing. Its entries are evicted after all others of the
 * cache, and no request is refused for it. Clients send wishes with every request.
 *
 * Both stand at the end of a chain. A session moves when leases_hold() names it, or with any request of its
 * tenant that continues its end (`follows`). A wish moves to the end of the next request that continues it.
 *
 * Sessions hold at most bytes_max, pages_max pages of the first group and states_max snapshots, so that the
 * longest sequence always has room. A tenant holds at most half of what the sessions of others leave. Entries
 * of several leases count once. Wishes have the same limit of their own. The tenant with most wished bytes
 * loses its earliest deadline first.
 *
 * A session may be in the tier below instead (lease_open.below). Its entries are then promised, held and
 * limited there. The pools keep them only until the tier has all of them, and only if they fit beside other
 * sessions. leases_next_lack() names an entry that the tier lacks. Without the pools' entries the session is
 * found by its last key.
 *
 * Pure: time is a number. A walk along a chain takes nanoseconds a page. Bound: 144 bytes a lease and 5 KiB,
 * in the arena of the caller. Engine thread only. */
#ifndef PLATEAU_CACHE_LEASES_H
#define PLATEAU_CACHE_LEASES_H

#include "cache/tier_io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct leases;
struct prefix_index;

#define LEASE_WISHES_MAX 4 /* wishes of one request */

struct lease_id {
    uint8_t bytes[16];
};

struct leases_opts {
    struct prefix_index *index; /* its `leaving` calls leases_leaving() */
    uint32_t count_max;         /* sessions and wishes together */
    uint64_t bytes_max;         /* bytes of sessions; and of wishes */
    uint32_t pages_max, states_max;
    const struct tier_io *tier; /* for sessions below; NULL, or arg NULL: there are none */
};

size_t leases_arena_bytes(uint32_t count_max);
/* 0 or -ENOMEM. */
int leases_create(struct arena *a, const struct leases_opts *opts, struct leases **ret);
/* Ends all leases. Before the index is done. NULL is fine. */
void leases_done(struct leases *l);

struct lease_open {
    struct lease_id id;
    uint64_t tenant, deadline_ns;
    uint64_t bytes; /* promised until leases_hold() */
    bool follows;
    bool below;                  /* in the tier below; `bytes` is 0 */
    uint32_t counts[TIER_KINDS]; /* with below: entries that are promised there */
};
/* Opens a session, without a prefix yet. 0, -EEXIST, -ENFILE (count_max), -ENOSPC (*why says it); below also
 * as tier_io.lease_open(), and -ENODEV without a tier. */
int leases_open(struct leases *l, const struct lease_open *open, struct lease_refusal *why);
/* A request will add `bytes` to the session's prefix, or `counts` to one below: promised in addition until
 * leases_hold(). 0, -ENOENT (the tenant has no such session), -ENOSPC; below also as tier_io.lease_grow(). */
int leases_grow(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t bytes,
                const uint32_t counts[TIER_KINDS], struct lease_refusal *why);
/* The session holds the prefix up to the node's last usable end, and not what it held; its promise ends. In
 * the tier below it needs the prefix's keys. 0, -ENOENT, -ENOSPC, and below as tier_io.lease_hold(): then it
 * stays where it was. */
int leases_hold(struct leases *l, const struct lease_id *id, uint32_t node, const struct prefix_key *keys);
/* A request of the tenant has ended at this node (NONE: nothing). The tenant's sessions that follow, and end
 * on the way to the node, move there if they fit. */
void leases_follow(struct leases *l, uint64_t tenant, uint32_t node, const struct prefix_key *keys);
/* True if the tenant's sessions may hold these bytes in addition, in the pools. */
bool leases_fit(const struct leases *l, uint64_t tenant, uint64_t bytes);

/* An entry that the tier below lacks of a session. */
struct lease_lack {
    const struct prefix_key *key; /* good until the tier's next call */
    enum tier_kind kind;
    uint64_t tenant;
};
/* Looks at one session that the tier does not have yet, another one each time; one that it has gives back its
 * entries in the pools. TIER_LEASE_WHOLE: there is no such session. */
enum tier_lease_state leases_next_lack(struct leases *l, struct lease_lack *ret);

struct lease_wish {
    uint32_t node; /* a usable end, or one is before it */
    uint64_t deadline_ns;
};
/* The wishes of a request, each node on the way to the next. Returns for how many of the last one's tokens
 * there is a wish now. */
uint32_t leases_wish(struct leases *l, uint64_t tenant, const struct lease_wish *wishes, uint32_t count);

/* False: the tenant has no such session. */
bool leases_extend(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t deadline_ns);
bool leases_end(struct leases *l, const struct lease_id *id, uint64_t tenant);
/* Ends one lease whose deadline has passed. False: no deadline has. */
bool leases_expire(struct leases *l, uint64_t now_ns);
/* The next deadline; UINT64_MAX: none. */
uint64_t leases_due_ns(const struct leases *l);
/* For prefix_index_opts.leaving; arg is the leases. */
void leases_leaving(void *arg, uint32_t node);

struct lease_info {
    struct lease_id id;
    uint64_t tenant, deadline_ns, bytes; /* bytes: of its prefix, with what it shares; or promised */
    uint64_t stored_bytes;               /* below: of them, bytes that the tier had at the last look */
    uint32_t tokens;                     /* 0: its prefix is being computed */
    bool follows, below;
};
/* each(arg, i, info) for each session i; returns how many there are. */
typedef void lease_fn(void *arg, uint32_t i, const struct lease_info *info);
uint32_t leases_each(const struct leases *l, lease_fn *each, void *arg);
/* Fills in the session's figures. False: there is no such session. */
bool leases_info(const struct leases *l, const struct lease_id *id, struct lease_info *ret);

struct lease_numbers {
    uint32_t sessions, wishes, count_max;
    uint32_t below, writing; /* sessions in the tier below; of them, sessions that it lacks entries of */
    uint64_t promised_bytes, bytes_max;         /* promised: not held yet */
    uint64_t opened, refused, expired, dropped; /* since creation; dropped: wishes before their deadline */
};
void leases_numbers(const struct leases *l, struct lease_numbers *ret);

/* Asserts every invariant. */
void leases_check(const struct leases *l);

#endif
