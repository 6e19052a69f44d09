/* store_table.c - entries by number, in blocks; buckets by the key's own bytes, which are uniform already.
 *
 * Last use is a list for each share. Reading a prefix touches its pages from the last to the first, so of
 * pages used together the last is evicted first. A prefix is useless without its first pages.
 *
 * Files do not name their share. It is a hash with the process's seed, so its number means nothing later. A
 * start that reads the header of each file would take minutes; this one reads sizes and times only. A
 * tenant's first use of an entry says that the entry is its own. */
#include "store/store_table.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/none.h"

#include <errno.h>

#define BLOCK_COUNT 1024u

struct store_table {
    struct arena *arena;
    uint32_t entries_max, bucket_mask;
    struct store_entry **blocks; /* [DIV_UP(entries_max, BLOCK_COUNT)] */
    uint32_t made;               /* entries of the blocks that are there */
    uint32_t free;               /* next_same links them */
    uint32_t *buckets;
    struct share_list shares[STORE_SHARE_UNKNOWN + 1]; /* amounts: sectors, also of leased files */
    uint64_t leased_of[STORE_SHARE_UNKNOWN + 1];       /* sectors */
    struct store_table_numbers numbers;
};

size_t store_table_bytes(uint32_t entries_max)
{
    size_t blocks = DIV_UP(entries_max, BLOCK_COUNT);
    return sizeof(struct store_table) + blocks * (sizeof(void *) + BLOCK_COUNT * sizeof(struct store_entry)) +
           hash_buckets(1024, entries_max) * sizeof(uint32_t) + 4 * 64;
}

int store_table_create(struct arena *a, uint32_t entries_max, struct store_table **ret)
{
    struct store_table *t = ARENA_NEW(a, struct store_table);
    if (!t)
        return -ENOMEM;
    uint32_t buckets = hash_buckets(1024, entries_max);
    ASSERT(buckets > 0 && (buckets & (buckets - 1)) == 0);
    *t = (struct store_table){.arena = a,
                              .entries_max = entries_max,
                              .bucket_mask = buckets - 1,
                              .free = NONE,
                              .numbers = {.entries_max = entries_max}};
    share_list_init(t->shares, COUNT_OF(t->shares));
    t->blocks = ARENA_ARRAY(a, struct store_entry *, DIV_UP(entries_max, BLOCK_COUNT));
    t->buckets = ARENA_ARRAY(a, uint32_t, buckets);
    if (!t->blocks || !t->buckets)
        return -ENOMEM;
    memset(t->buckets, 0xff, buckets * sizeof(uint32_t));
    *ret = t;
    return 0;
}

struct store_entry *store_table_at(const struct store_table *t, uint32_t entry)
{
    ASSERT(entry < t->made);
    return &t->blocks[entry / BLOCK_COUNT][entry % BLOCK_COUNT];
}

static uint32_t *bucket_of(const struct store_table *t, const struct prefix_key *key, enum tier_kind kind)
{
    uint32_t head;
    memcpy(&head, key->bytes + 4, sizeof(head));
    return &t->buckets[(head ^ (uint32_t)kind) & t->bucket_mask];
}

uint32_t store_table_find(const struct store_table *t, const struct prefix_key *key, enum tier_kind kind)
{
    ASSERT(kind < TIER_KINDS);
    uint32_t at = *bucket_of(t, key, kind);
    while (at != NONE &&
           (store_table_at(t, at)->kind != kind || !prefix_key_eq(&store_table_at(t, at)->key, key)))
        at = store_table_at(t, at)->next_same;
    return at;
}

/* ---- entries ---- */

static bool add_block(struct store_table *t)
{
    uint32_t count = MIN_OF(BLOCK_COUNT, t->entries_max - t->made);
    struct store_entry *block = count > 0 ? ARENA_ARRAY(t->arena, struct store_entry, BLOCK_COUNT) : NULL;
    if (!block)
        return false;
    t->blocks[t->made / BLOCK_COUNT] = block;
    for (uint32_t i = count; i-- > 0;) {
        block[i].next_same = t->free;
        t->free = t->made + i;
    }
    ASSERT(t->made + count <= t->entries_max);
    t->made += count;
    return true;
}

uint32_t store_table_add(struct store_table *t, const struct prefix_key *key, enum tier_kind kind,
                         uint32_t share)
{
    ASSERT(share <= STORE_SHARE_UNKNOWN && kind < TIER_KINDS);
    if (t->free == NONE && !add_block(t))
        return NONE;
    uint32_t entry = t->free, *bucket = bucket_of(t, key, kind);
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state == STORE_ENTRY_FREE);
    t->free = n->next_same;
    *n = (struct store_entry){.key = *key,
                              .next_same = *bucket,
                              .newer = NONE,
                              .older = NONE,
                              .share = (uint16_t)share,
                              .kind = (uint8_t)kind,
                              .state = STORE_ENTRY_PENDING};
    *bucket = entry;
    t->numbers.pending++;
    return entry;
}

/* A leased entry is in no list, and counts all the same. */
static void unlink_entry(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    struct share_list *list = &t->shares[n->share];
    ASSERT(list->amount >= n->sectors);
    list->amount -= n->sectors;
    if (n->leases > 0)
        return;
    ASSERT(n->newer == NONE ? list->newest == entry : store_table_at(t, n->newer)->older == entry);
    ASSERT(n->older == NONE ? list->oldest == entry : store_table_at(t, n->older)->newer == entry);
    *(n->newer == NONE ? &list->newest : &store_table_at(t, n->newer)->older) = n->older;
    *(n->older == NONE ? &list->oldest : &store_table_at(t, n->older)->newer) = n->newer;
    n->newer = n->older = NONE;
}

static void link_newest(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    struct share_list *list = &t->shares[n->share];
    ASSERT((list->newest == NONE) == (list->oldest == NONE));
    ASSERT(n->state == STORE_ENTRY_STORED);
    list->amount += n->sectors;
    if (n->leases > 0)
        return;
    ASSERT(n->newer == NONE && n->older == NONE);
    n->older = list->newest;
    *(n->older == NONE ? &list->oldest : &store_table_at(t, n->older)->newer) = entry;
    list->newest = entry;
}

/* Before and after a change of a leased entry's share or sectors. */
static void count_leased(struct store_table *t, const struct store_entry *n, bool more)
{
    if (n->leases == 0)
        return;
    ASSERT(more || (t->leased_of[n->share] >= n->sectors && t->numbers.leased_sectors >= n->sectors));
    t->leased_of[n->share] += more ? n->sectors : -(uint64_t)n->sectors;
    t->numbers.leased_sectors += more ? n->sectors : -(uint64_t)n->sectors;
}

void store_table_store(struct store_table *t, uint32_t entry, uint32_t sectors, uint64_t used_ns)
{
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state == STORE_ENTRY_PENDING);
    n->state = STORE_ENTRY_STORED;
    count_leased(t, n, false);
    n->sectors = sectors;
    count_leased(t, n, true);
    n->used_ns = used_ns;
    link_newest(t, entry);
    ASSERT(t->numbers.pending > 0);
    t->numbers.pending--;
    t->numbers.stored[n->kind]++;
    t->numbers.sectors += sectors;
}

void store_table_touch(struct store_table *t, uint32_t entry, uint32_t share, uint64_t now_ns)
{
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state == STORE_ENTRY_STORED && share < CACHE_SHARES);
    unlink_entry(t, entry);
    count_leased(t, n, false);
    n->share = (uint16_t)share;
    count_leased(t, n, true);
    n->used_ns = now_ns;
    link_newest(t, entry);
}

/* The entry is in no list and no count. */
static void free_entry(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    uint32_t *at = bucket_of(t, &n->key, (enum tier_kind)n->kind);
    ASSERT(n->state != STORE_ENTRY_FREE && n->leases == 0);
    while (*at != entry)
        at = &store_table_at(t, *at)->next_same; /* asserts that there is one */
    *at = n->next_same;
    n->state = STORE_ENTRY_FREE;
    n->next_same = t->free;
    t->free = entry;
}

void store_table_remove(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state == STORE_ENTRY_STORED || n->state == STORE_ENTRY_PENDING);
    if (n->state == STORE_ENTRY_STORED) {
        unlink_entry(t, entry);
        ASSERT(t->numbers.stored[n->kind] > 0 && t->numbers.sectors >= n->sectors);
        t->numbers.stored[n->kind]--;
        t->numbers.sectors -= n->sectors;
    } else {
        ASSERT(t->numbers.pending > 0);
        t->numbers.pending--;
    }
    if (n->leases == 0) {
        free_entry(t, entry);
        return;
    }
    n->state = STORE_ENTRY_RESERVED;
    t->numbers.reserved++;
}

void store_table_begin(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state == STORE_ENTRY_RESERVED && n->leases > 0 && t->numbers.reserved > 0);
    n->state = STORE_ENTRY_PENDING;
    t->numbers.reserved--;
    t->numbers.pending++;
}

/* ---- leases ---- */

static uint32_t reserve(struct store_table *t, const struct prefix_key *key, enum tier_kind kind,
                        uint32_t share)
{
    uint32_t entry = store_table_add(t, key, kind, share);
    if (entry == NONE)
        return NONE;
    store_table_at(t, entry)->state = STORE_ENTRY_RESERVED;
    t->numbers.pending--;
    t->numbers.reserved++;
    return entry;
}

uint32_t store_table_lease(struct store_table *t, const struct prefix_key *key, enum tier_kind kind,
                           uint32_t share, uint32_t sectors, uint32_t before)
{
    uint32_t entry = store_table_find(t, key, kind);
    if (entry == NONE)
        entry = reserve(t, key, kind, share);
    if (entry == NONE)
        return NONE;
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->state != STORE_ENTRY_FREE && share < CACHE_SHARES);
    if (n->leases == 0) {
        if (n->state == STORE_ENTRY_STORED) {
            unlink_entry(t, entry);
            t->shares[share].amount += n->sectors;
        } else {
            n->sectors = sectors;
        }
        n->share = (uint16_t)share;
        n->newer = n->older = NONE;
        t->numbers.leased++;
    } else {
        count_leased(t, n, false);
    }
    n->leases++;
    count_leased(t, n, true);
    if (before != NONE)
        n->older = before;
    return entry;
}

void store_table_unlease(struct store_table *t, uint32_t entry)
{
    struct store_entry *n = store_table_at(t, entry);
    ASSERT(n->leases > 0 && t->numbers.leased > 0);
    if (n->leases > 1) {
        n->leases--;
        return;
    }
    count_leased(t, n, false);
    t->numbers.leased--;
    n->leases = 0;
    n->newer = n->older = NONE;
    if (n->state == STORE_ENTRY_STORED) {
        t->shares[n->share].amount -= n->sectors; /* link_newest() adds them */
        uint32_t newest = t->shares[n->share].newest;
        if (newest != NONE) /* the list is in the order of last use */
            n->used_ns = MAX_OF(n->used_ns, store_table_at(t, newest)->used_ns);
        link_newest(t, entry);
    } else if (n->state == STORE_ENTRY_RESERVED) {
        t->numbers.reserved--;
        free_entry(t, entry);
    }
}

uint64_t store_table_leased_of(const struct store_table *t, uint32_t share)
{
    ASSERT(share < COUNT_OF(t->leased_of));
    return t->leased_of[share];
}

/* The table, and the time for the ages of its entries. */
struct look {
    const struct store_table *table;
    uint64_t now_ns;
};

/* The clock may have been set back since the last use. */
static void share_age(const void *cache, uint32_t entry, struct share_claim *ret)
{
    const struct look *l = cache;
    uint64_t used_ns = store_table_at(l->table, entry)->used_ns;
    ret->age = l->now_ns - MIN_OF(used_ns, l->now_ns);
    ret->stale = ret->age >= STORE_STALE_NS;
}

uint32_t store_table_victim(const struct store_table *t, uint64_t now_ns)
{
    const struct look l = {t, now_ns};
    uint32_t entry = share_list_victim(t->shares, COUNT_OF(t->shares), share_age, &l);
    ASSERT(entry == NONE || store_table_at(t, entry)->state == STORE_ENTRY_STORED);
    return entry;
}

/* ---- the order at the start ---- */

/* Two lists by `older`, the newest first, into one. */
static uint32_t merge(const struct store_table *t, uint32_t a, uint32_t b)
{
    uint32_t head = NONE, *tail = &head;
    while (a != NONE && b != NONE) {
        uint32_t *first = store_table_at(t, a)->used_ns >= store_table_at(t, b)->used_ns ? &a : &b;
        *tail = *first;
        tail = &store_table_at(t, *first)->older;
        *first = *tail;
    }
    *tail = a != NONE ? a : b;
    return head;
}

/* Bottom up: runs[i] is a sorted list of 2^i entries, or none. */
void store_table_sort(struct store_table *t)
{
    struct share_list *list = &t->shares[STORE_SHARE_UNKNOWN];
    uint32_t runs[32], at = list->newest;
    memset(runs, 0xff, sizeof(runs));
    while (at != NONE) {
        uint32_t next = store_table_at(t, at)->older, i = 0;
        store_table_at(t, at)->older = NONE;
        for (; runs[i] != NONE; runs[i++] = NONE)
            at = merge(t, runs[i], at);
        ASSERT(i < COUNT_OF(runs));
        runs[i] = at;
        at = next;
    }
    for (uint32_t i = 0; i < COUNT_OF(runs); i++)
        at = merge(t, runs[i], at);
    list->newest = at;
    uint32_t newer = NONE;
    for (; at != NONE; newer = at, at = store_table_at(t, at)->older)
        store_table_at(t, at)->newer = newer;
    list->oldest = newer;
    ASSERT((list->newest == NONE) == (list->oldest == NONE));
    ASSERT(list->oldest == NONE || store_table_at(t, list->oldest)->older == NONE);
}

void store_table_numbers(const struct store_table *t, struct store_table_numbers *ret)
{
    *ret = t->numbers;
    ASSERT(ret->pending + ret->reserved + store_table_pages(ret) + ret->stored[TIER_SNAPSHOT] <= t->made);
}
