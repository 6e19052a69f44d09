/* prefix_tier.c - what a tier below the pools wants of a prefix index, and what it lacks. */
#include "cache/prefix_state.h"

#include "base/check.h"

/* The windows' pages before the end, as far as they are still there or come back. */
static void want_window(struct prefix_index *ix, uint32_t end, uint32_t group)
{
    enum tier_kind kind = tier_kind_of(group);
    ASSERT(group > 0 && ix->groups[group].is.window > 0);
    uint32_t first = page_group_first(&ix->groups[group].is, ix->nodes[end].depth * PAGE_TOKENS);
    for (uint32_t at = end; at != NONE && ix->nodes[at].depth > first; at = ix->nodes[at].parent) {
        struct node *n = &ix->nodes[at];
        bool lacked = tier_lacks(n, kind);
        n->wanted |= (uint8_t)(1u << kind);
        ix->numbers.unstored += !lacked && tier_lacks(n, kind) && block_of(ix, at, kind) != NONE;
    }
}

void prefix_index_ends_here(struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].depth > 0);
    if (ix->states && ix->nodes[node].snapshot == NONE)
        return;
    for (uint32_t g = 1; g < ix->group_count; g++)
        want_window(ix, node, g);
}

void prefix_tier_evicting(struct prefix_index *ix, uint32_t node, enum tier_kind kind)
{
    const struct node *n = &ix->nodes[node];
    uint32_t block = block_of(ix, node, kind);
    ASSERT(n->depth > 0);
    ASSERT(block != NONE || kind != TIER_PAGE);
    if (ix->opts.evicting && block != NONE && (n->wanted >> kind & 1))
        ix->opts.evicting(ix->opts.arg, &(struct tier_offer){&n->key, kind, n->share, TIER_EVICTED}, block);
}

/* False: the tier lacks nothing of the node. */
static bool find_lacking(const struct prefix_index *ix, uint32_t node, struct prefix_unstored *ret)
{
    bool any = false;
    ASSERT(ix->nodes[node].depth > 0);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        ret->blocks[kind] = tier_lacks(&ix->nodes[node], kind) ? block_of(ix, node, kind) : NONE;
        any |= ret->blocks[kind] != NONE;
    }
    ret->key = ix->nodes[node].key;
    ret->node = node;
    ret->share = ix->nodes[node].share;
    return any;
}

bool prefix_index_unstored(const struct prefix_index *ix, uint32_t *at, uint32_t looks,
                           struct prefix_unstored *ret)
{
    ASSERT(looks > 0);
    for (; looks > 0 && ix->numbers.unstored > 0; looks--) {
        uint32_t node = *at < ix->nodes_max ? *at : 0;
        *at = node + 1;
        if (ix->nodes[node].depth > 0 && find_lacking(ix, node, ret))
            return true;
    }
    return false;
}

void prefix_index_stored(struct prefix_index *ix, uint32_t node, enum tier_kind kind)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0 && block_of(ix, node, kind) != NONE);
    ASSERT(ix->numbers.unstored >= tier_lacks(n, kind));
    ix->numbers.unstored -= tier_lacks(n, kind);
    n->stored |= (uint8_t)(1u << kind);
}

void prefix_index_offer_again(struct prefix_index *ix)
{
    for (uint32_t i = 0; i < ix->nodes_max; i++) {
        struct node *n = &ix->nodes[i];
        if (n->depth == 0)
            continue;
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
            ix->numbers.unstored += (n->wanted & n->stored) >> kind & 1;
        n->stored = 0;
    }
    ASSERT(ix->numbers.unstored >= ix->numbers.nodes + ix->numbers.snapshots);
}
