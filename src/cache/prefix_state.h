/* prefix_state.h - the index's structures; for the files of the prefix index only. */
#ifndef PLATEAU_CACHE_PREFIX_STATE_H
#define PLATEAU_CACHE_PREFIX_STATE_H

#include "cache/prefix_index.h"

struct node {
    struct prefix_key key;
    uint32_t next_same;                 /* in its bucket; of a free node: the next free one */
    uint32_t parent, child, next, prev; /* child: the first one; next, prev: siblings */
    uint32_t snapshot, pins;
    uint32_t depth;                    /* nodes up to and including it; 0: free */
    bool page_stored, snapshot_stored; /* the tier below has it */
};

struct snapshot {
    uint32_t node;  /* NONE: not a snapshot */
    uint32_t saves; /* pages that it saves, beyond the snapshot before it */
    uint64_t price;
    uint32_t next, prev;
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
    /* Engine thread only. */
    struct group groups[PAGE_GROUPS_MAX];
    struct node *nodes;         /* [nodes_max] */
    uint32_t free, nodes_end;   /* no node from nodes_end on was ever used */
    uint32_t *buckets;          /* [bucket_mask + 1]: the first node */
    struct snapshot *snapshots; /* [states_max] */
    uint32_t newest;            /* snapshot */
    uint64_t allowed;           /* <= opts.bytes_max */
    uint64_t age;               /* the price of the last eviction */
    struct prefix_numbers numbers;
    bool evicts; /* removals are evictions and call opts.evicting */
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

/* True when the node, an unreferenced leaf, ends no prefix. */
bool prefix_state_is_useless(const struct prefix_index *ix, uint32_t node);

#endif
