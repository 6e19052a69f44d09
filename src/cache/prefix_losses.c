/* prefix_losses.c - a table with one place for each hash.
 *
 * Chains are evicted from their ends, so the first missing page of a chain has its newest record. Where
 * another key has taken that place, the next pages tell the same story. */
#include "cache/prefix_losses.h"

#include "base/check.h"
#include "cache/prefix_key.h"

#include <string.h>

/* Keys are SHA-256 and uniform. */
static uint64_t short_key(const struct prefix_key *key)
{
    uint64_t ret;
    memcpy(&ret, key->bytes + sizeof(key->bytes) - sizeof(ret), sizeof(ret));
    return ret;
}

void prefix_losses_add(struct prefix_losses *l, const struct prefix_key *key)
{
    uint64_t k = short_key(key);
    ASSERT(l->now.cause > PREFIX_LOSS_NONE && l->now.cause < PREFIX_LOSS_CAUSES);
    l->records[k % PREFIX_LOSSES_MAX].key = k;
    l->records[k % PREFIX_LOSSES_MAX].loss = l->now;
}

struct prefix_loss prefix_losses_find(const struct prefix_losses *l, const struct prefix_key *keys,
                                      uint32_t count)
{
    for (uint32_t i = 0; i < MIN_OF(count, (uint32_t)PREFIX_LOSSES_LOOKS); i++) {
        uint64_t k = short_key(&keys[i]);
        const struct prefix_loss *found = &l->records[k % PREFIX_LOSSES_MAX].loss;
        if (found->cause == PREFIX_LOSS_NONE || l->records[k % PREFIX_LOSSES_MAX].key != k)
            continue;
        ASSERT(found->cause < PREFIX_LOSS_CAUSES && found->at_ns <= l->now.at_ns);
        return *found;
    }
    return (struct prefix_loss){PREFIX_LOSS_NONE, 0, 0};
}
