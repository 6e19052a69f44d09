/* prefix_shown.h - keys of a prefix index that other threads may ask for: they choose an engine by them.
 *
 * A table of 62 bits of each key, with one writer, the engine's thread, and any number of readers without a
 * lock. A reader may miss a key that the writer moves at that moment. So an answer may decide where a request
 * is computed, and never what. Bound: 16 to 32 bytes for each node. */
#ifndef PLATEAU_CACHE_PREFIX_SHOWN_H
#define PLATEAU_CACHE_PREFIX_SHOWN_H

#include "cache/prefix_key.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct prefix_shown {
    _Atomic uint64_t *slots; /* [mask + 1]; 0: free. NULL: nothing is shown */
    uint32_t mask;
};

/* Bytes of arena that prefix_shown_create() takes at most. */
size_t prefix_shown_bytes(uint32_t nodes_max);
/* Room for that many keys. 0 or -ENOMEM. */
int prefix_shown_create(struct arena *a, uint32_t nodes_max, struct prefix_shown *ret);

/* Engine thread only; without a table they do nothing. A key that is added or ended is there once more, or
 * once less. */
void prefix_shown_add(struct prefix_shown *s, const struct prefix_key *key);
void prefix_shown_remove(struct prefix_shown *s, const struct prefix_key *key);
/* Whether the key's node has a snapshot, at first not. The key is there. */
void prefix_shown_snapshot(struct prefix_shown *s, const struct prefix_key *key, bool has);

/* Any thread. False: there is no such key. */
bool prefix_shown_find(const struct prefix_shown *s, const struct prefix_key *key, bool *snapshot);

#endif
