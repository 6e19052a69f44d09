/* pinned_tier.c - chunks of slots, a hash of keys, and a list by age for each kind and share.
 *
 * An entry that is being read or filled stands in no list, so it is never evicted. A chunk that has such an
 * entry stays. Copies from a slot may still be on their way when it is given back. The device's queue orders
 * them before a later copy into the slot, and `unpin` waits for them. */
#include "cache/page_pool.h"
#include "cache/pinned_state.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/none.h"
#include "memory/domain.h"

#include <errno.h>
#include <string.h>

#define ENTRIES_MAX  ((uint64_t)1 << 20)
#define SLOTS_MAX    4096u
#define CHUNKS_LEAST 8           /* each kind has some, where the entries are not larger */
#define OWN          0x80000000u /* in the handles of this tier, and not of the tier below */
#define PIECE_BYTES  UNIT_BYTES
#define BYTES_PER_NS 40 /* a copy to the device; PCIe 5 reaches 50 */
#define ENTRY_NS     5000
#define STALE_NS     (PAGE_STALE_MS * NS_PER_MS)

/* ---- sizes ---- */

struct sizes {
    size_t chunk_bytes;
    uint32_t chunks, slots, buckets;
};

/* chunks 0: it is not possible. */
static struct sizes sizes_of(const struct pinned_tier_opts *o)
{
    size_t largest = 0, least = SIZE_MAX;
    ASSERT(o->chunk_bytes % UNIT_BYTES == 0);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        largest = MAX_OF(largest, o->bytes[kind]);
        least = o->bytes[kind] ? MIN_OF(least, o->bytes[kind]) : least;
    }
    struct sizes s = {.buckets = 64};
    uint64_t most = o->bytes_max / UNIT_BYTES * UNIT_BYTES;
    size_t part = (size_t)MAX_OF(most / CHUNKS_LEAST / UNIT_BYTES, 1u) * UNIT_BYTES;
    size_t chunk_bytes = o->chunk_bytes ? o->chunk_bytes : MIN_OF(part, PINNED_CHUNK_BYTES);
    s.chunk_bytes = MAX_OF(ROUND_UP(largest, UNIT_BYTES), chunk_bytes);
    if (largest == 0 || s.chunk_bytes > most)
        return s;
    s.slots = (uint32_t)MIN_OF(s.chunk_bytes / least, SLOTS_MAX);
    s.chunks = (uint32_t)MIN_OF(most / s.chunk_bytes, ENTRIES_MAX / s.slots);
    while (s.buckets < s.chunks * s.slots)
        s.buckets *= 2;
    ASSERT(s.slots > 0 && s.chunk_bytes % UNIT_BYTES == 0);
    return s;
}

bool pinned_tier_is_possible(const struct pinned_tier_opts *opts)
{
    return sizes_of(opts).chunks > 0;
}

size_t pinned_tier_arena_bytes(const struct pinned_tier_opts *opts)
{
    struct sizes s = sizes_of(opts);
    size_t entries = (size_t)s.chunks * s.slots;
    if (s.chunks == 0)
        return 0;
    ASSERT(entries <= ENTRIES_MAX);
    return sizeof(struct pinned_tier) + s.chunks * sizeof(struct chunk) + entries * sizeof(struct entry) +
           s.buckets * sizeof(uint32_t) + 4096;
}

/* ---- entries ---- */

static char *bytes_of(const struct pinned_tier *t, uint32_t entry)
{
    uint32_t chunk = chunk_of(t, entry);
    ASSERT(t->chunks[chunk].state == CHUNK_OPEN);
    ASSERT(entry % t->slots_max < t->slots[t->chunks[chunk].kind]);
    uint64_t at = (uint64_t)chunk * t->chunk_bytes +
                  (uint64_t)(entry % t->slots_max) * t->opts.bytes[t->chunks[chunk].kind];
    return dev_host(dev_add(t->base, at));
}

static uint32_t *bucket_of(const struct pinned_tier *t, const struct prefix_key *key)
{
    return &t->buckets[hash_bytes(key->bytes, sizeof(key->bytes)) & t->bucket_mask];
}

uint32_t pinned_find(const struct pinned_tier *t, const struct prefix_key *key, enum tier_kind kind)
{
    uint32_t at = *bucket_of(t, key);
    ASSERT(kind < TIER_KINDS);
    while (at != NONE && (t->entries[at].kind != kind || memcmp(&t->entries[at].key, key, sizeof(*key)) != 0))
        at = t->entries[at].next_same;
    ASSERT(at == NONE || t->entries[at].state == ENTRY_WHOLE);
    return at;
}

static struct share_list *ages_of(struct pinned_tier *t, const struct entry *e)
{
    ASSERT(e->kind < TIER_KINDS);
    return &t->ages[e->kind][e->share];
}

static void leave_ages(struct pinned_tier *t, uint32_t index)
{
    struct entry *e = &t->entries[index];
    struct share_list *a = ages_of(t, e);
    ASSERT(e->state == ENTRY_WHOLE && e->reads == 0 && a->amount > 0);
    ASSERT(a->oldest != NONE && a->newest != NONE);
    *(e->prev == NONE ? &a->oldest : &t->entries[e->prev].next) = e->next;
    *(e->next == NONE ? &a->newest : &t->entries[e->next].prev) = e->prev;
    a->amount--;
    ASSERT(t->share_bytes[e->share] >= t->opts.bytes[e->kind]);
    t->share_bytes[e->share] -= t->opts.bytes[e->kind];
}

static void enter_ages(struct pinned_tier *t, uint32_t index)
{
    struct entry *e = &t->entries[index];
    struct share_list *a = ages_of(t, e);
    ASSERT(e->state == ENTRY_WHOLE && e->reads == 0);
    e->used_ns = t->now_ns;
    e->prev = a->newest;
    e->next = NONE;
    *(a->newest == NONE ? &a->oldest : &t->entries[a->newest].next) = index;
    a->newest = index;
    a->amount++;
    t->share_bytes[e->share] += t->opts.bytes[e->kind];
    ASSERT(a->oldest != NONE);
    t->chunks[chunk_of(t, index)].used_ns = t->now_ns;
}

static void touch(struct pinned_tier *t, uint32_t index)
{
    ASSERT(t->entries[index].state == ENTRY_WHOLE);
    if (t->entries[index].reads > 0)
        return;
    leave_ages(t, index);
    enter_ages(t, index);
}

static void free_slot(struct pinned_tier *t, uint32_t index)
{
    struct chunk *c = &t->chunks[chunk_of(t, index)];
    ASSERT(c->state == CHUNK_OPEN && c->taken > 0);
    t->entries[index] = (struct entry){.next = c->free};
    c->free = index;
    c->taken--;
    t->free[c->kind]++;
    ASSERT(c->taken < t->slots[c->kind]);
}

/* The entry has left its list of ages. */
static void remove_entry(struct pinned_tier *t, uint32_t index)
{
    struct entry *e = &t->entries[index];
    uint32_t *at = bucket_of(t, &e->key);
    ASSERT(e->state == ENTRY_WHOLE && t->counts[e->kind] > 0);
    ASSERT(e->reads == 0);
    while (*at != index)
        at = &t->entries[*at].next_same;
    *at = e->next_same;
    t->counts[e->kind]--;
    free_slot(t, index);
}

static void hand_down(struct pinned_tier *t, uint32_t index, enum tier_why why)
{
    const struct tier_io *below = t->opts.below;
    struct entry *e = &t->entries[index];
    struct tier_write w;
    const struct tier_offer offer = {&e->key, (enum tier_kind)e->kind, e->share, why};
    ASSERT(e->state == ENTRY_WHOLE && why != TIER_IDLE);
    if (!below->arg || below->write_begin(below->arg, &offer, &w) < 0)
        return;
    memcpy(w.bytes, bytes_of(t, index), t->opts.bytes[e->kind]);
    w.pending = e->pending;
    below->write_end(below->arg, &w, true);
}

static void evict(struct pinned_tier *t, uint32_t index)
{
    ASSERT(t->entries[index].reads == 0);
    hand_down(t, index, TIER_EVICTED);
    leave_ages(t, index);
    remove_entry(t, index);
    t->evictions++;
}

/* ---- which entry goes first ---- */

static void share_age(const void *cache, uint32_t entry, struct share_claim *ret)
{
    const struct pinned_tier *t = cache;
    ASSERT(t->entries[entry].used_ns <= t->now_ns);
    ret->age = t->now_ns - t->entries[entry].used_ns;
    ret->stale = ret->age >= STALE_NS;
}

/* Entries of different kinds compare by their shares' bytes. */
static struct share_claim claim_of(const struct pinned_tier *t, uint32_t entry)
{
    struct share_claim claim = {.amount = t->share_bytes[t->entries[entry].share]};
    ASSERT(t->entries[entry].state == ENTRY_WHOLE);
    share_age(t, entry, &claim);
    return claim;
}

/* True if each entry of the chunk is evicted before `limit`. Sets the claim of the last one. */
static bool chunk_loses(const struct pinned_tier *t, uint32_t index, const struct share_claim *limit,
                        struct share_claim *ret)
{
    const struct chunk *c = &t->chunks[index];
    struct share_claim last = {.amount = UINT64_MAX, .age = UINT64_MAX, .stale = true};
    ASSERT(c->state == CHUNK_OPEN && c->busy == 0);
    for (uint32_t i = 0; i < t->slots[c->kind]; i++) {
        uint32_t entry = index * t->slots_max + i;
        if (t->entries[entry].state == ENTRY_FREE)
            continue;
        struct share_claim claim = claim_of(t, entry);
        if (share_claim_loses(limit, &claim))
            return false;
        if (share_claim_loses(&last, &claim))
            last = claim;
    }
    *ret = last;
    return true;
}

/* The chunk to be emptied first, of every kind but this one (TIER_KINDS: of all), used last before then. Its
 * entries are evicted before `limit`, and before the last one of each other chunk. NONE: there is none. */
static uint32_t losing_chunk(const struct pinned_tier *t, enum tier_kind but, uint64_t before_ns,
                             struct share_claim limit)
{
    uint32_t worst = NONE;
    ASSERT(but <= TIER_KINDS);
    for (uint32_t i = 0; i < t->chunks_max; i++) {
        const struct chunk *c = &t->chunks[i];
        if (c->state == CHUNK_OPEN && c->busy == 0 && c->kind != but && c->used_ns < before_ns &&
            chunk_loses(t, i, &limit, &limit))
            worst = i;
    }
    return worst;
}

/* ---- chunks ---- */

static void release_chunk(struct pinned_tier *t, uint32_t index)
{
    struct chunk *c = &t->chunks[index];
    dev_ptr at = dev_add(t->base, (uint64_t)index * t->chunk_bytes);
    ASSERT(c->taken == 0 && c->busy == 0 && c->state != CHUNK_NONE);
    ASSERT(c->committed <= t->chunk_bytes && t->bytes >= t->chunk_bytes);
    if (c->state == CHUNK_OPEN) {
        t->free[c->kind] -= t->slots[c->kind];
        if (t->opts.unpin)
            t->opts.unpin(t->opts.arg, dev_host(at));
    }
    for (uint64_t i = 0; i < c->committed; i += PIECE_BYTES)
        (void)domain_decommit(t->domain, dev_add(at, i), PIECE_BYTES);
    account_unuse(t->opts.account, c->committed);
    account_release(t->opts.account, t->chunk_bytes);
    t->bytes -= t->chunk_bytes;
    *c = (struct chunk){.free = NONE};
}

/* Makes slots of the kind in an open chunk without entries. */
static void form(struct pinned_tier *t, uint32_t index, enum tier_kind kind)
{
    struct chunk *c = &t->chunks[index];
    ASSERT(c->state == CHUNK_OPEN && c->taken == 0);
    ASSERT(t->slots[kind] > 0 && t->slots[kind] <= t->slots_max);
    c->kind = kind;
    c->free = NONE;
    for (uint32_t i = t->slots[kind]; i > 0; i--) {
        uint32_t entry = index * t->slots_max + i - 1;
        t->entries[entry] = (struct entry){.next = c->free};
        c->free = entry;
    }
    t->free[kind] += t->slots[kind];
}

static void empty_chunk(struct pinned_tier *t, uint32_t index, bool offers, uint32_t *entries)
{
    const struct chunk *c = &t->chunks[index];
    ASSERT(c->busy == 0);
    for (uint32_t i = 0; c->taken > 0; i++) {
        uint32_t entry = index * t->slots_max + i;
        ASSERT(i < t->slots[c->kind]);
        if (t->entries[entry].state == ENTRY_FREE)
            continue;
        if (offers) {
            evict(t, entry);
        } else {
            leave_ages(t, entry);
            remove_entry(t, entry);
        }
        ++*entries;
    }
}

static uint32_t find_chunk(const struct pinned_tier *t, enum chunk_state state)
{
    for (uint32_t i = 0; i < t->chunks_max; i++)
        if (t->chunks[i].state == state)
            return i;
    return NONE;
}

/* Reserves another chunk. NONE: there is no room for it. */
static uint32_t begin_chunk(struct pinned_tier *t)
{
    uint32_t index = find_chunk(t, CHUNK_NONE);
    uint64_t bytes = t->bytes + t->chunk_bytes;
    if (index == NONE || (t->opts.allow && t->opts.allow(t->opts.arg, bytes) < bytes) ||
        account_reserve(t->opts.account, t->chunk_bytes) < 0)
        return NONE;
    ASSERT(bytes <= t->opts.bytes_max && index < t->chunks_max);
    t->chunks[index] = (struct chunk){.state = CHUNK_GROWING, .free = NONE};
    t->bytes = bytes;
    return index;
}

static void stop_growing(struct pinned_tier *t)
{
    t->wants = false;
    t->missed = 0;
}

bool pinned_tier_grow(struct pinned_tier *t)
{
    uint32_t index = t->wants ? find_chunk(t, CHUNK_GROWING) : NONE;
    if (t->wants && index == NONE) {
        index = begin_chunk(t);
        t->full = index == NONE;
    }
    if (index == NONE) {
        stop_growing(t);
        return false;
    }
    struct chunk *c = &t->chunks[index];
    dev_ptr at = dev_add(t->base, (uint64_t)index * t->chunk_bytes);
    ASSERT(c->state == CHUNK_GROWING && c->committed < t->chunk_bytes);
    if (domain_commit(t->domain, dev_add(at, c->committed), PIECE_BYTES) < 0) {
        release_chunk(t, index);
        stop_growing(t);
        return false;
    }
    account_use(t->opts.account, PIECE_BYTES);
    c->committed += PIECE_BYTES;
    if (c->committed < t->chunk_bytes)
        return true;
    c->state = CHUNK_OPEN;
    c->used_ns = t->now_ns;
    if (t->opts.pin)
        t->opts.pin(t->opts.arg, dev_host(at), t->chunk_bytes);
    form(t, index, TIER_PAGE);
    t->missed -= MIN_OF(t->missed, t->chunk_bytes);
    t->wants = t->missed > 0;
    return true;
}

/* ---- a place for an entry ---- */

/* A chunk without entries becomes one of the kind. */
static bool convert(struct pinned_tier *t, uint32_t index, enum tier_kind kind)
{
    if (index == NONE)
        return false;
    struct chunk *c = &t->chunks[index];
    ASSERT(c->taken == 0 && t->free[c->kind] >= t->slots[c->kind]);
    t->free[c->kind] -= t->slots[c->kind];
    form(t, index, kind);
    return true;
}

static uint32_t find_unused(const struct pinned_tier *t, enum tier_kind kind)
{
    for (uint32_t i = 0; i < t->chunks_max; i++)
        if (t->chunks[i].state == CHUNK_OPEN && t->chunks[i].taken == 0 && t->chunks[i].kind != kind)
            return i;
    return NONE;
}

/* Empties a chunk of another kind, if all of its entries are evicted before `limit`. */
static bool take_from_another_kind(struct pinned_tier *t, enum tier_kind kind,
                                   const struct share_claim *limit)
{
    uint32_t entries = 0, index = losing_chunk(t, kind, UINT64_MAX, *limit);
    if (index != NONE)
        empty_chunk(t, index, true, &entries);
    return convert(t, index, kind);
}

/* Sees to a free slot of the kind, for a new entry of the share. False: all slots are busy. */
static bool make_room(struct pinned_tier *t, enum tier_kind kind, uint32_t share)
{
    ASSERT(t->opts.bytes[kind] > 0 && share < CACHE_SHARES);
    if (t->free[kind] > 0 || convert(t, find_unused(t, kind), kind))
        return true;
    uint32_t victim = share_list_victim(t->ages[kind], CACHE_SHARES, share_age, t);
    struct share_claim own = {.amount = t->share_bytes[share]};
    struct share_claim claim = victim == NONE ? own : claim_of(t, victim);
    const struct share_claim *first = share_claim_loses(&claim, &own) ? &claim : &own;
    if (t->full && take_from_another_kind(t, kind, first))
        return true;
    t->missed = MIN_OF(t->missed + t->opts.bytes[kind], t->opts.bytes_max);
    if (victim != NONE)
        evict(t, victim);
    return victim != NONE;
}

/* Growth begins before the last slots are taken. */
static uint32_t take_slot(struct pinned_tier *t, enum tier_kind kind, uint32_t share)
{
    uint32_t entry = NONE;
    bool has = make_room(t, kind, share);
    for (uint32_t i = 0; has && entry == NONE; i++) {
        struct chunk *c = &t->chunks[i];
        ASSERT(i < t->chunks_max);
        if (c->state != CHUNK_OPEN || c->kind != kind || c->free == NONE)
            continue;
        entry = c->free;
        c->free = t->entries[entry].next;
        c->taken++;
        c->busy++;
        t->free[kind]--;
    }
    ASSERT((entry != NONE) == has);
    t->wants |= t->free[kind] * 4 <= t->slots[kind];
    return entry;
}

/* ---- the interface ---- */

static bool tier_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    const struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    return pinned_find(t, key, kind) != NONE || (below->arg && below->has(below->arg, key, kind));
}

static void tier_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS])
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    for (uint32_t i = count; i > 0; i--)
        for (enum tier_kind kind = TIER_KINDS; kind-- > 0;) {
            uint32_t entry = i - 1 >= first[kind] ? pinned_find(t, &keys[i - 1], kind) : NONE;
            if (entry != NONE)
                touch(t, entry);
        }
    if (below->arg)
        below->used(below->arg, share, keys, count, first);
}

/* Nanoseconds to read an entry that only the tier below may have. */
static uint64_t read_below_ns(const struct pinned_tier *t, const struct prefix_key *key, enum tier_kind kind)
{
    const struct tier_io *below = t->opts.below;
    uint32_t first[TIER_KINDS];
    for (enum tier_kind k = 0; k < TIER_KINDS; k++)
        first[k] = k == kind ? 0 : 1;
    return below->arg ? below->read_ns(below->arg, key, 1, first) : UINT64_MAX;
}

static uint64_t tier_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                             const uint32_t first[TIER_KINDS])
{
    const struct pinned_tier *t = arg;
    uint64_t sum_ns = 0;
    ASSERT(first[TIER_PAGE] <= count);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        for (uint32_t i = first[kind]; i < count; i++) {
            bool here = pinned_find(t, &keys[i], kind) != NONE;
            uint64_t ns =
                here ? ENTRY_NS + t->opts.bytes[kind] / BYTES_PER_NS : read_below_ns(t, &keys[i], kind);
            if (ns == UINT64_MAX)
                return ns;
            sum_ns += ns;
        }
    return sum_ns;
}

static bool tier_query(void *arg, const struct tier_query *query)
{
    const struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    struct tier_query q = *query;
    ASSERT(q.page_first <= q.count);
    while (q.page_first < q.count && pinned_find(t, &q.keys[q.page_first], TIER_PAGE) != NONE)
        q.page_first++;
    return below->query && below->query(below->arg, &q);
}

static bool tier_queries(void *arg, uint64_t tag)
{
    const struct pinned_tier *t = arg;
    ASSERT(t->reading_count <= PINNED_READINGS);
    return t->opts.below->queries && t->opts.below->queries(t->opts.below->arg, tag);
}

static void tier_common(void *arg, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    const struct pinned_tier *t = arg;
    ASSERT(first[TIER_PAGE] <= count);
    if (t->opts.below->common)
        t->opts.below->common(t->opts.below->arg, keys, count, first);
}

static int tier_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                     uint32_t index)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    uint32_t entry = pinned_find(t, key, kind);
    ASSERT(t->reading_count <= PINNED_READINGS);
    if (entry == NONE)
        return below->arg ? below->read(below->arg, key, kind, tag, index) : -ENOENT;
    if (t->reading_count == PINNED_READINGS)
        return -EAGAIN;
    if (t->entries[entry].reads == 0) {
        leave_ages(t, entry);
        t->chunks[chunk_of(t, entry)].busy++;
    }
    t->entries[entry].reads++;
    t->readings[(t->reading_first + t->reading_count++) % PINNED_READINGS] =
        (struct reading){tag, index, entry};
    t->opts.wake(t->opts.arg);
    return 0;
}

static void end_read(struct pinned_tier *t, uint32_t entry)
{
    struct entry *e = &t->entries[entry];
    ASSERT(e->state == ENTRY_WHOLE && e->reads > 0);
    ASSERT(t->chunks[chunk_of(t, entry)].busy > 0);
    if (--e->reads > 0)
        return;
    t->chunks[chunk_of(t, entry)].busy--;
    enter_ages(t, entry);
}

static void tier_cancel(void *arg, uint64_t tag)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    uint32_t count = t->reading_count;
    t->reading_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct reading r = t->readings[(t->reading_first + i) % PINNED_READINGS];
        if (r.tag == tag)
            end_read(t, r.entry);
        else
            t->readings[(t->reading_first + t->reading_count++) % PINNED_READINGS] = r;
    }
    if (below->arg)
        below->cancel(below->arg, tag);
}

static bool tier_take(void *arg, struct tier_arrival *ret)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    if (t->reading_count == 0)
        return below->arg && below->take(below->arg, ret);
    const struct reading *r = &t->readings[t->reading_first];
    const struct entry *e = &t->entries[r->entry];
    ASSERT(e->state == ENTRY_WHOLE && e->reads > 0);
    *ret = (struct tier_arrival){.tag = r->tag,
                                 .index = r->index,
                                 .kind = (enum tier_kind)e->kind,
                                 .bytes = bytes_of(t, r->entry),
                                 .handle = OWN | r->entry,
                                 .pending = e->pending,
                                 .pinned = true};
    t->reading_first = (t->reading_first + 1) % PINNED_READINGS;
    t->reading_count--;
    t->read++;
    return true;
}

static void tier_give(void *arg, const struct tier_arrival *a)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    if (a->handle & OWN)
        end_read(t, a->handle & ~OWN);
    else
        below->give(below->arg, a);
}

static int tier_write_begin(void *arg, const struct tier_offer *o, struct tier_write *ret)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    ASSERT(t->opts.bytes[o->kind] > 0 && o->share < CACHE_SHARES);
    uint32_t entry = o->why == TIER_EVICTED ? pinned_find(t, o->key, o->kind) : NONE;
    if (entry != NONE) {
        touch(t, entry);
        return -EEXIST;
    }
    if (o->why == TIER_EVICTED)
        entry = take_slot(t, o->kind, o->share);
    if (entry == NONE)
        return below->arg ? below->write_begin(below->arg, o, ret) : -ENODEV;
    t->entries[entry] = (struct entry){
        .key = *o->key, .state = ENTRY_FILLING, .kind = (uint8_t)o->kind, .share = (uint8_t)o->share};
    *ret = (struct tier_write){.bytes = bytes_of(t, entry), .handle = OWN | entry};
    return 0;
}

static void tier_write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct pinned_tier *t = arg;
    const struct tier_io *below = t->opts.below;
    if (!(w->handle & OWN)) {
        below->write_end(below->arg, w, whole);
        return;
    }
    uint32_t index = w->handle & ~OWN;
    struct entry *e = &t->entries[index];
    ASSERT(e->state == ENTRY_FILLING);
    ASSERT(t->chunks[chunk_of(t, index)].busy > 0);
    t->chunks[chunk_of(t, index)].busy--;
    if (!whole) {
        free_slot(t, index);
        return;
    }
    uint32_t *bucket = bucket_of(t, &e->key);
    e->state = ENTRY_WHOLE;
    e->pending = w->pending;
    e->next_same = *bucket;
    *bucket = index;
    t->counts[e->kind]++;
    t->written++;
    enter_ages(t, index);
}

/* ---- life cycle ---- */

static int create_tables(struct arena *a, struct pinned_tier *t, const struct sizes *s)
{
    t->chunks = ARENA_ARRAY(a, struct chunk, s->chunks);
    t->entries = arena_alloc_array(a, (size_t)s->chunks * s->slots, sizeof(struct entry));
    t->buckets = ARENA_ARRAY(a, uint32_t, s->buckets);
    if (!t->chunks || !t->entries || !t->buckets)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->chunks; i++)
        t->chunks[i] = (struct chunk){.free = NONE};
    memset(t->entries, 0, (size_t)s->chunks * s->slots * sizeof(struct entry));
    memset(t->buckets, 0xff, s->buckets * sizeof(uint32_t));
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        size_t bytes = t->opts.bytes[kind];
        t->slots[kind] = bytes ? (uint32_t)MIN_OF(s->chunk_bytes / bytes, s->slots) : 0;
        share_list_init(t->ages[kind], CACHE_SHARES);
    }
    return domain_reserve(t->domain, (uint64_t)s->chunks * s->chunk_bytes, false, &t->base);
}

int pinned_tier_create(struct arena *a, const struct pinned_tier_opts *opts, struct pinned_tier **ret,
                       struct tier_io *io)
{
    struct sizes s = sizes_of(opts);
    struct pinned_tier *t = ARENA_NEW(a, struct pinned_tier);
    ASSERT(s.chunks > 0);
    if (!t)
        return -ENOMEM;
    *t = (struct pinned_tier){.opts = *opts,
                              .domain = account_domain(opts->account),
                              .chunk_bytes = s.chunk_bytes,
                              .chunks_max = s.chunks,
                              .slots_max = s.slots,
                              .bucket_mask = s.buckets - 1};
    int r = create_tables(a, t, &s);
    if (r < 0)
        return r;
    *io = (struct tier_io){.arg = t,
                           .has = tier_has,
                           .used = tier_used,
                           .read_ns = tier_read_ns,
                           .query = tier_query,
                           .queries = tier_queries,
                           .common = tier_common,
                           .read = tier_read,
                           .cancel = tier_cancel,
                           .take = tier_take,
                           .give = tier_give,
                           .write_begin = tier_write_begin,
                           .write_end = tier_write_end};
    *ret = t;
    return 0;
}

void pinned_tier_end(struct pinned_tier *t)
{
    for (uint32_t i = 0; t && i < t->chunks_max * t->slots_max; i++)
        if (t->entries[i].state == ENTRY_WHOLE)
            hand_down(t, i, TIER_END);
}

void pinned_tier_done(struct pinned_tier *t)
{
    uint32_t entries = 0;
    if (!t)
        return;
    while (t->reading_count > 0)
        tier_cancel(t, t->readings[t->reading_first].tag);
    (void)pinned_tier_clear(t, &entries);
    ASSERT(t->bytes == 0);
    (void)domain_release(t->domain, t->base, (uint64_t)t->chunks_max * t->chunk_bytes);
}

/* ---- memory ---- */

void pinned_tier_clock(struct pinned_tier *t, uint64_t now_ns)
{
    t->now_ns = now_ns;
}

/* A chunk that is still growing goes first. */
static bool give_growing(struct pinned_tier *t)
{
    uint32_t index = find_chunk(t, CHUNK_GROWING);
    if (index != NONE)
        release_chunk(t, index);
    return index != NONE;
}

static uint64_t give(struct pinned_tier *t, uint64_t bytes, uint64_t before_ns, bool offers,
                     uint32_t *entries)
{
    uint64_t before = t->bytes;
    stop_growing(t);
    ASSERT(before <= t->opts.bytes_max);
    while (before - t->bytes < bytes) {
        if (give_growing(t))
            continue;
        uint32_t index = losing_chunk(t, TIER_KINDS, before_ns, (struct share_claim){0});
        if (index == NONE)
            break;
        empty_chunk(t, index, offers, entries);
        release_chunk(t, index);
    }
    return before - t->bytes;
}

uint64_t pinned_tier_give(struct pinned_tier *t, uint64_t bytes, uint64_t before_ns, uint32_t *entries)
{
    return give(t, bytes, before_ns, true, entries);
}

uint64_t pinned_tier_clear(struct pinned_tier *t, uint32_t *entries)
{
    return give(t, UINT64_MAX, UINT64_MAX, false, entries);
}

/* ---- looking ---- */

static uint64_t stalest_ns(const struct pinned_tier *t)
{
    uint64_t stalest = UINT64_MAX;
    for (uint32_t i = 0; i < t->chunks_max; i++)
        if (t->chunks[i].state == CHUNK_OPEN && t->chunks[i].busy == 0)
            stalest = MIN_OF(stalest, t->chunks[i].used_ns);
    return stalest == UINT64_MAX ? 0 : stalest;
}

void pinned_tier_numbers(const struct pinned_tier *t, struct pinned_numbers *ret)
{
    *ret = (struct pinned_numbers){.bytes = t->bytes,
                                   .bytes_max = (uint64_t)t->chunks_max * t->chunk_bytes,
                                   .snapshots = t->counts[TIER_SNAPSHOT],
                                   .oldest_ns = stalest_ns(t),
                                   .written = t->written,
                                   .read = t->read,
                                   .evictions = t->evictions};
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        ret->pages += kind == TIER_SNAPSHOT ? 0 : t->counts[kind];
    ASSERT(ret->bytes <= ret->bytes_max);
}
