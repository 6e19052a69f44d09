/* block_pool.h - equal blocks over commit units: the pool of recurrent states, and the base of the pages'.
 *
 * A block is taken by one owner or free; a taken one still has its old content. The pool reserves the address
 * range of all blocks once, and commits the units of a block before it hands the block out; a block may
 * straddle units. Units without a taken block stay committed until block_pool_trim() decommits them.
 * block_pool_compact() empties units by moving their blocks. Time is a number that the caller sets. Bound of
 * the tables: 2 bits a block, 12 bytes a unit. Engine thread only.
 *
 * A block of a model on several devices has a part on each: block i of every shard is taken at once. Each
 * shard has a range, units and an account of its own. A block's bytes are its parts' bytes, one after the
 * other. */
#ifndef PLATEAU_CACHE_BLOCK_POOL_H
#define PLATEAU_CACHE_BLOCK_POOL_H

#include "base/arena.h"
#include "base/walk.h"
#include "memory/dev.h"
#include "memory/units.h"

struct block_pool;

/* The parts of all blocks on one device. */
struct block_shard {
    size_t block_bytes;      /* a multiple of 64 */
    struct account *account; /* reserved from before a unit is committed; the parts are of its domain */
};

struct block_pool_opts {
    uint32_t blocks_max;                       /* how many may exist, ever */
    size_t block_bytes;                        /* bytes of a part of the first shard; a multiple of 64 */
    struct account *account;                   /* account of the first shard, see block_shard */
    struct block_shard beside[SHARDS_MAX - 1]; /* the other shards, up to the first without bytes */
    /* Account or system refused a unit: reclaims memory of other pools, so that this pool may try again.
     * `cached`: also cached entries, not only free memory. False: nothing was reclaimed. NULL: no other
     * pool. */
    bool (*reclaim)(void *arg, bool cached);
    /* Which taken blocks may move, and how: bytes and all references by index must have changed on return.
     * NULL: none moves. */
    bool (*is_movable)(void *arg, uint32_t block);
    void (*move)(void *arg, uint32_t from, uint32_t to);
    void *arg; /* for the functions above */
};

/* Bytes of arena that block_pool_create takes at most. */
size_t block_pool_arena_bytes(const struct block_pool_opts *opts);
/* Builds the pool's tables in `a`; the blocks are outside it. Nothing is committed yet.
 * 0, -EINVAL (an option is zero or no multiple), -ENOMEM (the arena or the address space is too small). */
int block_pool_create(struct arena *a, const struct block_pool_opts *opts, struct block_pool **ret);
/* Decommits every unit. Call it before the arena goes. NULL is fine. Returns the first shard's range if the
 * system refused to take it, owned by the caller: usually NULL. Such ranges of other shards stay mapped until
 * the process ends (units_abandon). */
struct units *block_pool_done(struct block_pool *p);

/* The lowest ready block, else the lowest free one, whose units it commits. 0, -ENOSPC (all are taken),
 * -ENOMEM (account or system refused, and `reclaim` has failed; nothing has changed). It never waits. */
int block_pool_take(struct block_pool *p, uint32_t *ret);
/* `blocks` more blocks will be taken soon: commits the units of those that are not ready, on the crew's
 * threads, until account or system refuses. Does nothing where too few units are missing. */
void block_pool_prepare(struct block_pool *p, uint32_t blocks, const struct units_crew *crew);
void block_pool_give(struct block_pool *p, uint32_t index);
bool block_pool_is_taken(const struct block_pool *p, uint32_t index);
/* No block from this index on is taken or in a committed unit. */
uint32_t block_pool_end(const struct block_pool *p);
/* Free blocks that need no commit. */
uint32_t block_pool_ready_count(const struct block_pool *p);

/* Sets the time for all later calls. */
void block_pool_clock(struct block_pool *p, uint64_t now_ns);
/* Decommits at most `units_max` units of each shard without a taken block since before_ns (UINT64_MAX: since
 * any time), highest first; returns their bytes. */
uint64_t block_pool_trim(struct block_pool *p, uint32_t units_max, uint64_t before_ns);
/* Bytes of committed units beyond what the taken blocks would need without gaps, in all shards. */
uint64_t block_pool_spare_bytes(const struct block_pool *p);

/* Moves one block out of the highest unit that can be emptied, to the lowest ready block below it. False: no
 * such unit. Repeated calls end, because blocks only move down. */
bool block_pool_compact(struct block_pool *p);

/* Copies a whole taken block. As domain_copy: in the order of the device's steps. */
void block_pool_copy(const struct block_pool *p, uint32_t from, uint32_t to);
/* Copies [offset, offset + bytes) of a taken block to host memory. 0 or -EIO. */
int block_pool_get(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes, void *host);
/* And from host memory into it. */
void block_pool_put(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes,
                    const void *host);

/* Bytes of a block in all shards together. */
uint64_t block_pool_whole_bytes(const struct block_pool *p);
/* The begin of the range of a shard, null after the last one; constant. */
dev_ptr block_pool_base(const struct block_pool *p, uint32_t shard);

/* Numbers of the first shard. */
struct pool_numbers {
    /* Block i lies at base + i * block_bytes in the domain of the account; constant. For the batch of a step:
     * other code copies bytes with the functions above. */
    dev_ptr base;
    uint32_t taken, peak, blocks_max; /* blocks; peak: the highest count of taken blocks */
    uint32_t units_committed;
    uint64_t active_bytes; /* bytes of taken blocks */
    uint64_t cached_bytes; /* committed and free */
    uint64_t spare_bytes;  /* committed beyond what the taken blocks would need without gaps */
    uint64_t limit_bytes;  /* all units */
    uint64_t recommitted;  /* units decommitted and committed again within a second, since creation */
    uint64_t refused;      /* commits that the system refused, and not the account, since creation */
};
void block_pool_numbers(const struct block_pool *p, struct pool_numbers *ret);

/* Asserts every invariant. */
void block_pool_check(const struct block_pool *p);
/* As `block_pool_check()`, but until `w` stops it: about two checks per block. False: stopped early. */
bool block_pool_walk(const struct block_pool *p, struct walk *w);

#endif
