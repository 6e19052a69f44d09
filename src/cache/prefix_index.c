/* prefix_index.c - a forest of pages, a hash table of its keys, a list of its snapshots.
 *
 * A node is named by its page, so nodes need no allocation of their own and the pool's callback finds them at once. Keys
 * are SHA-256, uniform already: their first bytes choose the bucket. Subtrees are removed leaf by leaf without recursion,
 * for a chain may be thousands of pages long. Snapshots are few (each is worth thousands of tokens of K and V), so
 * the cheapest is found by looking at all of them. */
#include "cache/prefix_index.h"

#include "base/check.h"

#include <errno.h>

#define NONE PREFIX_NONE

struct node {
    struct prefix_key key;
    uint32_t next_same;                 /* in its bucket */
    uint32_t parent, child, next, prev; /* child: the first one; next, prev: siblings */
    uint32_t snapshot, pins;
    uint32_t depth; /* pages up to and with it; 0: no node */
};

struct snapshot {
    uint32_t node;  /* NONE: this slot is no snapshot */
    uint32_t saves; /* pages, against the snapshot before it */
    uint64_t price;
    uint32_t next, prev;
};

struct prefix_index {
    /* Constant. */
    struct page_pool *pages;
    struct slot_pool *slots;
    uint32_t bucket_mask, slots_max;
    size_t page_bytes, slot_bytes;
    uint64_t bytes_max;
    /* Engine thread only. */
    struct node *nodes;         /* [pages_max] */
    uint32_t *buckets;          /* [bucket_mask + 1]: the first node */
    struct snapshot *snapshots; /* [slots_max] */
    uint32_t newest;            /* snapshot */
    uint64_t age;               /* the price of what was evicted last */
    struct prefix_numbers numbers;
};

static uint32_t bucket_count(uint32_t pages_max)
{
    uint32_t n = 16;
    while (n < pages_max)
        n *= 2;
    return n;
}

static uint32_t slots_of(const struct prefix_index_opts *opts)
{
    struct pool_numbers n = {0};
    if (opts->slots)
        slot_pool_numbers(opts->slots, &n);
    return n.blocks_max;
}

size_t prefix_index_arena_bytes(uint32_t pages_max, uint32_t slots_max)
{
    return sizeof(struct prefix_index) + (size_t)pages_max * sizeof(struct node) +
           (size_t)bucket_count(pages_max) * sizeof(uint32_t) + (size_t)slots_max * sizeof(struct snapshot) +
           256;
}

int prefix_index_create(struct arena *a, const struct prefix_index_opts *opts, struct prefix_index **ret)
{
    uint32_t pages_max = page_pool_pages_max(opts->pages), buckets = bucket_count(pages_max);
    struct prefix_index *ix = ARENA_NEW(a, struct prefix_index);
    if (!ix)
        return -ENOMEM;
    ix->pages = opts->pages;
    ix->slots = opts->slots;
    ix->slots_max = slots_of(opts);
    ix->page_bytes = opts->page_bytes;
    ix->slot_bytes = opts->slot_bytes;
    ix->bytes_max = opts->bytes_max;
    ix->bucket_mask = buckets - 1;
    ix->newest = NONE;
    ix->nodes = ARENA_ARRAY(a, struct node, pages_max);
    ix->buckets = ARENA_ARRAY(a, uint32_t, buckets);
    ix->snapshots = ix->slots_max ? ARENA_ARRAY(a, struct snapshot, ix->slots_max) : NULL;
    if (!ix->nodes || !ix->buckets || (ix->slots_max && !ix->snapshots))
        return -ENOMEM;
    for (uint32_t i = 0; i < buckets; i++)
        ix->buckets[i] = NONE;
    for (uint32_t i = 0; i < ix->slots_max; i++)
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
    while (*at != node)
        at = &ix->nodes[*at].next_same;
    *at = ix->nodes[node].next_same;
}

/* ---- snapshots ---- */

static void snapshot_link(struct prefix_index *ix, uint32_t slot)
{
    struct snapshot *s = &ix->snapshots[slot];
    s->next = ix->newest;
    s->prev = NONE;
    if (s->next != NONE)
        ix->snapshots[s->next].prev = slot;
    ix->newest = slot;
    ix->numbers.snapshots++;
}

static void snapshot_drop(struct prefix_index *ix, uint32_t slot)
{
    struct snapshot *s = &ix->snapshots[slot];
    struct node *n = &ix->nodes[s->node];
    ASSERT(n->snapshot == slot && n->pins == 0);
    n->snapshot = NONE;
    s->node = NONE;
    if (s->next != NONE)
        ix->snapshots[s->next].prev = s->prev;
    if (s->prev != NONE)
        ix->snapshots[s->prev].next = s->next;
    else
        ix->newest = s->next;
    ix->numbers.snapshots--;
    slot_pool_give(ix->slots, slot);
}

static uint32_t pages_since_snapshot(const struct prefix_index *ix, uint32_t node)
{
    uint32_t pages = 1;
    for (uint32_t at = ix->nodes[node].parent; at != NONE && ix->nodes[at].snapshot == NONE; pages++)
        at = ix->nodes[at].parent;
    return pages;
}

/* ---- the forest ---- */

static void tree_remove(struct prefix_index *ix, uint32_t node)
{
    struct node *n = &ix->nodes[node];
    if (n->next != NONE)
        ix->nodes[n->next].prev = n->prev;
    if (n->prev != NONE)
        ix->nodes[n->prev].next = n->next;
    else if (n->parent != NONE)
        ix->nodes[n->parent].child = n->next;
}

/* A leaf goes; its page with it, unless the pool is about to take that anyway. */
static void remove_leaf(struct prefix_index *ix, uint32_t node, bool drop_page)
{
    struct node *n = &ix->nodes[node];
    ASSERT(n->depth > 0 && n->child == NONE && page_pool_refs(ix->pages, node) == 0);
    if (n->snapshot != NONE)
        snapshot_drop(ix, n->snapshot);
    tree_remove(ix, node);
    table_remove(ix, node);
    n->depth = 0;
    ix->numbers.nodes--;
    if (drop_page)
        page_pool_drop(ix->pages, node);
}

/* The node and all behind it. Returns how many. */
static uint32_t remove_subtree(struct prefix_index *ix, uint32_t top, bool drop_top)
{
    uint32_t count = 0, at = top;
    for (;;) {
        while (ix->nodes[at].child != NONE)
            at = ix->nodes[at].child;
        uint32_t parent = ix->nodes[at].parent;
        remove_leaf(ix, at, at != top || drop_top);
        count++;
        if (at == top)
            return count;
        at = parent;
    }
}

static bool is_useless(const struct prefix_index *ix, uint32_t node)
{
    const struct node *n = &ix->nodes[node];
    return ix->slots && n->child == NONE && n->snapshot == NONE && page_pool_refs(ix->pages, node) == 0;
}

/* From this node towards the beginning, as long as nobody can use what is there. */
static void prune(struct prefix_index *ix, uint32_t node)
{
    while (node != NONE && is_useless(ix, node)) {
        uint32_t parent = ix->nodes[node].parent;
        remove_leaf(ix, node, true);
        node = parent;
    }
}

void prefix_index_evict_page(struct prefix_index *ix, uint32_t page)
{
    ASSERT(ix->nodes[page].depth > 0);
    uint32_t parent = ix->nodes[page].parent;
    ix->numbers.nodes_evicted += remove_subtree(ix, page, false);
    prune(ix, parent);
}

/* ---- finding ---- */

void prefix_index_find(const struct prefix_index *ix, const struct prefix_key *keys, uint32_t count,
                       struct prefix_hit *ret)
{
    *ret = (struct prefix_hit){NONE, 0, NONE};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = look_up(ix, &keys[i]);
        if (node == NONE)
            return;
        uint32_t snapshot = ix->nodes[node].snapshot;
        if (!ix->slots || snapshot != NONE)
            *ret = (struct prefix_hit){node, i + 1, snapshot};
    }
}

void prefix_index_take(struct prefix_index *ix, const struct prefix_hit *hit, uint32_t *table)
{
    uint32_t node = hit->node;
    for (uint32_t i = hit->pages; i > 0; i--) {
        ASSERT(ix->nodes[node].depth == i);
        table[i - 1] = node;
        page_pool_ref(ix->pages, node);
        node = ix->nodes[node].parent;
    }
    if (hit->slot == NONE)
        return;
    struct snapshot *s = &ix->snapshots[hit->slot];
    ASSERT(s->node == hit->node);
    s->price = ix->age + s->saves;
    ix->nodes[hit->node].pins++;
}

void prefix_index_pin(struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].snapshot != NONE);
    ix->nodes[node].pins++;
}

void prefix_index_unpin(struct prefix_index *ix, uint32_t node)
{
    ASSERT(ix->nodes[node].pins > 0);
    ix->nodes[node].pins--;
}

uint32_t prefix_index_referenced(const struct prefix_index *ix, uint32_t node)
{
    while (node != NONE && page_pool_refs(ix->pages, node) == 0)
        node = ix->nodes[node].parent;
    return node == NONE ? 0 : ix->nodes[node].depth;
}

/* ---- growing ---- */

uint32_t prefix_index_add(struct prefix_index *ix, uint32_t parent, const struct prefix_key *key,
                          uint32_t page)
{
    ASSERT(page_pool_refs(ix->pages, page) > 0);
    ASSERT(parent == NONE || page_pool_refs(ix->pages, parent) > 0);
    uint32_t same = look_up(ix, key);
    if (same == page)
        return page;
    if (same != NONE) {
        page_pool_ref(ix->pages, same);
        page_pool_unref(ix->pages, page);
        return same;
    }
    struct node *n = &ix->nodes[page];
    ASSERT(n->depth == 0);
    uint32_t *bucket = bucket_of(ix, key);
    *n = (struct node){.key = *key,
                       .next_same = *bucket,
                       .parent = parent,
                       .child = NONE,
                       .next = NONE,
                       .prev = NONE,
                       .snapshot = NONE,
                       .depth = 1};
    *bucket = page;
    if (parent != NONE) {
        struct node *p = &ix->nodes[parent];
        n->depth = p->depth + 1;
        n->next = p->child;
        if (p->child != NONE)
            ix->nodes[p->child].prev = page;
        p->child = page;
    }
    page_pool_keep(ix->pages, page);
    ix->numbers.nodes++;
    return page;
}

bool prefix_index_snapshot(struct prefix_index *ix, uint32_t node, uint32_t slot)
{
    struct node *n = &ix->nodes[node];
    ASSERT(ix->slots && n->depth > 0 && page_pool_refs(ix->pages, node) > 0);
    if (n->snapshot != NONE)
        return false;
    struct snapshot *s = &ix->snapshots[slot];
    ASSERT(s->node == NONE && slot_pool_is_taken(ix->slots, slot));
    n->snapshot = slot;
    s->node = node;
    s->saves = pages_since_snapshot(ix, node);
    s->price = ix->age + s->saves;
    snapshot_link(ix, slot);
    return true;
}

static uint64_t bytes_held(const struct prefix_index *ix)
{
    return (uint64_t)page_pool_cached(ix->pages) * ix->page_bytes +
           (uint64_t)ix->numbers.snapshots * ix->slot_bytes;
}

void prefix_index_released(struct prefix_index *ix, uint32_t node)
{
    if (node != NONE && ix->nodes[node].depth > 0)
        prune(ix, node);
    while (bytes_held(ix) > ix->bytes_max && (page_pool_evict(ix->pages) || prefix_index_evict_snapshot(ix)))
        ;
}

/* ---- shrinking ---- */

bool prefix_index_evict_snapshot(struct prefix_index *ix)
{
    uint32_t cheapest = NONE;
    for (uint32_t s = ix->newest; s != NONE; s = ix->snapshots[s].next)
        if (ix->nodes[ix->snapshots[s].node].pins == 0 &&
            (cheapest == NONE || ix->snapshots[s].price <= ix->snapshots[cheapest].price))
            cheapest = s;
    if (cheapest == NONE)
        return false;
    uint32_t node = ix->snapshots[cheapest].node;
    ix->age = ix->snapshots[cheapest].price;
    ix->numbers.snapshots_evicted++;
    snapshot_drop(ix, cheapest);
    prune(ix, node);
    return true;
}

uint32_t prefix_index_clear(struct prefix_index *ix)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < page_pool_pages_max(ix->pages); i++)
        if (ix->nodes[i].depth > 0 && page_pool_refs(ix->pages, i) == 0)
            count += remove_subtree(ix, i, true);
    return count;
}

/* ---- moving ---- */

static void replace_in_tree(struct prefix_index *ix, uint32_t from, uint32_t to)
{
    struct node *n = &ix->nodes[to];
    if (n->next != NONE)
        ix->nodes[n->next].prev = to;
    if (n->prev != NONE)
        ix->nodes[n->prev].next = to;
    else if (n->parent != NONE)
        ix->nodes[n->parent].child = to;
    for (uint32_t c = n->child; c != NONE; c = ix->nodes[c].next)
        ix->nodes[c].parent = to;
    if (n->snapshot != NONE)
        ix->snapshots[n->snapshot].node = to;
    ix->nodes[from].depth = 0;
}

void prefix_index_move(struct prefix_index *ix, uint32_t from, uint32_t to)
{
    ASSERT(ix->nodes[from].depth > 0 && ix->nodes[from].pins == 0 && ix->nodes[to].depth == 0);
    uint32_t *at = bucket_of(ix, &ix->nodes[from].key);
    while (*at != from)
        at = &ix->nodes[*at].next_same;
    *at = to;
    ix->nodes[to] = ix->nodes[from];
    replace_in_tree(ix, from, to);
}

bool prefix_index_is_movable_snapshot(const struct prefix_index *ix, uint32_t slot)
{
    ASSERT(slot < ix->slots_max);
    uint32_t node = ix->snapshots[slot].node;
    return node != NONE && ix->nodes[node].pins == 0;
}

void prefix_index_move_snapshot(struct prefix_index *ix, uint32_t from, uint32_t to)
{
    ASSERT(prefix_index_is_movable_snapshot(ix, from) && ix->snapshots[to].node == NONE);
    struct snapshot *s = &ix->snapshots[to];
    *s = ix->snapshots[from];
    ix->snapshots[from].node = NONE;
    if (s->next != NONE)
        ix->snapshots[s->next].prev = to;
    if (s->prev != NONE)
        ix->snapshots[s->prev].next = to;
    else
        ix->newest = to;
    ix->nodes[s->node].snapshot = to;
}

void prefix_index_numbers(const struct prefix_index *ix, struct prefix_numbers *ret)
{
    *ret = ix->numbers;
    ret->bytes = bytes_held(ix);
    ret->bytes_max = ix->bytes_max;
}

/* ---- invariants ---- */

static void check_node(const struct prefix_index *ix, uint32_t i)
{
    const struct node *n = &ix->nodes[i];
    ASSERT(look_up(ix, &n->key) == i);
    ASSERT(n->depth == 1 + (n->parent == NONE ? 0 : ix->nodes[n->parent].depth));
    if (n->parent != NONE)
        ASSERT(page_pool_refs(ix->pages, i) == 0 || page_pool_refs(ix->pages, n->parent) > 0);
    uint32_t prev = NONE;
    for (uint32_t c = n->child; c != NONE; prev = c, c = ix->nodes[c].next)
        ASSERT(ix->nodes[c].parent == i && ix->nodes[c].prev == prev);
    if (n->snapshot != NONE)
        ASSERT(ix->snapshots[n->snapshot].node == i && slot_pool_is_taken(ix->slots, n->snapshot));
    ASSERT(n->pins == 0 || (n->snapshot != NONE && page_pool_refs(ix->pages, i) > 0));
}

void prefix_index_check(const struct prefix_index *ix)
{
    uint32_t nodes = 0, snapshots = 0, listed = 0;
    for (uint32_t i = 0; i < page_pool_pages_max(ix->pages); i++) {
        if (ix->nodes[i].depth == 0)
            continue;
        check_node(ix, i);
        nodes++;
        snapshots += ix->nodes[i].snapshot != NONE;
    }
    for (uint32_t s = ix->newest; s != NONE; s = ix->snapshots[s].next)
        listed++;
    ASSERT(nodes == ix->numbers.nodes && snapshots == ix->numbers.snapshots && listed == snapshots);
}
