/* prefix_lease.c - what leases take of a prefix index: references, pins and wishes along a chain.
 *
 * A lease is one more user of its prefix, so all rules for users hold. Entries of several leases are counted
 * once, in the pools for pages and here for snapshots. */
#include "cache/prefix_lease.h"

#include "cache/prefix_state.h"

#include "base/check.h"

uint32_t prefix_index_usable(const struct prefix_index *ix, uint32_t node)
{
    while (node != NONE && !prefix_state_is_end(ix, node))
        node = ix->nodes[node].parent;
    return node;
}

uint32_t prefix_index_depth(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(node < ix->nodes_max && ix->nodes[node].depth > 0);
    return ix->nodes[node].depth;
}

uint32_t prefix_index_parent(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(node < ix->nodes_max && ix->nodes[node].depth > 0);
    return ix->nodes[node].parent;
}

void prefix_index_firsts(const struct prefix_index *ix, uint32_t pages, uint32_t ret[TIER_KINDS])
{
    ASSERT(pages > 0);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        ret[kind] = kind == TIER_SNAPSHOT && ix->states ? pages - 1 : pages;
    for (uint32_t g = 0; g < ix->group_count; g++)
        ret[tier_kind_of(g)] = page_group_first(&ix->groups[g].is, pages * PAGE_TOKENS);
}

uint32_t prefix_index_block(const struct prefix_index *ix, uint32_t node, enum tier_kind kind)
{
    ASSERT(ix->nodes[node].depth > 0 && kind < TIER_KINDS);
    return block_of(ix, node, kind);
}

/* ---- pages ---- */

typedef void page_fn(struct page_pool *p, uint32_t page);

/* The pages that a hit at the node references, from its end on. */
static void each_page(const struct prefix_index *ix, uint32_t node, uint32_t group, page_fn *fn)
{
    const struct page_group *g = &ix->groups[group].is;
    uint32_t first = page_group_first(g, ix->nodes[node].depth * PAGE_TOKENS);
    ASSERT(first < ix->nodes[node].depth);
    for (; node != NONE && ix->nodes[node].depth > first; node = ix->nodes[node].parent)
        if (page_of(ix, node, group) != NONE)
            fn(g->pages, page_of(ix, node, group));
}

void prefix_index_lease(struct prefix_index *ix, uint32_t node)
{
    const struct node *n = &ix->nodes[node];
    ASSERT(prefix_state_is_end(ix, node));
    for (uint32_t g = 0; g < ix->group_count; g++)
        each_page(ix, node, g, page_pool_lease);
    if (!ix->states)
        return;
    prefix_index_pin(ix, node);
    if (ix->snapshots[n->snapshot].leases++ > 0)
        return;
    ix->share_leased[n->share]++;
    ix->numbers.leased++;
}

void prefix_index_unlease(struct prefix_index *ix, uint32_t node)
{
    const struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0 && refs_of(ix, node) > 0);
    if (ix->states) {
        struct snapshot *s = &ix->snapshots[n->snapshot];
        ASSERT(s->leases > 0);
        if (--s->leases == 0) {
            ASSERT(ix->share_leased[n->share] > 0 && ix->numbers.leased > 0);
            ix->share_leased[n->share]--;
            ix->numbers.leased--;
        }
        prefix_index_unpin(ix, node);
    }
    /* The first group last: a user of a node's other pages references its page of that group. */
    for (uint32_t g = ix->group_count; g-- > 0;)
        each_page(ix, node, g, page_pool_unlease);
    prefix_index_released(ix, node);
}

void prefix_index_hold(struct prefix_index *ix, uint32_t node)
{
    ASSERT(prefix_state_is_end(ix, node));
    for (uint32_t g = 0; g < ix->group_count; g++)
        each_page(ix, node, g, page_pool_hold);
    ASSERT(refs_of(ix, node) > 0);
    if (ix->states)
        prefix_index_pin(ix, node);
}

void prefix_index_unhold(struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].depth > 0 && refs_of(ix, node) > 0);
    if (ix->states)
        prefix_index_unpin(ix, node);
    /* The first group last, as above. */
    for (uint32_t g = ix->group_count; g-- > 0;)
        each_page(ix, node, g, page_pool_unhold);
    prefix_index_released(ix, node);
}

/* ---- wishes ---- */

void prefix_index_wish(struct prefix_index *ix, uint32_t node)
{
    const struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0);
    for (uint32_t g = 0; g < ix->group_count; g++)
        each_page(ix, node, g, page_pool_wish);
    if (n->snapshot != NONE)
        ix->numbers.wished += ix->snapshots[n->snapshot].wishes++ == 0;
}

/* Entries that went and came back since have fewer wishes: each gives one at most. */
void prefix_index_unwish(struct prefix_index *ix, uint32_t node)
{
    const struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0);
    struct snapshot *s = n->snapshot == NONE ? NULL : &ix->snapshots[n->snapshot];
    if (s && s->wishes > 0)
        ix->numbers.wished -= --s->wishes == 0;
    for (uint32_t g = ix->group_count; g-- > 0;)
        each_page(ix, node, g, page_pool_unwish);
}

/* ---- ends ---- */

void prefix_index_mark_end(struct prefix_index *ix, uint32_t node, bool ends)
{
    ASSERT(node < ix->nodes_max && ix->nodes[node].depth > 0);
    ix->nodes[node].ends = ends;
}

bool prefix_index_is_marked(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(node < ix->nodes_max && ix->nodes[node].depth > 0);
    return ix->nodes[node].ends;
}

/* ---- bytes ---- */

static void add_pages(const struct prefix_index *ix, uint32_t node, uint32_t group, struct prefix_bytes *ret)
{
    const struct page_group *g = &ix->groups[group].is;
    uint32_t first = page_group_first(g, ix->nodes[node].depth * PAGE_TOKENS);
    for (; node != NONE && ix->nodes[node].depth > first; node = ix->nodes[node].parent) {
        uint32_t page = page_of(ix, node, group);
        if (page == NONE)
            continue;
        ret->all += g->page_bytes;
        bool leased = page_pool_leases(g->pages, page) > 0;
        ret->unleased += leased ? 0 : g->page_bytes;
        ret->unleased_pages += group == 0 && !leased;
        ret->unwished += page_pool_wishes(g->pages, page) > 0 ? 0 : g->page_bytes;
    }
}

void prefix_index_bytes(const struct prefix_index *ix, uint32_t node, struct prefix_bytes *ret)
{
    const struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0);
    *ret = (struct prefix_bytes){0};
    for (uint32_t g = 0; g < ix->group_count; g++)
        add_pages(ix, node, g, ret);
    if (n->snapshot == NONE)
        return;
    ret->all += ix->opts.state_bytes;
    bool leased = ix->snapshots[n->snapshot].leases > 0;
    ret->unleased += leased ? 0 : ix->opts.state_bytes;
    ret->unleased_snapshots = !leased;
    ret->unwished += ix->snapshots[n->snapshot].wishes > 0 ? 0 : ix->opts.state_bytes;
}

void prefix_index_leased(const struct prefix_index *ix, struct prefix_leased *ret)
{
    struct page_pool_numbers n;
    page_pool_numbers(ix->first.pages, &n);
    ASSERT(ix->numbers.leased <= ix->numbers.pinned);
    *ret = (struct prefix_leased){n.leased, ix->numbers.leased};
}

uint64_t prefix_index_leased_bytes(const struct prefix_index *ix)
{
    return prefix_state_leased_bytes(ix);
}

uint64_t prefix_index_wished_bytes(const struct prefix_index *ix)
{
    return prefix_state_wished_bytes(ix);
}

uint64_t prefix_index_leased_of(const struct prefix_index *ix, uint32_t share)
{
    ASSERT(share < CACHE_SHARES);
    uint64_t bytes = ix->share_leased[share] * (uint64_t)ix->opts.state_bytes;
    for (uint32_t g = 0; g < ix->group_count; g++)
        bytes += page_pool_leased_of(ix->groups[g].is.pages, share) * (uint64_t)ix->groups[g].is.page_bytes;
    return bytes;
}
