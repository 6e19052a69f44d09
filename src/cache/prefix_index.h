/* prefix_index.h - which prefixes of earlier requests still lie in the pools.
 *
 * A prefix is a chain of nodes: each is one page of tokens, named by the page that holds their K and V, and may have a
 * snapshot, the recurrent state behind its last token: a slot that is never written again. Pages are shared by reference,
 * never copied: who references a node's page references those of all nodes before it. A node's page is kept in its
 * pool: when nobody references it any more it is cached there, and when the pool takes it for something else the
 * node goes, with those behind it.
 *
 * With recurrent layers only a prefix that ends at a snapshot is of use. A snapshot is the only slot the index owns; it is
 * evicted by price: the pages it saves, aged by what has been evicted since it was last used (GreedyDual, Young 1994).
 * Bound: for each page of the pool 64 bytes and a table entry of 4 to 8, for each slot 24, all in the arena it is given (the
 * engine's, charged to its account). Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_INDEX_H
#define PLATEAU_CACHE_PREFIX_INDEX_H

#include "cache/page_pool.h"
#include "cache/prefix_key.h"
#include "cache/slot_pool.h"

#define PREFIX_NONE UINT32_MAX /* no node: the chain's beginning; no slot */

struct prefix_index;

struct prefix_index_opts {
    struct page_pool *pages;
    struct slot_pool *slots;       /* NULL: no recurrent layers, no snapshots */
    size_t page_bytes, slot_bytes; /* theirs */
    uint64_t bytes_max;            /* of pages that nobody references and of snapshots, together */
};

/* Bytes of arena that prefix_index_create takes at most, for pools of these sizes; slots_max 0 without recurrent layers. */
size_t prefix_index_arena_bytes(uint32_t pages_max, uint32_t slots_max);
/* The pool's `evict` must call prefix_index_evict_page(). 0 or -ENOMEM. */
int prefix_index_create(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index **ret);
/* Before the pools go; no page of a node is referenced then. NULL is fine. */
void prefix_index_done(struct prefix_index *ix);
/* The pool takes this cached page for something else. */
void prefix_index_evict_page(struct prefix_index *ix, uint32_t page);

struct prefix_hit {
    uint32_t node;  /* the last one; PREFIX_NONE: no hit */
    uint32_t pages; /* of the chain up to and with it */
    uint32_t slot;  /* its snapshot; PREFIX_NONE: the model has none */
};
/* The longest usable prefix of the chain keys[count]. Takes nothing; valid until the next call that changes the index or its
 * pools. */
void prefix_index_find(const struct prefix_index *ix, const struct prefix_key *keys, uint32_t count,
                       struct prefix_hit *ret);
/* References the hit's pages into table[hit->pages], and pins its snapshot until prefix_index_unpin(). */
void prefix_index_take(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t *table);
/* The node's snapshot stays until as many unpins; its page is referenced that long. */
void prefix_index_pin(struct prefix_index *ix, uint32_t node);
void prefix_index_unpin(struct prefix_index *ix, uint32_t node);
/* Pages of the chain up to and with `node` that are referenced. */
uint32_t prefix_index_referenced(const struct prefix_index *ix, uint32_t node);

/* The page behind `parent` (PREFIX_NONE: the first) is computed; the caller references it and all pages before it. Returns the
 * node, which is the page that the caller has from now on: another one when somebody's page has the same bits already, and
 * then the caller's own is given up for a reference to that. */
uint32_t prefix_index_add(struct prefix_index *ix, uint32_t parent, const struct prefix_key *key,
                          uint32_t page);
/* The node's page is referenced. False: it has a snapshot already, and the slot stays the caller's; else it is the index's. */
bool prefix_index_snapshot(struct prefix_index *ix, uint32_t node, uint32_t slot);
/* A row that got or added this node (PREFIX_NONE: it had none) has given up its references: what nobody can use goes at once, from
 * the tail; then the least recently used, until bytes_max holds. */
void prefix_index_released(struct prefix_index *ix, uint32_t node);

/* Gives the cheapest snapshot that nobody has pinned back to its pool. False: there is none. */
bool prefix_index_evict_snapshot(struct prefix_index *ix);
/* Drops every node whose page nobody references. Returns how many. */
uint32_t prefix_index_clear(struct prefix_index *ix);

/* The cached page `from` lies in `to` from now on, a page that is nobody's else. */
void prefix_index_move(struct prefix_index *ix, uint32_t from, uint32_t to);
/* Is the slot a snapshot that no row reads? */
bool prefix_index_is_movable_snapshot(const struct prefix_index *ix, uint32_t slot);
/* Such a slot lies in `to` from now on. */
void prefix_index_move_snapshot(struct prefix_index *ix, uint32_t from, uint32_t to);

struct prefix_numbers {
    uint32_t nodes, snapshots;
    uint64_t bytes, bytes_max;                 /* of unreferenced pages and snapshots */
    uint64_t nodes_evicted, snapshots_evicted; /* since creation */
};
void prefix_index_numbers(const struct prefix_index *ix, struct prefix_numbers *ret);

/* Asserts every invariant. */
void prefix_index_check(const struct prefix_index *ix);

#endif
