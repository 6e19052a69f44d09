/* pinned_check.c - the invariants of pinned memory. */
#include "cache/pinned_state.h"

/* Returns the entries of the chunk that are whole. */
static uint32_t check_chunk(const struct pinned_tier *t, uint32_t index)
{
    const struct chunk *c = &t->chunks[index];
    uint32_t taken = 0, busy = 0, whole = 0;
    for (uint32_t i = 0; c->state == CHUNK_OPEN && i < t->slots[c->kind]; i++) {
        const struct entry *e = &t->entries[index * t->slots_max + i];
        taken += e->state != ENTRY_FREE;
        busy += e->state == ENTRY_FILLING || e->reads > 0;
        whole += e->state == ENTRY_WHOLE;
        ASSERT_OF(e->state == ENTRY_FREE || e->kind == c->kind, "pinned chunk %u: entry %u is of kind %u",
                  index, i, e->kind);
        ASSERT_OF(e->state != ENTRY_WHOLE || pinned_find(t, &e->key, c->kind) == index * t->slots_max + i,
                  "pinned chunk %u: entry %u is not found by its key", index, i);
    }
    ASSERT_OF(taken == c->taken && busy == c->busy, "pinned chunk %u: %u entries, %u busy; %u and %u counted",
              index, taken, busy, c->taken, c->busy);
    ASSERT_OF(c->committed == (c->state == CHUNK_OPEN ? t->chunk_bytes : c->committed % t->chunk_bytes),
              "pinned chunk %u: %llu bytes committed", index, (ull)c->committed);
    return whole;
}

void pinned_tier_check(const struct pinned_tier *t)
{
    uint32_t whole = 0, chunks = 0, counted = 0, aged = 0, reads = 0;
    uint64_t committed = 0;
    for (uint32_t i = 0; i < t->chunks_max; i++) {
        whole += check_chunk(t, i);
        chunks += t->chunks[i].state != CHUNK_NONE;
        committed += t->chunks[i].committed;
    }
    for (uint32_t i = 0; i < t->chunks_max * t->slots_max; i++)
        reads += t->entries[i].reads > 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        counted += t->counts[kind];
        for (uint32_t share = 0; share < CACHE_SHARES; share++)
            aged += (uint32_t)t->ages[kind][share].amount;
    }
    ASSERT_OF(whole == counted && whole == aged + reads,
              "%u pinned entries, %u counted, %u by age, %u being read", whole, counted, aged, reads);
    for (uint32_t share = 0; share < CACHE_SHARES; share++) {
        uint64_t bytes = 0;
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
            bytes += t->ages[kind][share].amount * t->opts.bytes[kind];
        ASSERT_OF(bytes == t->share_bytes[share], "share %u: %llu pinned bytes, %llu counted", share,
                  (ull)bytes, (ull)t->share_bytes[share]);
    }
    ASSERT(chunks == count_chunks(t) && t->bytes <= t->opts.bytes_max);
    struct account_numbers n = account_numbers(t->opts.account);
    ASSERT_OF(n.reserved >= t->bytes && n.used == committed, "account %s: %llu bytes used, chunks have %llu",
              n.name, (ull)n.used, (ull)committed);
}
