/* write_behind.h - hands pages and snapshots of prefixes to the SSD tier, which keeps them after eviction
 * from memory.
 *
 * Each once: while the engine is idle, from WRITE_BEHIND_NS after the last request on, or when it is
 * evicted, or when the engine ends. Handing in is a copy, with a look at the inbox after each 1 MiB; a
 * request aborts the present copy. Entries without room in the tier wait while the engine is idle, and are
 * dropped when evicted. Part of the engine, on its thread. */
#ifndef PLATEAU_ENGINE_WRITE_BEHIND_H
#define PLATEAU_ENGINE_WRITE_BEHIND_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct prefix_key;

#define WRITE_BEHIND_NS 100000000ull

struct write_behind {
    uint32_t cursor;   /* of prefix_index_unstored() */
    uint64_t since_ns; /* the last end that this is about */
    uint64_t retry_ns; /* when the tier may have room again */
    bool given_up;     /* until another request ends */
};

/* For prefix_index_opts.evicting; arg is the engine. */
void write_behind_evicting(void *arg, const struct prefix_key *key, uint32_t page, uint32_t state);
/* How long the idle engine may sleep until there is something to hand in; 0: now; UINT64_MAX: there is
 * nothing. */
uint64_t write_behind_wait_ns(struct engine *en, uint64_t now_ns);
/* One after the other, until a message comes, the tier is full, or nothing is left. */
void write_behind_run(struct engine *en);
/* The engine ends: what the tier has room for. */
void write_behind_end(struct engine *en);

#endif
