/* pinned_tier.h - the tier between a device's pools and the SSD tier: pages and snapshots in the machine's
 * memory.
 *
 * It gets what the pools evict, and gives it back as fast as the device copies. Its memory is in chunks of
 * up to 64 MiB, pinned as a whole. A chunk has entries of one kind; it is committed in pieces beside steps,
 * and goes back as a whole. Entries of a kind go in the order that share_list.h says, by their number; after
 * PAGE_STALE_MS an entry is stale. A kind that lacks room takes a chunk of another kind, if share_list.h
 * evicts each entry of it before the kind's own next one, and before the new one. Such a comparison counts
 * the bytes of a share in all kinds. An evicted entry is offered to the tier below.
 * Entries that are offered while the engine is idle, or at its end, pass through to the tier below.
 *
 * Bound: 72 bytes an entry, 40 a chunk and 40 KiB, in the arena of the caller. The caller sets the time.
 * Engine thread only. */
#ifndef PLATEAU_CACHE_PINNED_TIER_H
#define PLATEAU_CACHE_PINNED_TIER_H

#include "base/arena.h"
#include "cache/tier_io.h"
#include "memory/ledger.h"

struct pinned_tier;

#define PINNED_CHUNK_BYTES ((size_t)64 << 20)

struct pinned_tier_opts {
    struct account *account;     /* in the machine's memory; chunks are charged to it */
    uint64_t bytes_max;          /* all chunks together */
    size_t chunk_bytes;          /* for tests: whole units; 0: PINNED_CHUNK_BYTES */
    size_t bytes[TIER_KINDS];    /* an entry's; 0: the model has none of this kind */
    const struct tier_io *below; /* the SSD tier; arg NULL: no such tier. Borrowed */
    /* Returns how many of `bytes` it may have. NULL: all. */
    uint64_t (*allow)(void *arg, uint64_t bytes);
    /* Memory that a device copies to and from, until unpin. NULL: it makes no difference. */
    void (*pin)(void *arg, void *at, size_t bytes);
    void (*unpin)(void *arg, void *at);
    void (*wake)(void *arg); /* an arrival is there */
    void *arg;
};

/* True if an entry of each kind fits. */
bool pinned_tier_is_possible(const struct pinned_tier_opts *opts);
/* Bytes of arena that pinned_tier_create takes at most; 0 if it is not possible. */
size_t pinned_tier_arena_bytes(const struct pinned_tier_opts *opts);
/* Reserves addresses; nothing is committed. `io`: the interface, good until pinned_tier_done(). 0 or
 * -ENOMEM. */
int pinned_tier_create(struct arena *a, const struct pinned_tier_opts *opts, struct pinned_tier **ret,
                       struct tier_io *io);
/* Offers to the tier below what it lacks. No read is under way. NULL is fine. */
void pinned_tier_end(struct pinned_tier *t);
/* Gives all memory back. Before the arena goes. NULL is fine. */
void pinned_tier_done(struct pinned_tier *t);

/* Sets the time for all later calls. */
void pinned_tier_clock(struct pinned_tier *t, uint64_t now_ns);
/* Commits a piece of the next chunk, if entries lack room and account and allowance have some: as much as
 * entries that found no room would have taken, and a chunk before the last slots are taken. A piece takes
 * less than a millisecond, the pinning after the last one some. False: there is nothing to do. */
bool pinned_tier_grow(struct pinned_tier *t);
/* Gives back chunks used last before then, until `bytes` have gone: first those whose entries share_list.h
 * evicts first. Returns the bytes; adds the number of dropped entries to *entries. */
uint64_t pinned_tier_give(struct pinned_tier *t, uint64_t bytes, uint64_t before_ns, uint32_t *entries);
/* Drops everything that is not being read, without offering it to the tier below. As pinned_tier_give(). */
uint64_t pinned_tier_clear(struct pinned_tier *t, uint32_t *entries);

struct pinned_numbers {
    uint64_t bytes, bytes_max;         /* committed in chunks */
    uint32_t pages, snapshots;         /* pages: of all groups */
    uint64_t oldest_ns;                /* last use of the stalest chunk; 0: no chunk */
    uint64_t written, read, evictions; /* entries, since creation */
};
void pinned_tier_numbers(const struct pinned_tier *t, struct pinned_numbers *ret);

/* Asserts every invariant. */
void pinned_tier_check(const struct pinned_tier *t);

#endif
