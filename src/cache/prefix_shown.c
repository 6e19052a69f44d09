/* prefix_shown.c - open addressing, at most half full. A removal moves later entries of the run forward, so
 * that no run grows with the number of removals. Keys are uniform: their bits are the hash. */
#include "cache/prefix_shown.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/hash.h"

#include <errno.h>
#include <string.h>

#define TAKEN    ((uint64_t)1)
#define SNAPSHOT ((uint64_t)2)

static uint32_t slots_of(uint32_t nodes_max)
{
    return 2 * hash_buckets(16, MIN_OF(nodes_max, 1u << 30));
}

size_t prefix_shown_bytes(uint32_t nodes_max)
{
    return slots_of(nodes_max) * sizeof(uint64_t) + 64;
}

int prefix_shown_create(struct arena *a, uint32_t nodes_max, struct prefix_shown *ret)
{
    uint32_t count = slots_of(nodes_max);
    ASSERT(nodes_max > 0 && (count & (count - 1)) == 0);
    _Atomic uint64_t *slots = ARENA_ARRAY(a, _Atomic uint64_t, count);
    if (!slots)
        return -ENOMEM;
    *ret = (struct prefix_shown){slots, count - 1};
    return 0;
}

/* The key's entry without a snapshot. */
static uint64_t entry_of(const struct prefix_key *key)
{
    uint64_t bits;
    memcpy(&bits, key->bytes + 8, sizeof(bits));
    return (bits & ~(TAKEN | SNAPSHOT)) | TAKEN;
}

static uint64_t read_slot(const struct prefix_shown *s, uint32_t at)
{
    ASSERT(at <= s->mask);
    return atomic_load_explicit(&s->slots[at], memory_order_relaxed);
}

static void write_slot(struct prefix_shown *s, uint32_t at, uint64_t entry)
{
    ASSERT(at <= s->mask && (entry == 0 || entry & TAKEN));
    atomic_store_explicit(&s->slots[at], entry, memory_order_relaxed);
}

static uint32_t home_of(const struct prefix_shown *s, uint64_t entry)
{
    ASSERT(entry & TAKEN);
    return (uint32_t)(entry >> 32) & s->mask;
}

/* The slot with the entry, or the free one behind its run. While the writer moves entries a reader may see
 * no free slot; the bound ends its search. */
static uint32_t slot_of(const struct prefix_shown *s, uint64_t entry, uint64_t *ret)
{
    uint32_t at = home_of(s, entry);
    ASSERT(!(entry & SNAPSHOT));
    for (uint32_t looks = 0; looks <= s->mask; looks++, at = (at + 1) & s->mask) {
        *ret = read_slot(s, at);
        if (*ret == 0 || (*ret & ~SNAPSHOT) == entry)
            return at;
    }
    *ret = 0;
    return at;
}

void prefix_shown_add(struct prefix_shown *s, const struct prefix_key *key)
{
    if (!s->slots)
        return;
    uint64_t entry = entry_of(key);
    uint32_t at = home_of(s, entry), looks = 0;
    for (; read_slot(s, at) != 0; at = (at + 1) & s->mask)
        ASSERT(looks++ < s->mask / 2); /* one of `nodes_max` at most */
    write_slot(s, at, entry);
}

void prefix_shown_remove(struct prefix_shown *s, const struct prefix_key *key)
{
    uint64_t entry;
    if (!s->slots)
        return;
    uint32_t hole = slot_of(s, entry_of(key), &entry);
    ASSERT(entry != 0);
    for (uint32_t at = (hole + 1) & s->mask; (entry = read_slot(s, at)) != 0; at = (at + 1) & s->mask) {
        /* An entry may fill the hole if its run begins there or before. */
        if (((at - home_of(s, entry)) & s->mask) < ((at - hole) & s->mask))
            continue;
        write_slot(s, hole, entry);
        hole = at;
    }
    write_slot(s, hole, 0);
}

void prefix_shown_snapshot(struct prefix_shown *s, const struct prefix_key *key, bool has)
{
    uint64_t entry;
    if (!s->slots)
        return;
    uint32_t at = slot_of(s, entry_of(key), &entry);
    ASSERT(entry != 0);
    write_slot(s, at, has ? entry | SNAPSHOT : entry & ~SNAPSHOT);
}

bool prefix_shown_find(const struct prefix_shown *s, const struct prefix_key *key, bool *snapshot)
{
    uint64_t entry = 0;
    if (s->slots)
        (void)slot_of(s, entry_of(key), &entry);
    *snapshot = (entry & SNAPSHOT) != 0;
    return entry != 0;
}
