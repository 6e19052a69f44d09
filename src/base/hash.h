/* hash.h - hashing for tables, and a table from byte strings to numbers.
 *
 * XXH3 with a seed drawn at start, so that a client cannot choose keys that collide. */
#ifndef PLATEAU_BASE_HASH_H
#define PLATEAU_BASE_HASH_H

#include "base/arena.h"
#include "base/slice.h"

uint64_t hash_bytes(const void *bytes, size_t len);
/* With a seed of the caller's: the same in every process. */
uint64_t hash_bytes_seeded(const void *bytes, size_t len, uint64_t seed);
/* The tenant's share of `shares`. Tenants with one hash have one share. */
static inline uint32_t hash_share(uint64_t tenant, uint32_t shares)
{
    return (uint32_t)(hash_bytes(&tenant, sizeof(tenant)) % shares);
}

/* Buckets of a table of `count` entries: the least power of two from `least` on that is no less. */
static inline uint32_t hash_buckets(uint32_t least, uint32_t count)
{
    uint32_t n = least;
    while (n < count && n < 1u << 31)
        n *= 2;
    return n;
}

/* A table from byte strings to 32-bit numbers, built once and then only read (vocabularies, names).
 * Keys are not copied: they outlive the table. Reading is safe from any thread once building is over. */
struct hash_map {
    uint32_t slots_log2, count;
    struct hash_map_slot *slots;
};
struct hash_map_slot {
    const char *key; /* NULL: empty */
    uint32_t key_len, value;
};

/* Room for `count_max` keys in `a`: 16 bytes for each of at least count_max * 4 / 3 slots, a power of two.
 * 0 or -ENOMEM. */
int hash_map_init(struct hash_map *m, struct arena *a, uint32_t count_max);
/* False when the key is there already (nothing changes). */
bool hash_map_add(struct hash_map *m, struct slice key, uint32_t value);
/* False when absent: *ret is untouched. */
bool hash_map_get(const struct hash_map *m, struct slice key, uint32_t *ret);

#endif
