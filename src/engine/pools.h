/* pools.h - the engine's pages, states and prefixes as one memory: accounts, and the exchange between pools.
 *
 * All of it is charged below the account `pools`, the limit of both pools together. A unit is committed on
 * `kv` or `state`. Bytes that only the prefix cache holds are shown on `prefix cache` and `snapshots`, and
 * bytes that sessions hold on `leases` (pools_move_accounts). When a unit is refused, the other pool's free
 * units come first, then cached prefixes. Part of the engine: its thread, once it runs. */
#ifndef PLATEAU_ENGINE_POOLS_H
#define PLATEAU_ENGINE_POOLS_H

#include "base/none.h"
#include "cache/page_group.h"
#include "cache/tier_io.h"
#include "compute/batch.h"
#include "memory/dev.h"
#include "memory/units.h"

#include <stdbool.h>

struct arena;
struct holder;
struct prefix_index;
struct prefix_key;

struct pools {
    /* Constant. */
    struct page_group groups[PAGE_GROUPS_MAX];
    uint32_t group_count;
    struct block_pool *states;             /* NULL without recurrent layers */
    struct block_pool *blocks[TIER_KINDS]; /* by kind: of the groups' pages, and `states`; NULL: none */
    struct prefix_index *index;            /* NULL: nothing is reused */
    size_t page_bytes, state_bytes;        /* page_bytes: a page of each group; both of the first device */
    dev_ptr page_base[PAGE_GROUPS_MAX], state_base; /* begin of the pools, for the model; null without
                                                     * states */
    /* [states_max]: of the tokens that a state keeps pending, how many were accepted (model_seq.pending).
     * It belongs to the state, and moves and is stored with it. NULL without states. */
    uint32_t *pending;
    /* [pages_max]: tokens of a page of the first group whose K and V of the draft model are there, from its
     * first on. They move with the page. NULL without a draft model. */
    uint8_t *drafted;
    struct leases *leases; /* NULL: none */
    struct agents *agents; /* NULL: no places of agents */
    struct account *all, *kv, *state, *snapshots, *prefix_cache, *leased;
    /* The parts of pages and states on other devices, which come and go with those on the first one. */
    uint32_t beside_count;
    struct pools_beside_accounts {
        struct account *all, *kv, *state;
    } beside[SHARDS_MAX - 1];
    struct batch_shard beside_bases[SHARDS_MAX - 1]; /* for the model, as page_base */
    struct holder *holder;                           /* NULL: no other engine takes from it, or gives */
    /* Engine thread only. */
    struct pool_of {
        struct pools *pools;
        uint32_t group;
    } of[PAGE_GROUPS_MAX];                  /* for the pools' callbacks */
    uint32_t uses;                          /* page_pool_opts.uses of all groups */
    uint64_t on_snapshots, on_prefix_cache; /* bytes shown there */
    uint64_t pages_leased, states_leased;   /* bytes shown on `leased` */
    uint64_t reclaims, moves, now_ns;
    uint64_t dropped;        /* pages and snapshots evicted from the prefix cache to make room */
    bool (*more)(void *arg); /* pools_opts.more */
    void *arg;
    struct units_crew crew;
    /* A unit was refused since the clock was set, and other holders have been asked to give one. */
    bool memory_requested;
    uint64_t refused, taken_ns; /* units that the system refused, and when it last did,
                                 * without a limit of this process; 0: never */
};

#define POOLS_LEASES_MAX 1024 /* sessions and wishes of a model */

struct pools_opts {
    struct account *parent;
    struct page_group groups[PAGE_GROUPS_MAX]; /* the first without a window; `pages` is not looked at */
    uint32_t group_count;
    uint32_t pages_max, states_max; /* size of each group's pool; states_max is not looked at with state_bytes
                                     * 0 */
    size_t state_bytes;
    /* The other devices of the model. What is above, and all limits, are of the first one. */
    uint32_t beside_count;
    struct pools_shard {
        struct account *parent;
        size_t page_bytes[PAGE_GROUPS_MAX], state_bytes;
        uint64_t bytes_max; /* limit of all of it there; ACCOUNT_NO_LIMIT */
    } beside[SHARDS_MAX - 1];
    bool drafted;              /* pages have K and V of a draft model */
    bool shown;                /* other threads may ask for prefixes: prefix_index_opts.shown */
    uint64_t bytes_max;        /* limit of all of it; ACCOUNT_NO_LIMIT */
    uint64_t prefix_cache_max; /* limit of blocks that no request uses; 0: nothing is kept */
    /* Limits of leases (cache/leases.h): bytes, and pages and snapshots that sessions hold. 0: no leases. */
    uint64_t lease_bytes_max;
    uint32_t lease_pages_max, lease_states_max;
    const struct tier_io *lease_tier; /* opened later; NULL: sessions are in the pools alone */
    uint32_t agents, agent_tokens;    /* places of agents; 0: none */
    uint64_t agent_idle_ns;
    struct holder *holder; /* its budget limits the cache too; may be NULL */
    /* Gives back memory of the engine outside the pools, so that the pools may have it; called when all
     * others refuse a unit. False: there is nothing. NULL: never. */
    bool (*more)(void *arg);
    void *arg;
    struct units_crew crew; /* for committing a prompt's units; run NULL: none */
    bool tells_prefixes;    /* see engine_opts */
    const struct prefix_events_opts *events;
    /* See prefix_index_opts. */
    void (*evicting)(void *arg, const struct tier_offer *offer, uint32_t block);
    void *evicting_arg;
};

/* Bytes of arena that pools_create takes at most. */
size_t pools_arena_bytes(const struct pools_opts *opts);
/* Opens the accounts and lays out the pools in `a`; nothing is committed. 0 or -ENOMEM; pools_done() in
 * either case. */
int pools_create(struct arena *a, const struct pools_opts *opts, struct pools *p);
/* No sequence has a page or state. Before the arena goes; fine on a zeroed struct. `holder` (closed; may be
 * NULL) is removed from the list, or becomes an orphan with the ranges that the system did not take back.
 * Returns their bytes. */
uint64_t pools_done(struct pools *p, struct holder *holder);

/* Returns the pending tokens of a state that were accepted; 0 with NONE. */
static inline uint32_t pools_pending(const struct pools *p, uint32_t state)
{
    return state == NONE ? 0 : p->pending[state];
}
/* For sched_opts.arrived; arg is the pools. */
void pools_arrived(void *arg, const struct tier_arrival *a, uint32_t block);

/* Bytes on all devices together; 0 of a group that the model does not have, and of snapshots without
 * states. */
size_t pools_block_bytes(const struct pools *p, enum tier_kind kind);
/* Copies [offset, offset + bytes) of a page or a state to host memory. 0 or -EIO. */
int pools_get(const struct pools *p, enum tier_kind kind, uint32_t block, uint64_t offset, uint64_t bytes,
              void *host);

/* Moves bytes between the accounts as the blocks are used now. Never fails: the sum is unchanged. */
void pools_move_accounts(struct pools *p);
/* The last node of the chain keys[count] that a later request can use; NONE: no such node. */
uint32_t pools_prefix_end(const struct pools *p, const struct prefix_key *keys, uint32_t count);
void pools_clock(struct pools *p, uint64_t now_ns);

struct pools_given {
    uint64_t bytes; /* bytes of a unit that went, or 0 */
    bool moved;     /* a block moved to where it needs fewer units */
};
/* One move that brings the pools closer to the fewest units: gives back a free one (empty since before_ns),
 * else moves one page or snapshot down. At most 2 MiB are touched. False: there is nothing. */
bool pools_shrink(struct pools *p, uint64_t before_ns, struct pools_given *ret);
/* Gives back one unit at once, at any cost: cached blocks move or are dropped for it. */
bool pools_free_unit(struct pools *p);
/* Drops the least recently used prefixes until they hold `bytes` less. Returns by how much. */
uint64_t pools_evict(struct pools *p, uint64_t bytes);
/* As `pools_evict()`, but only prefixes last used before then. */
uint64_t pools_evict_before(struct pools *p, uint64_t bytes, uint64_t before_ns);

/* Memory of the engine outside its pools, as in holder_numbers. */
struct pools_beside {
    uint64_t held_bytes, free_bytes, reach_bytes;
};
/* Updates the list of holders; returns the bytes of prefixes that the list asks to drop. Without a holder:
 * 0. */
uint64_t pools_publish(struct pools *p, const struct pools_beside *beside, uint64_t prompt_token_ns);

/* Zeros without such blocks. */
struct pool_numbers pools_numbers(const struct pools *p, enum tier_kind kind);
/* Returns the most bytes that pools_shrink() can give back. */
uint64_t pools_spare_bytes(const struct pools *p);
/* All units. */
uint64_t pools_held_bytes(const struct pools *p);
uint64_t pools_recommitted(const struct pools *p);
/* A limit of this process refuses a unit: waiting for other programs would not help. */
bool pools_are_limited(const struct pools *p);
/* The system refused a unit since `before_ns`, and no account or limit of this process did: other programs
 * have the memory. */
static inline bool pools_memory_taken(const struct pools *p, uint64_t before_ns)
{
    return p->taken_ns > 0 && p->taken_ns >= before_ns;
}

#endif
