/* prefix_index.c - a forest of nodes, a hash table of their keys, a list of their snapshots.
 *
 * Each node has one page of the first group, so the count of nodes is bounded by that of pages. Each group
 * maps its pages to their nodes, so the pools' callbacks find a node at once. Keys are SHA-256 and uniform:
 * their first bytes choose the bucket. A chain may have thousands of pages, so subtrees are removed leaf by
 * leaf, without recursion. Snapshots are few (each is worth thousands of tokens of K and V), so the cheapest
 * is found by a scan. */
#include "cache/prefix_index.h"

#include "cache/prefix_state.h"

#include "base/check.h"
#include "base/hash.h"

#include <errno.h>

static uint32_t states_of(const struct prefix_index_opts *opts)
{
    struct pool_numbers n = {0};
    if (opts->states)
        block_pool_numbers(opts->states, &n);
    return n.blocks_max;
}

size_t prefix_index_arena_bytes(const uint32_t *pages_max, uint32_t group_count, uint32_t states_max,
                                bool shown)
{
    size_t bytes = sizeof(struct prefix_index) + sizeof(struct prefix_losses) +
                   (shown ? prefix_shown_bytes(pages_max[0]) : 0) +
                   (size_t)pages_max[0] * sizeof(struct node) +
                   (size_t)hash_buckets(16, pages_max[0]) * sizeof(uint32_t) +
                   (size_t)states_max * sizeof(struct snapshot);
    for (uint32_t g = 0; g < group_count; g++)
        bytes += ((size_t)pages_max[0] + pages_max[g]) * sizeof(uint32_t);
    return bytes + (5 + 2 * (size_t)group_count) * 64;
}

static uint32_t *fill_none(struct arena *a, uint32_t count)
{
    uint32_t *ret = ARENA_ARRAY(a, uint32_t, count);
    if (ret)
        memset(ret, 0xff, count * sizeof(uint32_t));
    return ret;
}

static bool are_groups(const struct prefix_index_opts *o)
{
    bool ok = o->group_count > 0 && o->group_count <= PAGE_GROUPS_MAX;
    for (uint32_t g = 0; ok && g < o->group_count; g++)
        ok = o->groups[g].pages && (o->groups[g].window == 0) == (g == 0);
    return ok;
}

/* One in every eight of the widest windows: on disk, windows of regular ends take an eighth of what all their
 * pages would take. */
static uint32_t regular_end(const struct prefix_index_opts *opts)
{
    uint32_t pages = 0;
    ASSERT(opts->groups[0].window == 0);
    for (uint32_t g = 1; g < opts->group_count; g++)
        pages = MAX_OF(pages, page_window_most(opts->groups[g].window, 1));
    return opts->states ? 0 : 8 * pages;
}

static int create_groups(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index *ix)
{
    ix->group_count = opts->group_count;
    ix->first = opts->groups[0];
    ix->nodes_max = page_pool_pages_max(ix->first.pages);
    for (uint32_t g = 0; g < ix->group_count; g++) {
        struct group *group = &ix->groups[g];
        group->is = opts->groups[g];
        group->pages_max = page_pool_pages_max(group->is.pages);
        group->page_of = fill_none(a, ix->nodes_max);
        group->node_of = fill_none(a, group->pages_max);
        if (!group->page_of || !group->node_of)
            return -ENOMEM;
    }
    return 0;
}

int prefix_index_create(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index **ret)
{
    if (!are_groups(opts))
        return -EINVAL;
    struct prefix_index *ix = ARENA_NEW(a, struct prefix_index);
    if (!ix || create_groups(a, opts, ix) < 0)
        return -ENOMEM;
    uint32_t buckets = hash_buckets(16, ix->nodes_max);
    ix->opts = *opts;
    ix->states = opts->states;
    ix->states_max = states_of(opts);
    ix->regular_end = regular_end(opts);
    ix->allowed = opts->allow ? 0 : opts->bytes_max;
    ix->bucket_mask = buckets - 1;
    ix->newest = NONE;
    ix->nodes = ARENA_ARRAY(a, struct node, ix->nodes_max);
    ix->buckets = fill_none(a, buckets);
    ix->losses = ARENA_NEW(a, struct prefix_losses);
    if (ix->losses)
        prefix_losses_blame(ix->losses, PREFIX_LOSS_LIMIT, 0);
    ix->snapshots = ix->states_max ? ARENA_ARRAY(a, struct snapshot, ix->states_max) : NULL;
    if (!ix->nodes || !ix->buckets || !ix->losses || (ix->states_max && !ix->snapshots))
        return -ENOMEM;
    if (opts->shown && prefix_shown_create(a, ix->nodes_max, &ix->shown) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < ix->nodes_max; i++)
        ix->nodes[i].next_same = i + 1 < ix->nodes_max ? i + 1 : NONE;
    for (uint32_t i = 0; i < ix->states_max; i++)
        ix->snapshots[i].node = NONE;
    *ret = ix;
    return 0;
}

void prefix_index_done(struct prefix_index *ix)
{
    if (!ix)
        return;
    prefix_index_clear(ix);
    ASSERT(ix->numbers.nodes == 0 && ix->numbers.snapshots == 0);
}

/* ---- the table of keys ---- */

static uint32_t *bucket_of(const struct prefix_index *ix, const struct prefix_key *key)
{
    uint32_t head;
    memcpy(&head, key->bytes, sizeof(head));
    return &ix->buckets[head & ix->bucket_mask];
}

static uint32_t look_up(const struct prefix_index *ix, const struct prefix_key *key)
{
    uint32_t node = *bucket_of(ix, key);
    while (node != NONE && !prefix_key_eq(&ix->nodes[node].key, key))
        node = ix->nodes[node].next_same;
    return node;
}

static void table_remove(struct prefix_index *ix, uint32_t node)
{
    uint32_t *at = bucket_of(ix, &ix->nodes[node].key);
    while (*at != node) {
        ASSERT(*at != NONE);
        at = &ix->nodes[*at].next_same;
    }
    *at = ix->nodes[node].next_same;
}

/* ---- pages ---- */

static void page_link(struct prefix_index *ix, uint32_t node, uint32_t group, uint32_t page)
{
    struct group *g = &ix->groups[group];
    ASSERT(page < g->pages_max && g->page_of[node] == NONE && g->node_of[page] == NONE);
    g->page_of[node] = page;
    g->node_of[page] = node;
    tier_counts(ix, &ix->nodes[node], tier_kind_of(group));
}

/* Returns the page; NONE: the node has no page of that group. */
static uint32_t page_unlink(struct prefix_index *ix, uint32_t node, uint32_t group)
{
    ASSERT(node < ix->nodes_max);
    struct group *g = &ix->groups[group];
    uint32_t page = g->page_of[node];
    if (page == NONE)
        return NONE;
    tier_forgets(ix, &ix->nodes[node], tier_kind_of(group));
    g->page_of[node] = NONE;
    g->node_of[page] = NONE;
    return page;
}

static void page_drop(struct prefix_index *ix, uint32_t node, uint32_t group)
{
    uint32_t page = page_unlink(ix, node, group);
    if (page == NONE)
        return;
    ASSERT(page_pool_refs(ix->groups[group].is.pages, page) == 0);
    page_pool_drop(ix->groups[group].is.pages, page);
}

bool prefix_index_shown(const struct prefix_index *ix, const struct prefix_key *key, bool *ends)
{
    bool snapshot, found = prefix_shown_find(&ix->shown, key, &snapshot);
    ASSERT(ix->opts.shown);
    *ends = found && (!ix->states || snapshot);
    return found;
}

uint32_t prefix_index_node(const struct prefix_index *ix, const struct prefix_key *key)
{
    return look_up(ix, key);
}

uint32_t prefix_index_page(const struct prefix_index *ix, uint32_t node, uint32_t group)
{
    ASSERT(group < ix->group_count && ix->nodes[node].depth > 0);
    return page_of(ix, node, group);
}

uint32_t prefix_index_node_of(const struct prefix_index *ix, uint32_t page)
{
    ASSERT(page < ix->groups[0].pages_max);
    return ix->groups[0].node_of[page];
}

/* ---- snapshots ---- */

static void snapshot_link(struct prefix_index *ix, uint32_t state)
{
    ASSERT(ix->snapshots[state].node != NONE);
    struct snapshot *s = &ix->snapshots[state];
    s->next = ix->newest;
    s->prev = NONE;
    if (s->next != NONE)
        ix->snapshots[s->next].prev = state;
    ix->newest = state;
    ix->share_snapshots[ix->nodes[s->node].share]++;
    ix->numbers.snapshots++;
}

static void snapshot_drop(struct prefix_index *ix, uint32_t state)
{
    ASSERT(state < ix->states_max && ix->snapshots[state].node != NONE);
    struct snapshot *s = &ix->snapshots[state];
    struct node *n = &ix->nodes[s->node];
    ASSERT(n->snapshot == state && n->pins == 0 && s->leases == 0);
    tier_forgets(ix, n, TIER_SNAPSHOT);
    prefix_shown_snapshot(&ix->shown, &n->key, false);
    n->snapshot = NONE;
    prefix_events_shortened(ix, s->node, false);
    s->node = NONE;
    ix->numbers.wished -= s->wishes > 0;
    s->wishes = 0;
    if (s->next != NONE)
        ix->snapshots[s->next].prev = s->prev;
    if (s->prev != NONE)
        ix->snapshots[s->prev].next = s->next;
    else
        ix->newest = s->next;
    ASSERT(ix->numbers.snapshots > ix->numbers.pinned && ix->share_snapshots[n->share] > 0);
    ix->share_snapshots[n->share]--;
    ix->numbers.snapshots--;
    block_pool_give(ix->states, state);
}

static uint32_t pages_since_snapshot(const struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].depth > 0);
    uint32_t pages = 1;
    for (uint32_t at = ix->nodes[node].parent; at != NONE && ix->nodes[at].snapshot == NONE; pages++)
        at = ix->nodes[at].parent;
    ASSERT(pages <= ix->nodes[node].depth);
    return pages;
}

/* ---- the forest ---- */

static void tree_remove(struct prefix_index *ix, uint32_t node)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->prev != NONE || n->parent == NONE || ix->nodes[n->parent].child == node);
    ASSERT(n->next == NONE || ix->nodes[n->next].prev == node);
    if (n->next != NONE)
        ix->nodes[n->next].prev = n->prev;
    if (n->prev != NONE)
        ix->nodes[n->prev].next = n->next;
    else if (n->parent != NONE)
        ix->nodes[n->parent].child = n->next;
}

static void announce(struct prefix_index *ix, uint32_t node)
{
    ASSERT(!ix->evicts || refs_of(ix, node) == 0);
    for (enum tier_kind kind = 0; ix->evicts && kind < TIER_KINDS; kind++)
        prefix_tier_evicting(ix, node, kind);
}

/* Removes a leaf and its remaining pages. */
static void remove_leaf(struct prefix_index *ix, uint32_t node)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0 && n->child == NONE);
    prefix_state_leaves(ix, node);
    announce(ix, node);
    if (ix->evicts || ix->clears)
        prefix_losses_add(ix->losses, &n->key);
    if (n->snapshot != NONE)
        snapshot_drop(ix, n->snapshot);
    prefix_events_shortened(ix, node, true);
    tree_remove(ix, node);
    table_remove(ix, node);
    prefix_shown_remove(&ix->shown, &n->key);
    for (uint32_t g = 0; g < ix->group_count; g++)
        page_drop(ix, node, g);
    n->depth = 0;
    n->next_same = ix->free;
    ix->free = node;
    ASSERT(ix->numbers.nodes > 0);
    ix->numbers.nodes--;
}

/* Removes the node and all its descendants, which are unreferenced. Returns how many. */
static uint32_t remove_subtree(struct prefix_index *ix, uint32_t top)
{
    ASSERT(refs_of(ix, top) == 0);
    uint32_t count = 0, at = top;
    for (;;) {
        while (ix->nodes[at].child != NONE)
            at = ix->nodes[at].child;
        uint32_t parent = ix->nodes[at].parent;
        remove_leaf(ix, at);
        count++;
        if (at == top)
            return count;
        at = parent;
    }
}

static bool has_window(const struct prefix_index *ix, uint32_t node, uint32_t group)
{
    const struct group *g = &ix->groups[group];
    uint32_t first = page_group_first(&g->is, ix->nodes[node].depth * PAGE_TOKENS);
    while (node != NONE && ix->nodes[node].depth > first && g->page_of[node] != NONE)
        node = ix->nodes[node].parent;
    return node == NONE || ix->nodes[node].depth <= first;
}

bool prefix_state_is_end(const struct prefix_index *ix, uint32_t node)
{
    bool all = prefix_state_has_state(ix, node);
    for (uint32_t g = 1; all && g < ix->group_count; g++)
        all = has_window(ix, node, g);
    ASSERT(ix->nodes[node].depth > 0);
    return all;
}

bool prefix_state_is_useless(const struct prefix_index *ix, uint32_t node)
{
    return ix->nodes[node].child == NONE && refs_of(ix, node) == 0 && !prefix_state_is_end(ix, node);
}

/* Removes useless nodes from this one up towards the root. */
static void prune(struct prefix_index *ix, uint32_t node)
{
    while (node != NONE && prefix_state_is_useless(ix, node)) {
        uint32_t parent = ix->nodes[node].parent;
        remove_leaf(ix, node);
        node = parent;
    }
}

/* The node has lost its page of this group: it is not an end any longer, nor are its descendants whose window
 * has the page. */
static void prune_behind(struct prefix_index *ix, uint32_t top, uint32_t group)
{
    const struct page_group *g = &ix->groups[group].is;
    uint32_t depth = ix->nodes[top].depth, at = top;
    for (;;) {
        while (ix->nodes[at].child != NONE &&
               page_group_first(g, (ix->nodes[at].depth + 1) * PAGE_TOKENS) < depth)
            at = ix->nodes[at].child;
        uint32_t next = NONE;
        while (at != top && next == NONE) {
            uint32_t parent = ix->nodes[at].parent;
            next = ix->nodes[at].next;
            if (prefix_state_is_useless(ix, at))
                remove_leaf(ix, at);
            at = next != NONE ? next : parent;
        }
        if (next == NONE)
            break;
    }
    prune(ix, top);
}

/* The snapshot was announced as evicted: its pages are evicted with it. */
static void prune_evicting(struct prefix_index *ix, uint32_t node)
{
    ix->evicts = true;
    prune(ix, node);
    ix->evicts = false;
}

/* The pool is taking the node's first page, so only that page is not given back to the pool. */
static void evict_subtree(struct prefix_index *ix, uint32_t top)
{
    struct node *n = &ix->nodes[top];
    ix->evicts = true;
    while (n->child != NONE)
        ix->numbers.nodes_evicted += remove_subtree(ix, n->child);
    announce(ix, top);
    ix->evicts = false;
    prefix_losses_add(ix->losses, &n->key);
    prefix_state_leaves(ix, top);
    page_unlink(ix, top, 0);
    remove_leaf(ix, top);
    ix->numbers.nodes_evicted++;
}

void prefix_index_evict_page(struct prefix_index *ix, uint32_t group, uint32_t page)
{
    ASSERT(group < ix->group_count && page < ix->groups[group].pages_max);
    uint32_t node = ix->groups[group].node_of[page];
    ASSERT(node != NONE);
    if (group == 0) {
        ASSERT(refs_of(ix, node) == 0);
        uint32_t parent = ix->nodes[node].parent;
        evict_subtree(ix, node);
        prune_evicting(ix, parent);
    } else {
        prefix_tier_evicting(ix, node, tier_kind_of(group));
        prefix_losses_add(ix->losses, &ix->nodes[node].key);
        page_unlink(ix, node, group);
        ix->numbers.pages_evicted++;
        ix->evicts = true;
        prune_behind(ix, node, group);
        ix->evicts = false;
    }
}

/* ---- lookup ---- */

void prefix_index_find(const struct prefix_index *ix, const struct prefix_key *keys, uint32_t count,
                       struct prefix_hit *ret)
{
    uint32_t gap[PAGE_GROUPS_MAX] = {0}; /* nodes up to and including the last one without a page */
    *ret = (struct prefix_hit){NONE, 0, NONE};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = look_up(ix, &keys[i]);
        if (node == NONE)
            return;
        uint32_t snapshot = ix->nodes[node].snapshot;
        bool whole = prefix_state_has_state(ix, node);
        for (uint32_t g = 1; g < ix->group_count; g++) {
            gap[g] = page_of(ix, node, g) == NONE ? i + 1 : gap[g];
            whole = whole && gap[g] <= page_group_first(&ix->groups[g].is, (i + 1) * PAGE_TOKENS);
        }
        ASSERT(ix->nodes[node].depth == i + 1);
        if (whole)
            *ret = (struct prefix_hit){node, i + 1, snapshot};
    }
}

static void take_group(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t group, uint32_t *table)
{
    ASSERT(hit->pages == 0 || ix->nodes[hit->node].depth == hit->pages);
    const struct page_group *g = &ix->groups[group].is;
    uint32_t first = page_group_first(g, hit->pages * PAGE_TOKENS), node = hit->node;
    for (uint32_t i = 0; i < first; i++)
        table[i] = NONE;
    for (uint32_t i = hit->pages; i > first; i--) {
        ASSERT(ix->nodes[node].depth == i && page_of(ix, node, group) != NONE);
        table[i - 1] = page_of(ix, node, group);
        page_pool_ref(g->pages, table[i - 1]);
        node = ix->nodes[node].parent;
    }
}

void prefix_index_take(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t *const *tables)
{
    for (uint32_t g = 0; g < ix->group_count; g++)
        take_group(ix, hit, g, tables[g]);
    if (hit->state == NONE)
        return;
    struct snapshot *s = &ix->snapshots[hit->state];
    ASSERT(s->node == hit->node);
    s->price = ix->age + s->saves;
    prefix_index_pin(ix, hit->node);
}

void prefix_index_pin(struct prefix_index *ix, uint32_t node)
{
    ASSERT(refs_of(ix, node) > 0);
    ASSERT(ix->nodes[node].snapshot != NONE);
    ix->numbers.pinned += ix->nodes[node].pins++ == 0;
}

void prefix_index_unpin(struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].pins > 0);
    ix->numbers.pinned -= --ix->nodes[node].pins == 0;
    ASSERT(ix->numbers.pinned <= ix->numbers.snapshots);
}

/* A referenced page implies a reference to all pages before it. */
static uint32_t referenced_first(const struct prefix_index *ix, uint32_t node)
{
    while (node != NONE && refs_of(ix, node) == 0)
        node = ix->nodes[node].parent;
    return node == NONE ? 0 : ix->nodes[node].depth;
}

uint32_t prefix_index_referenced(const struct prefix_index *ix, uint32_t node, uint32_t group)
{
    const struct page_group *g = &ix->groups[group].is;
    if (group == 0)
        return referenced_first(ix, node);
    uint32_t count = 0, first = page_group_first(g, ix->nodes[node].depth * PAGE_TOKENS);
    for (; node != NONE && ix->nodes[node].depth > first; node = ix->nodes[node].parent)
        count += page_pool_refs(g->pages, page_of(ix, node, group)) > 0;
    return count;
}

/* ---- growing ---- */

static uint32_t node_create(struct prefix_index *ix, uint32_t parent, const struct prefix_key *key,
                            uint8_t share)
{
    uint32_t node = ix->free;
    ASSERT(node != NONE); /* there are as many as pages of the first group */
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth == 0);
    ix->free = n->next_same;
    ix->nodes_end = MAX_OF(ix->nodes_end, node + 1);
    uint32_t *bucket = bucket_of(ix, key);
    *n = (struct node){.key = *key,
                       .next_same = *bucket,
                       .parent = parent,
                       .child = NONE,
                       .next = NONE,
                       .prev = NONE,
                       .snapshot = NONE,
                       .depth = 1,
                       .wanted = 1 << TIER_PAGE | 1 << TIER_SNAPSHOT,
                       .share = share};
    *bucket = node;
    if (parent != NONE) {
        struct node *above = &ix->nodes[parent];
        ASSERT(above->depth > 0 && above->share == share);
        n->depth = above->depth + 1;
        n->next = above->child;
        if (n->next != NONE)
            ix->nodes[n->next].prev = node;
        above->child = node;
    }
    prefix_shown_add(&ix->shown, key);
    ix->numbers.nodes++;
    return node;
}

/* The caller's page becomes the node's, or is replaced by the node's own. */
static void add_page(struct prefix_index *ix, uint32_t node, uint32_t group, uint32_t *page)
{
    struct page_pool *pool = ix->groups[group].is.pages;
    uint32_t has = page_of(ix, node, group);
    if (*page == NONE || *page == has)
        return;
    if (has == NONE) {
        page_link(ix, node, group, *page);
        page_pool_keep(pool, *page, ix->nodes[node].share);
    } else {
        ASSERT(page_pool_refs(pool, *page) == 1);
        page_pool_ref(pool, has);
        page_pool_unref(pool, *page);
        *page = has;
    }
}

uint32_t prefix_index_add(struct prefix_index *ix, uint64_t tenant, uint32_t parent,
                          const struct prefix_key *key, const uint32_t *tokens, uint32_t *pages)
{
    ASSERT(parent == NONE || refs_of(ix, parent) > 0);
    uint32_t node = look_up(ix, key);
    if (node == NONE) {
        node = node_create(ix, parent, key,
                           parent == NONE ? (uint8_t)share_list_of(tenant) : ix->nodes[parent].share);
        prefix_events_added(ix, node, tokens);
    }
    for (uint32_t g = 0; g < ix->group_count; g++)
        add_page(ix, node, g, &pages[g]);
    ASSERT(refs_of(ix, node) > 0);
    if (ix->regular_end > 0 && ix->nodes[node].depth % ix->regular_end == 0)
        prefix_index_ends_here(ix, node);
    return node;
}

bool prefix_index_snapshot(struct prefix_index *ix, uint32_t node, uint32_t state)
{
    struct node *n = &ix->nodes[node];
    ASSERT(ix->states && n->depth > 0 && refs_of(ix, node) > 0);
    if (n->snapshot != NONE)
        return false;
    struct snapshot *s = &ix->snapshots[state];
    ASSERT(s->node == NONE && s->leases == 0 && s->wishes == 0 && block_pool_is_taken(ix->states, state));
    n->snapshot = state;
    prefix_shown_snapshot(&ix->shown, &n->key, true);
    s->node = node;
    s->saves = pages_since_snapshot(ix, node);
    s->price = ix->age + s->saves;
    tier_counts(ix, n, TIER_SNAPSHOT);
    snapshot_link(ix, state);
    prefix_index_ends_here(ix, node);
    prefix_events_usable(ix, node);
    return true;
}

static uint64_t cached_bytes(const struct prefix_index *ix, uint32_t group)
{
    const struct page_group *g = &ix->groups[group].is;
    return (uint64_t)page_pool_cached(g->pages) * g->page_bytes;
}

static uint64_t bytes_held(const struct prefix_index *ix)
{
    ASSERT(ix->numbers.pinned <= ix->numbers.snapshots);
    uint64_t bytes = (uint64_t)(ix->numbers.snapshots - ix->numbers.pinned) * ix->opts.state_bytes;
    for (uint32_t g = 0; g < ix->group_count; g++)
        bytes += cached_bytes(ix, g);
    return bytes;
}

/* Leased bytes count against the limit of what is cached. */
static uint64_t bytes_limit(const struct prefix_index *ix)
{
    uint64_t leased = prefix_state_leased_bytes(ix);
    return MIN_OF(ix->allowed, ix->opts.bytes_max - MIN_OF(leased, ix->opts.bytes_max));
}

void prefix_index_released(struct prefix_index *ix, uint32_t node)
{
    if (node != NONE && ix->nodes[node].depth > 0)
        prune(ix, node);
    uint64_t held = bytes_held(ix);
    if (held > ix->allowed && ix->opts.allow)
        ix->allowed = MIN_OF(ix->opts.allow(ix->opts.allow_arg, held), ix->opts.bytes_max);
    ix->losses->now.cause = PREFIX_LOSS_LIMIT;
    while (bytes_held(ix) > bytes_limit(ix) && prefix_index_evict(ix))
        ;
}

void prefix_index_clock(struct prefix_index *ix, uint64_t now_ns)
{
    ASSERT(now_ns >= ix->losses->now.at_ns);
    ix->losses->now.at_ns = now_ns;
}

void prefix_index_blame(struct prefix_index *ix, enum prefix_loss_cause cause, uint64_t whom)
{
    ASSERT(cause > PREFIX_LOSS_NONE && cause < PREFIX_LOSS_CAUSES);
    prefix_losses_blame(ix->losses, cause, whom);
}

struct prefix_loss prefix_index_loss(const struct prefix_index *ix, const struct prefix_key *keys,
                                     uint32_t count)
{
    return prefix_losses_find(ix->losses, keys, count);
}

void prefix_index_allow(struct prefix_index *ix, uint64_t bytes)
{
    ix->allowed = MIN_OF(bytes, ix->opts.bytes_max);
    ASSERT(bytes_held(ix) <= ix->allowed);
}

/* ---- shrinking ---- */

bool prefix_index_evict(struct prefix_index *ix)
{
    uint32_t oldest = 0;
    for (uint32_t g = 1; g < ix->group_count; g++)
        if (page_pool_age(ix->groups[g].is.pages) > page_pool_age(ix->groups[oldest].is.pages))
            oldest = g;
    return page_pool_evict(ix->groups[oldest].is.pages) || prefix_index_evict_snapshot(ix);
}

/* The price counts instead of an age: the lower it is, the sooner the snapshot goes. */
static struct share_claim claim_of(const struct prefix_index *ix, uint32_t snapshot)
{
    uint32_t node = ix->snapshots[snapshot].node, count = ix->share_snapshots[ix->nodes[node].share];
    ASSERT(count > 0);
    return (struct share_claim){.amount = count,
                                .age = UINT64_MAX - ix->snapshots[snapshot].price,
                                .stale = page_pool_stale(ix->first.pages, page_of(ix, node, 0))};
}

/* True if snapshot `a` is to be evicted before `b`, which is newer. */
static bool goes_before(const struct prefix_index *ix, uint32_t a, uint32_t b)
{
    if ((ix->snapshots[a].wishes > 0) != (ix->snapshots[b].wishes > 0))
        return ix->snapshots[b].wishes > 0;
    struct share_claim x = claim_of(ix, a), y = claim_of(ix, b);
    ASSERT(a != b);
    return share_claim_loses(&x, &y);
}

bool prefix_index_evict_snapshot(struct prefix_index *ix)
{
    uint32_t cheapest = NONE;
    for (uint32_t s = ix->newest; s != NONE; s = ix->snapshots[s].next)
        if (ix->nodes[ix->snapshots[s].node].pins == 0 && (cheapest == NONE || goes_before(ix, s, cheapest)))
            cheapest = s;
    if (cheapest == NONE)
        return false;
    ASSERT(ix->nodes[ix->snapshots[cheapest].node].snapshot == cheapest);
    uint32_t node = ix->snapshots[cheapest].node;
    prefix_tier_evicting(ix, node, TIER_SNAPSHOT);
    prefix_losses_add(ix->losses, &ix->nodes[node].key);
    ix->age = MAX_OF(ix->age, ix->snapshots[cheapest].price);
    ix->numbers.snapshots_evicted++;
    snapshot_drop(ix, cheapest);
    prune_evicting(ix, node);
    return true;
}

/* Drops pages of a node in use that precede the windows of all its users. */
static void drop_left_behind(struct prefix_index *ix, uint32_t node)
{
    ASSERT(refs_of(ix, node) > 0);
    for (uint32_t g = 1; g < ix->group_count; g++) {
        uint32_t page = page_of(ix, node, g);
        if (page != NONE && page_pool_refs(ix->groups[g].is.pages, page) == 0)
            page_drop(ix, node, g);
    }
}

uint32_t prefix_index_clear(struct prefix_index *ix)
{
    uint32_t count = 0;
    prefix_losses_blame(ix->losses, PREFIX_LOSS_CLEARED, 0);
    ASSERT(!ix->evicts && !ix->clears);
    ix->clears = true;
    for (uint32_t i = 0; i < ix->nodes_max; i++) {
        if (ix->nodes[i].depth == 0)
            continue;
        if (refs_of(ix, i) == 0)
            count += remove_subtree(ix, i);
        else
            drop_left_behind(ix, i);
    }
    ix->clears = false;
    return count;
}

/* ---- moving ---- */

void prefix_index_move(struct prefix_index *ix, uint32_t group, uint32_t from, uint32_t to)
{
    struct group *g = &ix->groups[group];
    uint32_t node = g->node_of[from];
    ASSERT(g->node_of[to] == NONE && node != NONE && g->page_of[node] == from);
    ASSERT(page_pool_refs(g->is.pages, from) == 0);
    g->node_of[from] = NONE;
    g->node_of[to] = node;
    g->page_of[node] = to;
}

bool prefix_index_is_movable_snapshot(const struct prefix_index *ix, uint32_t state)
{
    ASSERT(state < ix->states_max);
    uint32_t node = ix->snapshots[state].node;
    return node != NONE && ix->nodes[node].pins == 0;
}

void prefix_index_move_snapshot(struct prefix_index *ix, uint32_t from, uint32_t to)
{
    ASSERT(prefix_index_is_movable_snapshot(ix, from) && ix->snapshots[to].node == NONE);
    struct snapshot *s = &ix->snapshots[to];
    *s = ix->snapshots[from];
    ix->snapshots[from] = (struct snapshot){.node = NONE};
    if (s->next != NONE)
        ix->snapshots[s->next].prev = to;
    if (s->prev != NONE)
        ix->snapshots[s->prev].next = to;
    else
        ix->newest = to;
    ix->nodes[s->node].snapshot = to;
}

/* ---- numbers ---- */

void prefix_index_numbers(const struct prefix_index *ix, struct prefix_numbers *ret)
{
    *ret = ix->numbers;
    ret->bytes = bytes_held(ix);
    ret->bytes_max = ix->opts.bytes_max;
    ret->leased_bytes = prefix_state_leased_bytes(ix);
    ret->wished_bytes = prefix_state_wished_bytes(ix);
    ASSERT(ret->pinned <= ret->snapshots && ret->snapshots <= ix->states_max);
}
