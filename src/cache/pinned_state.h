/* pinned_state.h - the structures of pinned memory; for its files only. */
#ifndef PLATEAU_CACHE_PINNED_STATE_H
#define PLATEAU_CACHE_PINNED_STATE_H

#include "cache/pinned_tier.h"
#include "cache/prefix_key.h"
#include "cache/share_list.h"

#include "base/check.h"
#include "memory/dev.h"

#define PINNED_READINGS 1024u

enum entry_state { ENTRY_FREE, ENTRY_FILLING, ENTRY_WHOLE };
enum chunk_state { CHUNK_NONE, CHUNK_GROWING, CHUNK_OPEN };

struct entry {
    struct prefix_key key;
    uint64_t used_ns;
    uint32_t next_same;  /* in its bucket */
    uint32_t next, prev; /* in the list of its kind and share; next: of a free one, in its chunk */
    uint32_t pending, reads;
    uint8_t state, kind, share;
};

struct chunk {
    enum chunk_state state;
    enum tier_kind kind;  /* with entries */
    uint32_t taken, free; /* entries that are not free; the first free one, NONE: none */
    uint32_t busy;        /* entries being filled or read */
    uint64_t used_ns;     /* when its newest entry was used */
    uint64_t committed;   /* bytes */
};

struct reading {
    uint64_t tag;
    uint32_t index, entry;
};

struct pinned_tier {
    /* Constant. */
    struct pinned_tier_opts opts;
    const struct domain *domain;
    dev_ptr base;
    size_t chunk_bytes;
    uint32_t chunks_max, slots_max, bucket_mask;
    uint32_t slots[TIER_KINDS]; /* entries of a chunk */
    /* Engine thread only. */
    struct chunk *chunks;                             /* [chunks_max] */
    struct entry *entries;                            /* [chunks_max * slots_max] */
    uint32_t *buckets;                                /* [bucket_mask + 1] */
    struct share_list ages[TIER_KINDS][CACHE_SHARES]; /* amounts: entries */
    uint64_t share_bytes[CACHE_SHARES];               /* in those lists, all kinds together */
    struct reading readings[PINNED_READINGS];         /* a ring */
    uint32_t reading_first, reading_count;
    uint32_t free[TIER_KINDS]; /* free slots of open chunks */
    uint32_t counts[TIER_KINDS];
    uint64_t now_ns, bytes;
    uint64_t missed; /* bytes of entries that were lost or displaced another one, and have no new chunk yet */
    bool wants;      /* entries lack room, or soon will */
    bool full;       /* the last try to get another chunk failed */
    uint64_t written, read, evictions;
};

_Static_assert(sizeof(struct entry) <= 72 && sizeof(struct chunk) <= 40,
               "pinned_tier.h says what these take");
_Static_assert(sizeof(struct pinned_tier) <= 40 << 10, "pinned_tier.h says what it takes");

static inline uint32_t chunk_of(const struct pinned_tier *t, uint32_t entry)
{
    ASSERT(entry / t->slots_max < t->chunks_max);
    return entry / t->slots_max;
}

static inline uint32_t count_chunks(const struct pinned_tier *t)
{
    ASSERT(t->bytes % t->chunk_bytes == 0);
    return (uint32_t)(t->bytes / t->chunk_bytes);
}

/* The entry with this key and kind, or NONE. */
uint32_t pinned_find(const struct pinned_tier *t, const struct prefix_key *key, enum tier_kind kind);

#endif
