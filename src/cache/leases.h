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
 * Pure: time is a number. A walk along a chain takes nanoseconds a page. Bound: 64 bytes a lease and 5 KiB,
 * in the arena of the caller. Engine thread only. */
#ifndef PLATEAU_CACHE_LEASES_H
#define PLATEAU_CACHE_LEASES_H

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
};

size_t leases_arena_bytes(uint32_t count_max);
/* 0 or -ENOMEM. */
int leases_create(struct arena *a, const struct leases_opts *opts, struct leases **ret);
/* Ends all leases. Before the index is done. NULL is fine. */
void leases_done(struct leases *l);

/* Why something does not fit. */
struct lease_refusal {
    uint64_t wanted_bytes, held_bytes, limit_bytes; /* held: by all sessions, promises included */
    uint64_t tenant_bytes, tenant_limit_bytes;
    bool by_tenant; /* the tenant's limit refuses, and not that of all */
};

struct lease_open {
    struct lease_id id;
    uint64_t tenant, deadline_ns;
    uint64_t bytes; /* promised until leases_hold() */
    bool follows;
};
/* Opens a session, without a prefix yet. 0, -EEXIST, -ENFILE (count_max), -ENOSPC (*why says it). */
int leases_open(struct leases *l, const struct lease_open *open, struct lease_refusal *why);
/* A request will add `bytes` to the session's prefix: promised in addition until leases_hold(). 0, -ENOENT
 * (the tenant has no such session), -ENOSPC. */
int leases_grow(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t bytes,
                struct lease_refusal *why);
/* The session holds the prefix up to the node's last usable end, and not what it held; its promise ends. 0,
 * -ENOENT, -ENOSPC (it stays where it was). */
int leases_hold(struct leases *l, const struct lease_id *id, uint32_t node);
/* A request of the tenant has ended at this node (NONE: nothing). The tenant's sessions that follow, and end
 * on the way to the node, move there if they fit. */
void leases_follow(struct leases *l, uint64_t tenant, uint32_t node);

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
    uint32_t tokens;                     /* 0: its prefix is being computed */
    bool follows;
};
/* each(arg, i, info) for each session i; returns how many there are. */
typedef void lease_fn(void *arg, uint32_t i, const struct lease_info *info);
uint32_t leases_each(const struct leases *l, lease_fn *each, void *arg);
/* Tokens that the session holds; 0: none, or there is no such session. */
uint32_t leases_tokens(const struct leases *l, const struct lease_id *id);

struct lease_numbers {
    uint32_t sessions, wishes, count_max;
    uint64_t promised_bytes, bytes_max;         /* promised: not held yet */
    uint64_t opened, refused, expired, dropped; /* since creation; dropped: wishes before their deadline */
};
void leases_numbers(const struct leases *l, struct lease_numbers *ret);

/* Asserts every invariant. */
void leases_check(const struct leases *l);

#endif
