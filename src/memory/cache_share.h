/* cache_share.h - one budget of bytes for what is cached in many places: who may hold how much of it, and who
 * gives.
 *
 * Each share is allowed so many bytes and never caches more; all that is allowed is never more than the
 * budget, whatever happens. Who wants more gets what nobody is allowed, and the others are asked: the one
 * whose oldest entry is of least use first, however its bytes are laid out. Until that one has given, who
 * wants more makes do, and if nobody has anything of less use than its own it evicts that. So that those who
 * cannot tell beforehand need not, a little is kept free while there are several shares. Pure: plain numbers,
 * time is one of them. */
#ifndef PLATEAU_MEMORY_CACHE_SHARE_H
#define PLATEAU_MEMORY_CACHE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct cache_share {
    /* Its owner's, as of now. */
    uint64_t cached;          /* bytes that nobody uses; <= allowed */
    uint64_t wanted;          /* what they will be when all who use cached entries now are done; >= cached */
    uint64_t oldest_ns;       /* when the entry that it would evict next was last used; 0: it has none */
    uint64_t cost_ns_per_mib; /* what it takes to compute a MiB of it again; 0: not known */
    /* The budget's. */
    uint64_t allowed;
    uint64_t asked; /* it is to evict so many bytes, and to give up its right to them */
};

/* Is the oldest entry of `a` of less use than that of `b`: for how long nobody has used it, over what it
 * costs to have it again? */
bool cache_share_is_staler(const struct cache_share *a, const struct cache_share *b, uint64_t now_ns);
/* An entry of `s` last used before this is of less use than the oldest of `other`. */
uint64_t cache_share_older_than(const struct cache_share *s, const struct cache_share *other,
                                uint64_t now_ns);

/* shares[i] has new figures: what it does not want any more is free, what it wants besides it gets as far as
 * there is some, and whoever is to give is asked for the rest. Sets allowed and asked. */
void cache_share_settle(struct cache_share *const *shares, uint32_t count, uint32_t i, uint64_t budget,
                        uint64_t now_ns);

#endif
