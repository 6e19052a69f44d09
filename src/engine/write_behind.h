/* write_behind.h - hands pages and snapshots of prefixes to the SSD tier, which keeps them after eviction
 * from memory.
 *
 * Each once: while the engine is idle, from WRITE_BEHIND_NS after the last request on, or when it is
 * evicted, or when the engine ends. Handing in is a copy, with a look at the inbox after each 1 MiB; a
 * request aborts the present copy. Entries without room in the tier wait while the engine is idle, and are
 * dropped when evicted. Engine thread only. */
#ifndef PLATEAU_ENGINE_WRITE_BEHIND_H
#define PLATEAU_ENGINE_WRITE_BEHIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pools;
struct tier_offer;

#define WRITE_BEHIND_NS 100000000ull

struct write_behind_opts {
    struct pools *pools;
    const struct tier_io *tier; /* for evicted entries; arg NULL: there is none */
    const struct tier_io
        *kept; /* part of it that outlives the engine: for all entries; arg NULL: none does */
    const struct tier_io *left; /* tiers that outlive the engine, for what it leaves; arg NULL: none does */
    const atomic_int *failure;  /* not 0: the device has failed, and its bytes are not stored */
    /* A message has come for the engine. */
    bool (*is_wanted)(void *arg);
    /* Until when the engine's end waits for room in a tier; 0: not at all. */
    uint64_t (*ends_ns)(void *arg);
    /* A copy from the device failed with -EIO or -ENODEV. */
    void (*failed)(void *arg, int error);
    void *arg;
};

struct write_behind {
    struct write_behind_opts opts; /* constant */
    uint32_t cursor;               /* cursor of prefix_index_unstored() */
    uint64_t since_ns;             /* the last end that this is about */
    uint64_t retry_ns;             /* when the tier may have room again */
    bool given_up;                 /* until another request ends */
};

/* For prefix_index_opts.evicting; arg is the struct write_behind. */
void write_behind_evicting(void *arg, const struct tier_offer *offer, uint32_t block);
/* Hands in an entry of a lease. 0: it is stored, or never will be; -EAGAIN: no room. */
int write_behind_lease(struct write_behind *w, const struct tier_offer *offer, uint32_t block);
/* Hands in an entry that a second request has in its prompt's head, if there is room. */
void write_behind_common(struct write_behind *w, const struct tier_offer *offer, uint32_t block);
/* Nothing runs since ended_ns. How long the engine may sleep until there is something to hand in; 0: now;
 * UINT64_MAX: there is nothing. */
uint64_t write_behind_wait_ns(struct write_behind *w, uint64_t ended_ns, uint64_t now_ns);
/* One after the other, until a message comes, the tier is full, or nothing is left. */
void write_behind_run(struct write_behind *w);
/* The engine ends: hands in all entries. Waits for room until opts.ends_ns(), as long as the tier takes some;
 * then entries without room are dropped, and counted. */
void write_behind_end(struct write_behind *w);

#endif
