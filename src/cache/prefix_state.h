/* prefix_state.h - the index's structures; for the files of the prefix index only. */
#ifndef PLATEAU_CACHE_PREFIX_STATE_H
#define PLATEAU_CACHE_PREFIX_STATE_H

#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/prefix_losses.h"
#include "cache/prefix_shown.h"
#include "cache/share_list.h"
#include "cache/tier_io.h"

#include "base/none.h"
#include "base/page_tokens.h"

#include <stdbool.h>

struct node {
    struct prefix_key key;
    uint32_t next_same;                 /* in its bucket; of a free node: the next free one */
    uint32_t parent, child, next, prev; /* child: the first one; next, prev: siblings */
    uint32_t snapshot, pins;
    uint32_t depth; /* nodes up to and including it; 0: free */
    /* Bits by tier_kind: which entries are of use in the tier below, and which of them it has. A bit of
     * `stored` is set only while the index has that entry. */
    uint8_t wanted, stored;
    uint8_t share; /* share of its tenant; a child has its parent's */
    uint8_t ends;  /* 1: leases may end here, and hear of its removal */
};

struct snapshot {
    uint32_t node;  /* NONE: not a snapshot */
    uint32_t saves; /* pages that it saves, beyond the snapshot before it */
    uint64_t price;
    uint32_t next, prev;
    uint32_t leases, wishes;
};

struct group {
    struct page_group is;
    uint32_t pages_max;
    uint32_t *page_of; /* [nodes_max]; NONE: no page of this group */
    uint32_t *node_of; /* [pages_max]; NONE: page of no node */
};

struct prefix_index {
    /* Constant. */
    struct prefix_index_opts opts;
    struct page_group first; /* groups[0].is, for short */
    uint32_t group_count;
    struct block_pool *states;
    uint32_t bucket_mask, nodes_max, states_max;
    uint32_t regular_end; /* the tier gets the windows of nodes whose depth is a multiple of it; 0: none */
    /* Engine thread only. */
    struct group groups[PAGE_GROUPS_MAX];
    struct node *nodes;         /* [nodes_max] */
    uint32_t free, nodes_end;   /* no node from nodes_end on was ever used */
    uint32_t *buckets;          /* [bucket_mask + 1]: the first node */
    struct snapshot *snapshots; /* [states_max] */
    uint32_t newest;            /* snapshot */
    uint32_t share_snapshots[CACHE_SHARES];
    uint32_t share_leased[CACHE_SHARES]; /* snapshots with a lease */
    uint64_t allowed;                    /* <= opts.bytes_max */
    uint64_t age;                        /* the price of the last eviction */
    struct prefix_losses *losses;
    struct prefix_shown shown;    /* other threads read it; empty without opts.shown */
    struct prefix_events *events; /* NULL: no taker */
    struct prefix_numbers numbers;
    bool evicts; /* removals are evictions and call opts.evicting */
    bool clears; /* removals are an order's, and losses all the same */
};

static inline uint32_t page_of(const struct prefix_index *ix, uint32_t node, uint32_t group)
{
    return ix->groups[group].page_of[node];
}

/* References to the node: each user references its first page. */
static inline uint32_t refs_of(const struct prefix_index *ix, uint32_t node)
{
    return page_pool_refs(ix->first.pages, page_of(ix, node, 0));
}

/* The node's page or snapshot; NONE: it has no such entry. */
static inline uint32_t block_of(const struct prefix_index *ix, uint32_t node, enum tier_kind kind)
{
    ASSERT(node < ix->nodes_max);
    if (kind == TIER_SNAPSHOT)
        return ix->nodes[node].snapshot;
    uint32_t group = tier_group_of(kind);
    return group < ix->group_count ? page_of(ix, node, group) : NONE;
}

/* True: the tier below is to get the entry of this kind, once there is one. */
static inline bool tier_lacks(const struct node *n, enum tier_kind kind)
{
    ASSERT(kind < TIER_KINDS);
    return ((uint32_t)(n->wanted & ~n->stored) >> kind & 1) != 0;
}

/* The entry of this kind was added, or is about to go. */
static inline void tier_counts(struct prefix_index *ix, struct node *n, enum tier_kind kind)
{
    ASSERT(!(n->stored >> kind & 1)); /* an entry that is new here */
    ix->numbers.unstored += tier_lacks(n, kind);
}
static inline void tier_forgets(struct prefix_index *ix, struct node *n, enum tier_kind kind)
{
    ASSERT(ix->numbers.unstored >= tier_lacks(n, kind));
    ix->numbers.unstored -= tier_lacks(n, kind);
    n->stored &= (uint8_t) ~(1u << kind);
}

/* Announces the entry as evicted, if there is one and the tier below wants it. */
void prefix_tier_evicting(struct prefix_index *ix, uint32_t node, enum tier_kind kind);

/* Events (prefix_events.h); without a taker nothing happens. */
/* The node is new. tokens: NULL if no event may name it. */
void prefix_events_added(struct prefix_index *ix, uint32_t node, const uint32_t *tokens);
/* A hit may end at the node from now on. */
void prefix_events_usable(struct prefix_index *ix, uint32_t node);
/* No hit ends at the node any more. leaves: it is about to go, and has no children. */
void prefix_events_shortened(struct prefix_index *ix, uint32_t node, bool leaves);
/* Asserts the invariants of a node that was announced. */
void prefix_events_check(const struct prefix_index *ix, uint32_t node);

/* True when the recurrent state after this node is kept, or the model has none. */
static inline bool prefix_state_has_state(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].depth > 0);
    return !ix->states || ix->nodes[node].snapshot != NONE;
}

/* True when a prefix may end at this node. */
bool prefix_state_is_end(const struct prefix_index *ix, uint32_t node);

/* Tells that leases of the node end, before its entries go. */
static inline void prefix_state_leaves(struct prefix_index *ix, uint32_t node)
{
    if (!ix->nodes[node].ends)
        return;
    ASSERT(ix->nodes[node].depth > 0);
    ix->nodes[node].ends = 0;
    if (ix->opts.leaving)
        ix->opts.leaving(ix->opts.leaving_arg, node);
}

/* Bytes of all entries with a lease, and with a wish. */
static inline uint64_t prefix_state_leased_bytes(const struct prefix_index *ix)
{
    uint64_t bytes = ix->numbers.leased * (uint64_t)ix->opts.state_bytes;
    ASSERT(ix->numbers.leased <= ix->numbers.snapshots);
    for (uint32_t g = 0; g < ix->group_count; g++) {
        struct page_pool_numbers n;
        page_pool_numbers(ix->groups[g].is.pages, &n);
        bytes += n.leased * (uint64_t)ix->groups[g].is.page_bytes;
    }
    return bytes;
}
static inline uint64_t prefix_state_wished_bytes(const struct prefix_index *ix)
{
    uint64_t bytes = ix->numbers.wished * (uint64_t)ix->opts.state_bytes;
    ASSERT(ix->numbers.wished <= ix->numbers.snapshots);
    for (uint32_t g = 0; g < ix->group_count; g++) {
        struct page_pool_numbers n;
        page_pool_numbers(ix->groups[g].is.pages, &n);
        bytes += n.wished * (uint64_t)ix->groups[g].is.page_bytes;
    }
    return bytes;
}

/* True when the node, an unreferenced leaf, ends no prefix. */
bool prefix_state_is_useless(const struct prefix_index *ix, uint32_t node);

#endif
