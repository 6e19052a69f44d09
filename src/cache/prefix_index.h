/* prefix_index.h - which prefixes of earlier requests still lie in the pools.
 *
 * A prefix is a chain of nodes, each PAGE_TOKENS tokens: a page of the first group, one of each group
 * with a window or none, and perhaps a snapshot, the recurrent state behind its last token: a state that
 * is never written again. Pages are shared by reference, never copied: who references a node's first page
 * references those of all nodes before it, and nobody references its others without that. Pages are kept
 * in their pools: when nobody references one any more it is cached there. When a pool takes a page of the
 * first group for something else, the node goes with all its pages, and those behind it; a page of
 * another group goes alone.
 *
 * A prefix is of use when all its nodes are there, each window at its end has its pages, and, with
 * recurrent layers, it ends at a snapshot: one rule for both. What lies beyond the last such end of its
 * chain, and is nobody's, goes at once. A snapshot is the only state the index owns; it is evicted by
 * price: the pages it saves, aged by what has been evicted since it was last used (GreedyDual, Young
 * 1994). Bound: for each page of the first group 68 bytes, 4 for each group, and a table entry of 4 to 8;
 * for each page of any group 4; for each state 24. All in the arena it is given (the engine's, charged to
 * its account). Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_INDEX_H
#define PLATEAU_CACHE_PREFIX_INDEX_H

#include "base/none.h"
#include "cache/page_group.h"
#include "cache/prefix_key.h"
#include "cache/state_pool.h"

struct prefix_index;

struct prefix_index_opts {
    /* The first without a window, the others each with one. Their pools share `uses`. */
    struct page_group groups[PAGE_GROUPS_MAX];
    uint32_t group_count;
    struct state_pool *states; /* NULL: no recurrent layers, no snapshots */
    size_t state_bytes;        /* theirs */
    uint64_t bytes_max; /* of pages that nobody references and snapshots that nobody has pinned, together */
    /* A page of the first group is evicted, and a snapshot (NONE: neither or only one of them): their bytes
     * are still there until this returns. Not told of what is cleared or of no use to anybody. NULL: nobody
     * wants to know. */
    void (*evicting)(void *arg, const struct prefix_key *key, uint32_t page, uint32_t state);
    void *arg;
    /* Others cache within the same budget: how many bytes may be held here if so many are wanted, asked when
     * they are more than was allowed last. NULL: bytes_max. */
    uint64_t (*allow)(void *arg, uint64_t bytes);
    void *allow_arg;
};

/* Bytes of arena that prefix_index_create takes at most, for pools of these sizes; states_max 0 without
 * recurrent layers. */
size_t prefix_index_arena_bytes(const uint32_t *pages_max, uint32_t group_count, uint32_t states_max);
/* Each pool's `evict` must call prefix_index_evict_page(). 0, -EINVAL (the groups are not as said),
 * -ENOMEM. */
int prefix_index_create(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index **ret);
/* Before the pools go; no page of a node is referenced then. NULL is fine. */
void prefix_index_done(struct prefix_index *ix);
/* The group's pool takes this cached page for something else. */
void prefix_index_evict_page(struct prefix_index *ix, uint32_t group, uint32_t page);

struct prefix_hit {
    uint32_t node;  /* the last one; NONE: no hit */
    uint32_t pages; /* of the chain up to and with it */
    uint32_t state; /* its snapshot; NONE: the model has none */
};
/* The longest usable prefix of the chain keys[count]. Takes nothing; valid until the next call that changes
 * the index or its pools. */
void prefix_index_find(const struct prefix_index *ix, const struct prefix_key *keys, uint32_t count,
                       struct prefix_hit *ret);
/* The node with this key; NONE: there is none. */
uint32_t prefix_index_node(const struct prefix_index *ix, const struct prefix_key *key);
/* Its page of the first group. */
uint32_t prefix_index_page(const struct prefix_index *ix, uint32_t node);
/* References the hit's pages, those of its windows only, into tables[group][0 .. hit->pages), NONE where
 * there is none; and pins its snapshot until prefix_index_unpin(). */
void prefix_index_take(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t *const *tables);
/* The node's snapshot stays until as many unpins; its first page is referenced that long. */
void prefix_index_pin(struct prefix_index *ix, uint32_t node);
void prefix_index_unpin(struct prefix_index *ix, uint32_t node);
/* Pages of the group that taking a hit at `node` would reference, and that are referenced already. */
uint32_t prefix_index_referenced(const struct prefix_index *ix, uint32_t node, uint32_t group);
/* The node that has this page of the first group; NONE: none. */
uint32_t prefix_index_node_of(const struct prefix_index *ix, uint32_t page);

/* The pages behind `parent` (NONE: the first ones) are computed; the caller references them and all first
 * pages before. pages[group]: NONE where a window has left it behind. Returns the node. Where it has pages
 * with the same bits already, the caller's own are given up for references to those, and pages[] names them;
 * what it lacks it gets. */
uint32_t prefix_index_add(struct prefix_index *ix, uint32_t parent, const struct prefix_key *key,
                          uint32_t *pages);
/* The node's first page is referenced. False: it has a snapshot already, and the state stays the caller's;
 * else it is the index's. */
bool prefix_index_snapshot(struct prefix_index *ix, uint32_t node, uint32_t state);
/* A row that got or added this node (NONE: none, or it goes on) has given up references: what nobody can use
 * goes at once, from the tail; then prefix_index_evict(), until bytes_max holds. */
void prefix_index_released(struct prefix_index *ix, uint32_t node);

/* From now on no more is allowed; what is held may not be more. */
void prefix_index_allow(struct prefix_index *ix, uint64_t bytes);

/* Drops the least recently used page of all groups (so what a window left behind on the way goes before the
 * chain's end), else a snapshot. False: there is nothing. */
bool prefix_index_evict(struct prefix_index *ix);
/* Gives the cheapest snapshot that nobody has pinned back to its pool. False: there is none. */
bool prefix_index_evict_snapshot(struct prefix_index *ix);
/* Drops every node and every page that nobody references. Returns how many nodes. */
uint32_t prefix_index_clear(struct prefix_index *ix);

/* The group's cached page `from` lies in `to` from now on, a page that is nobody's else. */
void prefix_index_move(struct prefix_index *ix, uint32_t group, uint32_t from, uint32_t to);
/* Is the state a snapshot that no row reads? */
bool prefix_index_is_movable_snapshot(const struct prefix_index *ix, uint32_t state);
/* Such a state lies in `to` from now on. */
void prefix_index_move_snapshot(struct prefix_index *ix, uint32_t from, uint32_t to);

/* What a tier below has not been handed yet: a node's page of the first group, its snapshot, or both. */
struct prefix_unstored {
    struct prefix_key key;
    uint32_t node, page, state; /* NONE: this one is there */
};
/* The next of them from node number *at on, among `looks` nodes at most; *at moves on, and from the last to
 * the first. False: none of these. */
bool prefix_index_unstored(const struct prefix_index *ix, uint32_t *at, uint32_t looks,
                           struct prefix_unstored *ret);
/* The tier has them, or will never. */
void prefix_index_page_stored(struct prefix_index *ix, uint32_t node);
void prefix_index_snapshot_stored(struct prefix_index *ix, uint32_t node);
/* All counts as not handed over: the tier may have lost some. */
void prefix_index_offer_again(struct prefix_index *ix);

struct prefix_numbers {
    uint32_t nodes, snapshots, pinned; /* pinned: of the snapshots */
    uint32_t unstored;                 /* pages and snapshots */
    uint64_t bytes, bytes_max;         /* of unreferenced pages and unpinned snapshots */
    uint64_t nodes_evicted, pages_evicted,
        snapshots_evicted; /* since creation; pages: of windows, without their node */
};
void prefix_index_numbers(const struct prefix_index *ix, struct prefix_numbers *ret);

/* Asserts every invariant. */
void prefix_index_check(const struct prefix_index *ix);
/* The same, as far as `w` goes on: about three things for each page. False: it was called off. */
bool prefix_index_walk(const struct prefix_index *ix, struct walk *w);

#endif
