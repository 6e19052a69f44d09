/* prefix_check.c - what must hold of an index between any two calls. */
#include "cache/prefix_state.h"

#include "base/check.h"

static void check_pages(const struct prefix_index *ix, uint32_t node)
{
    ASSERT_OF(page_of(ix, node, 0) != NONE, "prefix node %u: no page of group 0", node);
    for (uint32_t g = 0; g < ix->group_count; g++) {
        uint32_t page = page_of(ix, node, g);
        if (page == NONE)
            continue;
        ASSERT_OF(page < ix->groups[g].pages_max && ix->groups[g].node_of[page] == node,
                  "prefix node %u: page %u of group %u is not its own", node, page, g);
        ASSERT_OF(refs_of(ix, node) >= page_pool_refs(ix->groups[g].is.pages, page),
                  "page %u of group %u: referenced more often than page %u of group 0, before it in prefix "
                  "node %u",
                  page, g, page_of(ix, node, 0), node);
    }
}

static void check_links(const struct prefix_index *ix, uint32_t i)
{
    const struct node *n = &ix->nodes[i];
    uint32_t prev = NONE, left = ix->numbers.nodes;
    ASSERT_OF(prefix_index_node(ix, &n->key) == i, "prefix node %u: not found by its key", i);
    ASSERT_OF(n->parent == NONE || (n->parent < ix->nodes_max && ix->nodes[n->parent].depth > 0),
              "prefix node %u: its parent, node %u, is free", i, n->parent);
    ASSERT_OF(n->depth == 1 + (n->parent == NONE ? 0 : ix->nodes[n->parent].depth),
              "prefix node %u: depth %u", i, n->depth);
    ASSERT_OF(n->parent == NONE || n->share == ix->nodes[n->parent].share,
              "prefix node %u: share %u, its parent's is %u", i, n->share, ix->nodes[n->parent].share);
    for (uint32_t c = n->child; c != NONE; prev = c, c = ix->nodes[c].next) {
        ASSERT_OF(c < ix->nodes_max && left-- > 0, "prefix node %u: its list of children is broken", i);
        ASSERT_OF(ix->nodes[c].parent == i && ix->nodes[c].prev == prev,
                  "prefix node %u: not linked as a child of node %u", c, i);
    }
}

static void check_snapshot(const struct prefix_index *ix, uint32_t i)
{
    const struct node *n = &ix->nodes[i];
    if (n->snapshot != NONE) {
        ASSERT_OF(n->snapshot < ix->states_max && ix->snapshots[n->snapshot].node == i,
                  "prefix node %u: snapshot %u is not its own", i, n->snapshot);
        ASSERT_OF(block_pool_is_taken(ix->states, n->snapshot), "snapshot %u: its state is free",
                  n->snapshot);
    }
    uint32_t leases = n->snapshot == NONE ? 0 : ix->snapshots[n->snapshot].leases;
    ASSERT_OF(leases <= n->pins, "prefix node %u: %u leases of its snapshot, %u pins", i, leases, n->pins);
    ASSERT_OF(n->pins == 0 || (n->snapshot != NONE && refs_of(ix, i) > 0),
              "prefix node %u: %u pins, %u references", i, n->pins, refs_of(ix, i));
}

static void check_shown(const struct prefix_index *ix, uint32_t i)
{
    bool snapshot, found = prefix_shown_find(&ix->shown, &ix->nodes[i].key, &snapshot);
    ASSERT_OF(found == ix->opts.shown && snapshot == (found && ix->nodes[i].snapshot != NONE),
              "prefix node %u: other threads do not see it as it is", i);
}

static void check_node(const struct prefix_index *ix, uint32_t i)
{
    const struct node *n = &ix->nodes[i];
    check_links(ix, i);
    check_pages(ix, i);
    check_snapshot(ix, i);
    check_shown(ix, i);
    prefix_events_check(ix, i);
    ASSERT_OF(n->parent == NONE || refs_of(ix, i) == 0 || refs_of(ix, n->parent) > 0,
              "page %u: referenced, and page %u before it is not", page_of(ix, i, 0),
              page_of(ix, n->parent, 0));
    ASSERT_OF(!prefix_state_is_useless(ix, i), "prefix node %u: no prefix ends there and nobody uses it", i);
}

/* Every cached page is a node's. */
static bool walk_group(const struct prefix_index *ix, uint32_t group, struct walk *w)
{
    const struct group *g = &ix->groups[group];
    uint32_t cached = 0, end = walk_end(w, page_pool_end(g->is.pages), g->pages_max);
    for (uint32_t i = 0; i < end && walk_on(w); i++) {
        uint32_t node = g->node_of[i];
        if (node == NONE)
            continue;
        ASSERT_OF(node < ix->nodes_max && ix->nodes[node].depth > 0 && g->page_of[node] == i,
                  "page %u of group %u: not a page of prefix node %u", i, group, node);
        cached += page_pool_refs(g->is.pages, i) == 0;
    }
    uint32_t counted = page_pool_cached(g->is.pages);
    ASSERT_OF(w->called_off || cached == counted, "group %u: %u pages are cached, %u of them in the index",
              group, counted, cached);
    return !w->called_off;
}

static uint32_t count_unstored(const struct prefix_index *ix, uint32_t i)
{
    const struct node *n = &ix->nodes[i];
    uint32_t count = 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        bool there = block_of(ix, i, kind) != NONE;
        ASSERT_OF(there || !(n->stored >> kind & 1), "prefix node %u: stored without an entry of kind %d", i,
                  (int)kind);
        count += there && tier_lacks(n, kind);
    }
    return count;
}

static bool walk_nodes(const struct prefix_index *ix, struct walk *w)
{
    uint32_t nodes = 0, snapshots = 0, pinned = 0, unstored = 0, leased = 0, wished = 0;
    uint32_t end = walk_end(w, ix->nodes_end, ix->nodes_max);
    for (uint32_t i = 0; i < end && walk_on(w); i++) {
        const struct node *n = &ix->nodes[i];
        if (n->depth == 0)
            continue;
        check_node(ix, i);
        nodes++;
        unstored += count_unstored(ix, i);
        snapshots += n->snapshot != NONE;
        pinned += n->pins > 0;
        leased += n->snapshot != NONE && ix->snapshots[n->snapshot].leases > 0;
        wished += n->snapshot != NONE && ix->snapshots[n->snapshot].wishes > 0;
    }
    if (w->called_off)
        return false;
    const struct prefix_numbers *counted = &ix->numbers;
    ASSERT_OF(nodes == counted->nodes, "%u prefix nodes, %u counted", nodes, counted->nodes);
    ASSERT_OF(snapshots == counted->snapshots, "%u snapshots, %u counted", snapshots, counted->snapshots);
    ASSERT_OF(pinned == counted->pinned, "%u pinned snapshots, %u counted", pinned, counted->pinned);
    ASSERT_OF(leased == counted->leased && wished == counted->wished,
              "%u snapshots are leased, %u have a wish; %u and %u counted", leased, wished, counted->leased,
              counted->wished);
    ASSERT_OF(unstored == counted->unstored, "%u are not stored, %u counted", unstored, counted->unstored);
    return true;
}

static bool walk_lists(const struct prefix_index *ix, struct walk *w)
{
    uint32_t listed = 0, end = walk_end(w, ix->nodes_end, ix->nodes_max), unused = ix->nodes_max - end;
    /* The list ends with the nodes that were never used, in their order. */
    uint32_t i = ix->free, last = end < ix->nodes_max ? end : NONE;
    for (; i != last && i != NONE && walk_on(w); i = ix->nodes[i].next_same) {
        ASSERT_OF(ix->nodes[i].depth == 0 && unused < ix->nodes_max,
                  "prefix node %u: in use and listed as free", i);
        unused++;
    }
    for (uint32_t s = ix->newest; s != NONE && walk_on(w); s = ix->snapshots[s].next, listed++)
        ASSERT_OF(ix->snapshots[s].node != NONE && listed < ix->states_max,
                  "snapshot %u: listed and no node's", s);
    if (w->called_off)
        return false;
    ASSERT(i == last && unused == ix->nodes_max - ix->numbers.nodes);
    uint32_t of_shares = 0;
    for (uint32_t share = 0; share < CACHE_SHARES; share++)
        of_shares += ix->share_snapshots[share];
    ASSERT(listed == ix->numbers.snapshots && of_shares == listed);
    return true;
}

bool prefix_index_walk(const struct prefix_index *ix, struct walk *w)
{
    if (!walk_nodes(ix, w) || !walk_lists(ix, w))
        return false;
    for (uint32_t g = 0; g < ix->group_count; g++)
        if (!walk_group(ix, g, w))
            return false;
    struct prefix_numbers n;
    prefix_index_numbers(ix, &n);
    ASSERT(n.bytes <= ix->allowed);
    ASSERT(ix->allowed <= ix->opts.bytes_max);
    return true;
}

void prefix_index_check(const struct prefix_index *ix)
{
    prefix_index_walk(ix, &(struct walk){0});
}
