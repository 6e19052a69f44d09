/* share_list.c - a scan of all shares: an eviction also copies or deletes an entry, which takes longer. */
#include "cache/share_list.h"

#include "base/check.h"

uint32_t share_list_victim(const struct share_list *lists, uint32_t count, share_age_fn *age,
                           const void *cache)
{
    struct share_claim worst = {0};
    uint32_t victim = NONE;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT((lists[i].oldest == NONE) == (lists[i].newest == NONE));
        if (lists[i].oldest == NONE)
            continue;
        struct share_claim claim = {.amount = lists[i].amount};
        age(cache, lists[i].oldest, &claim);
        if (victim == NONE || share_claim_loses(&claim, &worst)) {
            worst = claim;
            victim = lists[i].oldest;
        }
    }
    return victim;
}
