/* tier_pair.h - two tiers as one: the SSD tier above, the shared tier below.
 *
 * An entry is read from the upper tier if that has it. What memory evicts, and what an engine leaves at its
 * end, goes to both; entries of an idle engine and of leases go to the upper tier alone, and common heads of
 * prompts to the lower one alone. Leases are the upper tier's, so the pair has none. One write is open at a
 * time. Engine thread only. */
#ifndef PLATEAU_CACHE_TIER_PAIR_H
#define PLATEAU_CACHE_TIER_PAIR_H

#include "cache/tier_io.h"

#include <stddef.h>

struct tier_pair {
    const struct tier_io *upper, *lower; /* borrowed; arg NULL: no upper tier */
    size_t bytes[TIER_KINDS];            /* bytes of an entry */
    /* The open write, if both tiers take it. */
    bool both;
    enum tier_kind kind;
    struct tier_write second;
};

/* upper, lower and bytes are set. The interface is good as long as the pair is. */
void tier_pair_init(struct tier_pair *p, struct tier_io *ret);

#endif
