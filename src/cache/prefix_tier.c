/* prefix_tier.c - what a tier below the pools lacks of a prefix index. */
#include "cache/prefix_state.h"

#include "base/check.h"

bool prefix_index_unstored(const struct prefix_index *ix, uint32_t *at, uint32_t looks,
                           struct prefix_unstored *ret)
{
    for (; looks > 0 && ix->numbers.unstored > 0; looks--) {
        uint32_t node = *at < ix->nodes_max ? *at : 0;
        const struct node *n = &ix->nodes[node];
        *at = node + 1;
        bool snapshot = n->snapshot != NONE && !n->snapshot_stored;
        if (n->depth == 0 || (n->page_stored && !snapshot))
            continue;
        ASSERT(page_of(ix, node, 0) != NONE);
        *ret = (struct prefix_unstored){n->key, node, n->page_stored ? NONE : page_of(ix, node, 0),
                                        snapshot ? n->snapshot : NONE};
        return true;
    }
    return false;
}

void prefix_index_page_stored(struct prefix_index *ix, uint32_t node)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0);
    ASSERT(n->page_stored || ix->numbers.unstored > 0);
    ix->numbers.unstored -= !n->page_stored;
    n->page_stored = true;
}

void prefix_index_snapshot_stored(struct prefix_index *ix, uint32_t node)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0 && n->snapshot != NONE);
    ASSERT(n->snapshot_stored || ix->numbers.unstored > 0);
    ix->numbers.unstored -= !n->snapshot_stored;
    n->snapshot_stored = true;
}

void prefix_index_offer_again(struct prefix_index *ix)
{
    for (uint32_t i = 0; i < ix->nodes_max; i++) {
        struct node *n = &ix->nodes[i];
        if (n->depth == 0)
            continue;
        ix->numbers.unstored += n->page_stored + (n->snapshot != NONE && n->snapshot_stored);
        n->page_stored = n->snapshot_stored = false;
    }
    ASSERT(ix->numbers.unstored == ix->numbers.nodes + ix->numbers.snapshots);
}
