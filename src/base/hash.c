/* hash.c - open addressing with linear probing over XXH3. */
#include "base/hash.h"

#include "base/check.h"
#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t hash_seed;
static pthread_once_t hash_once = PTHREAD_ONCE_INIT;

static void hash_seed_draw(void)
{
    rng_secret(&hash_seed, sizeof(hash_seed));
}

uint64_t hash_bytes(const void *bytes, size_t len)
{
    pthread_once(&hash_once, hash_seed_draw);
    return XXH3_64bits_withSeed(bytes, len, hash_seed);
}

uint64_t hash_bytes_seeded(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

int hash_map_init(struct hash_map *m, struct arena *a, uint32_t count_max)
{
    if (count_max > (uint32_t)1 << 30)
        return -ENOMEM;
    uint32_t log2 = 4;
    while (((uint64_t)3 << log2) < (uint64_t)count_max * 4)
        log2++;
    struct hash_map_slot *slots = ARENA_ARRAY(a, struct hash_map_slot, (size_t)1 << log2);
    if (!slots)
        return -ENOMEM;
    *m = (struct hash_map){.slots_log2 = log2, .slots = slots};
    return 0;
}

/* The key's slot, or the empty one where it would go. The table is never full. */
static struct hash_map_slot *hash_map_find(const struct hash_map *m, struct slice key)
{
    uint64_t mask = ((uint64_t)1 << m->slots_log2) - 1;
    for (uint64_t i = hash_bytes(key.ptr, key.len);; i++) {
        struct hash_map_slot *s = &m->slots[i & mask];
        if (!s->key || slice_eq((struct slice){s->key, s->key_len}, key))
            return s;
    }
}

bool hash_map_add(struct hash_map *m, struct slice key, uint32_t value)
{
    ASSERT(m->count < ((uint32_t)1 << m->slots_log2) - 1 && key.len <= UINT32_MAX);
    struct hash_map_slot *s = hash_map_find(m, key);
    if (s->key)
        return false;
    *s = (struct hash_map_slot){key.ptr ? key.ptr : "", (uint32_t)key.len, value};
    m->count++;
    return true;
}

bool hash_map_get(const struct hash_map *m, struct slice key, uint32_t *ret)
{
    struct hash_map_slot *s = hash_map_find(m, key);
    if (!s->key)
        return false;
    *ret = s->value;
    return true;
}
