/* share_list.h - the shares of tenants in a cache, and which share an eviction takes from.
 *
 * One rule for pages in pools, snapshots, pinned memory and the SSD tier. Stale entries are evicted first, in
 * the order of last use. After them goes the oldest entry of the share with the largest amount. So a share
 * alone may have the whole cache, and a share that grows evicts nothing of a smaller one. While n shares have
 * entries, none that holds at most 1/n of the cache loses an entry that is not stale. The cache decides what
 * an amount is (entries or bytes), when an entry is stale, and how the lists are linked.
 *
 * Pure: no clock. Any thread. */
#ifndef PLATEAU_CACHE_SHARE_LIST_H
#define PLATEAU_CACHE_SHARE_LIST_H

#include "base/hash.h"
#include "base/none.h"

#define CACHE_SHARES 256 /* tenants with one hash have one share: nearly always one tenant */

/* Returns the tenant's share. It is another one in every process. */
static inline uint32_t share_list_of(uint64_t tenant)
{
    return hash_share(tenant, CACHE_SHARES);
}

/* The entries of one share in the order of last use. */
struct share_list {
    uint32_t oldest, newest; /* NONE: no entry */
    uint64_t amount;
};

static inline void share_list_init(struct share_list *lists, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        lists[i] = (struct share_list){NONE, NONE, 0};
}

/* An entry that may be evicted. */
struct share_claim {
    uint64_t amount; /* amount of its share */
    uint64_t age;    /* any unit: the larger one goes first */
    bool stale;
};

/* True if entry `a` is evicted before entry `b`, also where the two are equal. */
static inline bool share_claim_loses(const struct share_claim *a, const struct share_claim *b)
{
    if (a->stale != b->stale)
        return a->stale;
    if (!a->stale && a->amount != b->amount)
        return a->amount > b->amount;
    return a->age >= b->age;
}

/* Fills in the entry's age, and whether it is stale. */
typedef void share_age_fn(const void *cache, uint32_t entry, struct share_claim *ret);

/* Returns the entry to evict: the oldest one of the share that loses. NONE: there is no entry. */
uint32_t share_list_victim(const struct share_list *lists, uint32_t count, share_age_fn *age,
                           const void *cache);

#endif
