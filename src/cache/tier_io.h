/* tier_io.h - the tier below the pools: pages and snapshots by key, in larger and slower storage.
 *
 * The prefix cache uses a tier through this interface and never waits for it. A read is requested and arrives
 * later, or never; a write is a copy. Bytes of a key are the same wherever they were computed, so a tier may
 * lose any entry at any time, which only costs a hit. One user, one thread (the engine's); the implementation
 * may use others. A key has one entry of each kind at most: a page of each group, and a snapshot. */
#ifndef PLATEAU_CACHE_TIER_IO_H
#define PLATEAU_CACHE_TIER_IO_H

#include "base/check.h"
#include "base/page_tokens.h"

#include <stdbool.h>

struct prefix_key;

/* TIER_PAGE: a page of the first group. TIER_WINDOW and after: of the groups with a window. */
enum tier_kind { TIER_PAGE, TIER_SNAPSHOT, TIER_WINDOW, TIER_KINDS = TIER_WINDOW + PAGE_GROUPS_MAX - 1 };

static inline enum tier_kind tier_kind_of(uint32_t group)
{
    ASSERT(group < PAGE_GROUPS_MAX);
    return group == 0 ? TIER_PAGE : (enum tier_kind)(TIER_WINDOW + group - 1);
}

/* The group of a kind of pages. */
static inline uint32_t tier_group_of(enum tier_kind kind)
{
    ASSERT(kind != TIER_SNAPSHOT && kind < TIER_KINDS);
    return kind == TIER_PAGE ? 0 : (uint32_t)(kind - TIER_WINDOW + 1);
}

/* The result of a read. */
struct tier_arrival {
    uint64_t tag;
    uint32_t index;
    enum tier_kind kind;
    int status;        /* 0, or negative: the entry is missing, for good */
    const void *bytes; /* [of a page or a snapshot]; owned by the tier until give() */
    uint32_t handle;   /* for the tier */
    uint32_t pending;  /* a snapshot's pending tokens as it was written */
    bool pinned;       /* from the machine's memory, as fast as a device copies */
};

/* An entry that is offered to a tier. */
enum tier_why {
    TIER_IDLE,    /* the engine has nothing else to do; it stays in the pools */
    TIER_LEASED,  /* a lease of the tier lacks it; it stays in the pools */
    TIER_COMMON,  /* a second request has it in its prompt's head; it stays in the pools */
    TIER_EVICTED, /* its place is needed: the last chance to keep it */
    TIER_LEAVING, /* the engine ends, and offers it again if there is no room */
    TIER_END      /* the engine ends, and the pools with it */
};
struct tier_offer {
    const struct prefix_key *key;
    enum tier_kind kind;
    uint32_t share; /* its tenant's: share_list_of() */
    enum tier_why why;
};

/* A question to a tier that does not know its entries itself. */
struct tier_query {
    const struct prefix_key *keys; /* [count]; copied */
    uint32_t count;
    uint32_t page_first; /* pages of the first group count from here on */
    uint32_t end_first;  /* a prefix is of use if it has more pages than this */
    uint64_t tag;
};

/* Room for a copy, between write_begin() and write_end(). */
struct tier_write {
    void *bytes;
    uint32_t handle;  /* for the tier */
    uint32_t pending; /* a snapshot's pending tokens that were accepted, set before write_end() */
    bool again;       /* with TIER_LEAVING: another tier had no room, so offer the entry again */
};

/* Why a lease does not fit. */
struct lease_refusal {
    uint64_t wanted_bytes, held_bytes, limit_bytes; /* held: by all sessions, promises included */
    uint64_t tenant_bytes, tenant_limit_bytes;
    bool by_tenant; /* the tenant's limit refuses, and not that of all */
};

/* The content of a lease of the tier. */
enum tier_lease_state {
    TIER_LEASE_WHOLE, /* all its entries */
    TIER_LEASE_WAITS, /* writes are under way, or the look is not over: ask again */
    TIER_LEASE_LACKS  /* this entry: hand it in */
};
struct tier_lease {
    uint64_t bytes, stored_bytes; /* bytes of its entries; bytes stored at the end of the last look */
    enum tier_kind kind;          /* with TIER_LEASE_LACKS, as the key */
    const struct prefix_key *key; /* good until the tier's next call */
};

struct tier_io {
    void *arg;
    /* True if the tier knows the entry; it may be gone when it is read. */
    bool (*has)(void *arg, const struct prefix_key *key, enum tier_kind kind);
    /* The entries of these keys were used now by a tenant of this share, of each kind from keys[first[kind]]
     * on: when the tier needs room, those at the end go first. */
    void (*used)(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                 const uint32_t first[TIER_KINDS]);
    /* Estimate for reading the entries of these keys, of each kind from keys[first[kind]] on, from the time
     * of earlier reads; UINT64_MAX: the tier cannot read. */
    uint64_t (*read_ns)(void *arg, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS]);
    /* Begins to find out for has() which of these keys the tier has; the client's wake follows. False: no
     * query began. NULL: has() always knows. */
    bool (*query)(void *arg, const struct tier_query *query);
    /* True while the query of this tag is under way. cancel() ends it. */
    bool (*queries)(void *arg, uint64_t tag);
    /* A second request has these entries in its prompt's head, of each kind from keys[first[kind]] on.
     * NULL: the tier does not need to know. */
    void (*common)(void *arg, const struct prefix_key *keys, uint32_t count,
                   const uint32_t first[TIER_KINDS]);
    /* Requests bytes; an arrival with `tag` and `index` follows. 0, -EAGAIN (no room: try again after the
     * next arrival, or later), -ENOENT, -ENODEV (the tier is off). */
    int (*read)(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag, uint32_t index);
    /* Cancels the reads of this tag: none of their arrivals is taken after this. */
    void (*cancel)(void *arg, uint64_t tag);
    /* The next arrival, in any order; the caller gives each back. False: none now. */
    bool (*take)(void *arg, struct tier_arrival *ret);
    void (*give)(void *arg, const struct tier_arrival *a);
    /* 0: fill ret->bytes, then call write_end; `whole` false discards it. -EEXIST (present, and counts as
     * used now), -EAGAIN (no room now), -EFBIG (never), -ENODEV (the tier is off). A refusal counts as a
     * drop, because the bytes are lost, except with TIER_IDLE, TIER_LEASED and TIER_LEAVING. */
    int (*write_begin)(void *arg, const struct tier_offer *offer, struct tier_write *ret);
    void (*write_end)(void *arg, const struct tier_write *w, bool whole);

    /* Leases: entries that the tier keeps, once it has them, until the lease ends or the client closes. Only
     * tiers that outlive the engine have them. */

    /* Opens a lease, and promises entries of each kind until lease_hold(). 0, -ENOSPC (*why says it),
     * -ENFILE, -ENODEV (the tier is off), -EIO (writes failed just now), -EFBIG (an entry is too large). */
    int (*lease_open)(void *arg, uint32_t share, const uint32_t counts[TIER_KINDS], uint32_t *ret,
                      struct lease_refusal *why);
    /* Promises more. 0, -ENOSPC, -ENODEV, -EIO, -EFBIG. */
    int (*lease_grow)(void *arg, uint32_t lease, const uint32_t counts[TIER_KINDS],
                      struct lease_refusal *why);
    /* The lease has these entries, of each kind from keys[first[kind]] on, and not its earlier ones; its
     * promise ends; *bytes: of them all. 0, -ENOSPC (it stays where it was), -ENODEV. */
    int (*lease_hold)(void *arg, uint32_t lease, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS], uint64_t *bytes);
    /* Looks at some entries of the lease, from where the last look ended. */
    enum tier_lease_state (*lease_look)(void *arg, uint32_t lease, struct tier_lease *ret);
    void (*lease_end)(void *arg, uint32_t lease);
};

#endif
