/* prefix_index.h - the prefixes of earlier requests that are still in the pools.
 *
 * A prefix is a chain of nodes of PAGE_TOKENS tokens each. A node has a page of the first group, at most one
 * page of each group with a window, and perhaps a snapshot: the recurrent state after its last token, never
 * written again. Pages are shared by reference, never copied. A user of a node references its first page and
 * the first pages of all nodes before it. It references other pages of a node only together with the first.
 * Pages stay in their pools: without a reference they are cached there. When a pool reuses a page of the
 * first group, the index removes the node with all its pages and its descendants. A page of another group
 * goes alone.
 *
 * A prefix is usable when all its nodes exist, each window at its end has its pages, and, with recurrent
 * layers, it ends at a snapshot: one rule for both. Unreferenced nodes after the last usable end of a chain
 * are removed at once. A snapshot is the only state that the index owns. It is evicted by price: the pages it
 * saves, aged by the evictions since its last use (GreedyDual, Young 1994).
 *
 * Keys include the tenant, so a chain is one tenant's, and its entries count for the share of the tenant that
 * added its first node. Evictions take from shares in the order that share_list.h says, by the pages in the
 * pool, or by snapshots.
 *
 * A tier below gets each page of the first group and each snapshot. Of a window it gets only the pages that
 * likely ends of prefixes need: snapshots with recurrent layers, else prefix_index_ends_here() and a node in
 * every eight windows.
 *
 * Bound: for each page of the first group 68 bytes, 4 for each group, and a table entry of 4 to 8; for each
 * page of any group 4; for each state 32; for each share 8; and prefix_losses.h. All in the arena of the
 * caller (the engine's, charged to its account). Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_INDEX_H
#define PLATEAU_CACHE_PREFIX_INDEX_H

#include "cache/page_group.h"
#include "cache/prefix_key.h"
#include "cache/prefix_losses.h"
#include "cache/tier_io.h"

#include <stdbool.h>

struct arena;
struct prefix_index;
struct walk;

struct prefix_index_opts {
    /* The first without a window, the others each with one. Their pools share `uses`. */
    struct page_group groups[PAGE_GROUPS_MAX];
    uint32_t group_count;
    struct block_pool *states; /* NULL: no recurrent layers, no snapshots */
    size_t state_bytes;        /* bytes of one state */
    uint64_t bytes_max;        /* limit of unreferenced pages and unpinned snapshots together */
    /* An entry that the tier below wants is evicted: its bytes stay valid until this returns. Not called for
     * cleared or useless entries. NULL: no call. */
    void (*evicting)(void *arg, const struct tier_offer *offer, uint32_t block);
    void *arg;
    /* A node goes at which leases may end (prefix_index_mark_end()); its pages and its chain are still there.
     * NULL: no call. */
    void (*leaving)(void *arg, uint32_t node);
    void *leaving_arg;
    /* Other indexes cache within the same budget. Called when the index wants to hold more than it was last
     * allowed: returns how many of `bytes` it may hold. NULL: bytes_max. */
    uint64_t (*allow)(void *arg, uint64_t bytes);
    void *allow_arg;
    bool shown; /* for prefix_index_shown() */
};

/* Bytes of arena that prefix_index_create takes at most, for pools of these sizes; states_max 0 without
 * recurrent layers; shown: as in the options. */
size_t prefix_index_arena_bytes(const uint32_t *pages_max, uint32_t group_count, uint32_t states_max,
                                bool shown);
/* Each pool's `evict` must call prefix_index_evict_page(). 0, -EINVAL (groups in another order), -ENOMEM. */
int prefix_index_create(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index **ret);
/* Before the pools are freed; no page of a node may be referenced. NULL is fine. */
void prefix_index_done(struct prefix_index *ix);
/* The group's pool is about to reuse this cached page. */
void prefix_index_evict_page(struct prefix_index *ix, uint32_t group, uint32_t page);

struct prefix_hit {
    uint32_t node;  /* the last one; NONE: no hit */
    uint32_t pages; /* pages of the chain, this node included */
    uint32_t state; /* its snapshot; NONE: model without recurrent layers */
};
/* The longest usable prefix of the chain keys[count]. Takes no reference; valid until the next call that
 * changes the index or its pools. */
void prefix_index_find(const struct prefix_index *ix, const struct prefix_key *keys, uint32_t count,
                       struct prefix_hit *ret);
/* Whether the key has a node, for any thread, of an index with `shown` (prefix_shown.h). *ends: a prefix may
 * end there, as far as its windows have pages. */
bool prefix_index_shown(const struct prefix_index *ix, const struct prefix_key *key, bool *ends);
/* The node with this key; NONE: no such node. */
uint32_t prefix_index_node(const struct prefix_index *ix, const struct prefix_key *key);
/* Its page of the group; NONE: it has none, which is never so of the first group. */
uint32_t prefix_index_page(const struct prefix_index *ix, uint32_t node, uint32_t group);
/* References the hit's pages, of window groups only those in the window, into tables[group][0 .. hit->pages),
 * NONE elsewhere. Pins its snapshot until prefix_index_unpin(). */
void prefix_index_take(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t *const *tables);
/* Keeps the node's snapshot until the same number of unpins; its first page is referenced all that time. */
void prefix_index_pin(struct prefix_index *ix, uint32_t node);
void prefix_index_unpin(struct prefix_index *ix, uint32_t node);
/* Pages of the group that taking a hit at `node` would reference, and that are referenced already. */
uint32_t prefix_index_referenced(const struct prefix_index *ix, uint32_t node, uint32_t group);
/* The node with this page of the first group; NONE: no such node. */
uint32_t prefix_index_node_of(const struct prefix_index *ix, uint32_t page);

/* Adds the tenant's computed pages after `parent` (NONE: the first ones). The caller references them and
 * the first pages of all nodes before. pages[group]: NONE where the window has passed. Returns the node. If
 * the node has pages with the same bits already, the caller's are released, and pages[] gets references to
 * the node's. Missing pages of the node are filled in. tokens[PAGE_TOKENS]: the page's, for events
 * (prefix_events.h); NULL: no event names the page. */
uint32_t prefix_index_add(struct prefix_index *ix, uint64_t tenant, uint32_t parent,
                          const struct prefix_key *key, const uint32_t *tokens, uint32_t *pages);
/* Later prompts are likely to continue after this node: the tier below gets the pages of its windows. With
 * recurrent layers this changes nothing: there the nodes with snapshots are such ends. */
void prefix_index_ends_here(struct prefix_index *ix, uint32_t node);
/* Gives the index a snapshot for the node, whose first page is referenced. False: the node has one already,
 * and the caller keeps the state. */
bool prefix_index_snapshot(struct prefix_index *ix, uint32_t node, uint32_t state);
/* A sequence that got or added this node (NONE: no node, or it continues) has released references. Removes
 * useless nodes at once, from the tail; then calls prefix_index_evict() until bytes_max holds. */
void prefix_index_released(struct prefix_index *ix, uint32_t node);

/* Sets the time, the cause and the beneficiary of evictions from now on. Those of prefix_index_released()
 * have the cause PREFIX_LOSS_LIMIT, and those of prefix_index_clear() PREFIX_LOSS_CLEARED. */
void prefix_index_clock(struct prefix_index *ix, uint64_t now_ns);
void prefix_index_blame(struct prefix_index *ix, enum prefix_loss_cause cause, uint64_t whom);
/* Why the pages of keys[count], which were not found, were evicted; PREFIX_LOSS_NONE: no record. */
struct prefix_loss prefix_index_loss(const struct prefix_index *ix, const struct prefix_key *keys,
                                     uint32_t count);

/* The new allowance; the index must not hold more. */
void prefix_index_allow(struct prefix_index *ix, uint64_t bytes);

/* Evicts the least recently used of the pages that the pools would evict, so pages that a window has passed
 * go before the chain's end; without a page, a snapshot. False: nothing to evict. */
bool prefix_index_evict(struct prefix_index *ix);
/* Evicts the cheapest unpinned snapshot: of nodes with stale pages, else of the share with the most
 * snapshots. False: there is no such snapshot. */
bool prefix_index_evict_snapshot(struct prefix_index *ix);
/* Drops every node and every page without a reference. Returns how many nodes. */
uint32_t prefix_index_clear(struct prefix_index *ix);

/* The group's cached page `from` moves to `to`, which belongs to no node. */
void prefix_index_move(struct prefix_index *ix, uint32_t group, uint32_t from, uint32_t to);
/* True for a snapshot that no sequence reads. */
bool prefix_index_is_movable_snapshot(const struct prefix_index *ix, uint32_t state);
/* Such a state moves to `to`. */
void prefix_index_move_snapshot(struct prefix_index *ix, uint32_t from, uint32_t to);

/* A node with entries that the tier below wants and has not got yet. */
struct prefix_unstored {
    struct prefix_key key;
    uint32_t node, share;
    uint32_t blocks[TIER_KINDS]; /* by kind; NONE: not this one */
};
/* The next such node from number *at on, among `looks` nodes at most; advances *at, wrapping around. False:
 * none among them. */
bool prefix_index_unstored(const struct prefix_index *ix, uint32_t *at, uint32_t looks,
                           struct prefix_unstored *ret);
/* The tier has stored the node's entry of this kind, or refused it for good. */
void prefix_index_stored(struct prefix_index *ix, uint32_t node, enum tier_kind kind);
/* Marks everything as not stored: the tier may have lost data. */
void prefix_index_offer_again(struct prefix_index *ix);

struct prefix_numbers {
    uint32_t nodes, snapshots, pinned;   /* pinned: of the snapshots */
    uint32_t unstored;                   /* pages and snapshots that the tier below wants */
    uint64_t bytes, bytes_max;           /* unreferenced pages and unpinned snapshots, and their limit */
    uint64_t leased_bytes, wished_bytes; /* pages and snapshots with a lease; with a wish */
    uint32_t leased, wished;             /* snapshots with a lease; with a wish */
    uint64_t nodes_evicted, pages_evicted,
        snapshots_evicted; /* since creation; pages: of windows, without their node */
};
void prefix_index_numbers(const struct prefix_index *ix, struct prefix_numbers *ret);

/* Asserts every invariant. */
void prefix_index_check(const struct prefix_index *ix);
/* As `prefix_index_check()`, but until `w` stops it: about three checks per page. False: stopped early. */
bool prefix_index_walk(const struct prefix_index *ix, struct walk *w);

#endif
