/* cache_share.h - divides one budget of cached bytes among many caches, and decides which of them evicts.
 *
 * Each share has an allowance and never caches more. The sum of all allowances never exceeds the budget. A
 * share that needs more gets unallotted bytes, and others are asked to evict: first the one with the stalest
 * oldest entry, however its bytes are laid out. Until that share has evicted, the needy share stays within
 * its allowance. If no other share has a staler entry than its own, it evicts its own. A small part of the
 * budget stays free while there are several shares, for growth that a share could not announce. Pure: plain
 * numbers, time is one of them. */
#ifndef PLATEAU_RECLAIM_CACHE_SHARE_H
#define PLATEAU_RECLAIM_CACHE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct cache_share {
    /* Set by the share's owner: current figures. */
    uint64_t cached;          /* bytes that no sequence uses; <= allowed */
    uint64_t wanted;          /* `cached` after all sequences that use cached entries have ended; >= cached */
    uint64_t oldest_ns;       /* last use of the entry that it would evict next; 0: no entry */
    uint64_t cost_ns_per_mib; /* time to compute a MiB of it again; 0: unknown */
    /* Set by cache_share_update(). */
    uint64_t allowed;
    uint64_t asked; /* bytes that it must evict and give up from its allowance */
};

/* True when the oldest entry of `a` is staler than that of `b`: unused time divided by the cost of computing
 * it again. */
bool cache_share_is_staler(const struct cache_share *a, const struct cache_share *b, uint64_t now_ns);
/* An entry of `s` last used before the returned time is staler than the oldest of `other`. */
uint64_t cache_share_older_than(const struct cache_share *s, const struct cache_share *other,
                                uint64_t now_ns);

/* shares[i] has new figures: returns its unused allowance to the budget, grants its new demand from
 * unallotted bytes, and asks the stalest shares to evict the rest. Sets allowed and asked. */
void cache_share_update(struct cache_share *const *shares, uint32_t count, uint32_t i, uint64_t budget,
                        uint64_t now_ns);

#endif
