/* prefix_lease.h - what leases (cache/leases.h) take of a prefix index. Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_LEASE_H
#define PLATEAU_CACHE_PREFIX_LEASE_H

#include "cache/tier_io.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix_index;

/* The deepest usable end at the node or before it; NONE: none. */
uint32_t prefix_index_usable(const struct prefix_index *ix, uint32_t node);
/* Pages up to the node and including it. */
uint32_t prefix_index_depth(const struct prefix_index *ix, uint32_t node);
/* The node's parent; NONE: it is a first one. */
uint32_t prefix_index_parent(const struct prefix_index *ix, uint32_t node);
/* The first page of each kind that a hit of this many pages needs; `pages`: it needs none. */
void prefix_index_firsts(const struct prefix_index *ix, uint32_t pages, uint32_t ret[TIER_KINDS]);
/* The node's page or snapshot; NONE: it has no such entry. */
uint32_t prefix_index_block(const struct prefix_index *ix, uint32_t node, enum tier_kind kind);
/* A lease takes the prefix that ends here, a usable end: it references the pages of a hit, and pins the
 * snapshot. */
void prefix_index_lease(struct prefix_index *ix, uint32_t node);
/* Gives that back, and calls prefix_index_released(). */
void prefix_index_unlease(struct prefix_index *ix, uint32_t node);
/* As `prefix_index_lease()` and `prefix_index_unlease()`, but for an agent's place (cache/agents.h). */
void prefix_index_hold(struct prefix_index *ix, uint32_t node);
void prefix_index_unhold(struct prefix_index *ix, uint32_t node);
/* The cache evicts the prefix that ends here after those without a wish. */
void prefix_index_wish(struct prefix_index *ix, uint32_t node);
/* Takes one wish back. */
void prefix_index_unwish(struct prefix_index *ix, uint32_t node);
/* Bytes of the prefix that ends here, and its bytes without a lease, and without a wish. */
struct prefix_bytes {
    uint64_t all, unleased, unwished;
    uint32_t unleased_pages, unleased_snapshots; /* pages: of the first group */
};
void prefix_index_bytes(const struct prefix_index *ix, uint32_t node, struct prefix_bytes *ret);
struct prefix_leased {
    uint32_t pages, snapshots; /* pages: of the first group */
};
void prefix_index_leased(const struct prefix_index *ix, struct prefix_leased *ret);
/* All leased bytes; leased bytes of a share; bytes with a wish. */
uint64_t prefix_index_leased_bytes(const struct prefix_index *ix);
uint64_t prefix_index_leased_of(const struct prefix_index *ix, uint32_t share);
uint64_t prefix_index_wished_bytes(const struct prefix_index *ix);
/* Leases end at the node, or none does any longer: see prefix_index_opts.leaving. */
void prefix_index_mark_end(struct prefix_index *ix, uint32_t node, bool ends);
bool prefix_index_is_marked(const struct prefix_index *ix, uint32_t node);

#endif
