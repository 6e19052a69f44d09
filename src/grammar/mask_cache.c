/* mask_cache.c - the masks of positions with few threads.
 *
 * Such a mask is a function of the states and of what the rows are like where their terminals began; of the
 * states alone, when no token of the vocabulary goes beyond a terminal's end. Inside of a string, and in text
 * up to a marker, the same rows and states come back with every token. When all entries are used, the least
 * recently used one goes. */
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"

#include "base/check.h"

#include <errno.h>

enum { ENTRIES_MAX = 64 };

struct mask_entry {
    struct mask_key key;
    uint64_t used;
    uint32_t generation; /* 0: empty */
    uint32_t tokens;
};

struct mask_cache {
    struct mask_entry entries[ENTRIES_MAX];
    uint32_t count;
    uint64_t clock;
    uint32_t *bits; /* [count][words] */
};

int mask_cache_create(struct matcher_tables *t, size_t bytes)
{
    struct mask_cache *c = ARENA_NEW(t->arena, struct mask_cache);
    size_t each = t->vocab->words * sizeof(uint32_t);
    ASSERT(!t->cache);
    if (!c)
        return -ENOMEM;
    c->count = (uint32_t)(each ? MIN_OF(bytes / each, (size_t)ENTRIES_MAX) : 0);
    c->bits = ARENA_ARRAY(t->arena, uint32_t, c->count * (size_t)t->vocab->words);
    if (!c->bits)
        return -ENOMEM;
    t->cache = c;
    return 0;
}

static bool fits(const struct mask_key *entry, const struct mask_key *key)
{
    size_t states = key->count * sizeof(*key->states), likes = key->count * sizeof(*key->likes);
    return entry->count == key->count && memcmp(entry->states, key->states, states) == 0 &&
           (entry->likes[0] == 0 || memcmp(entry->likes, key->likes, likes) == 0);
}

const uint32_t *mask_cache_find(struct matcher_tables *t, const struct mask_key *key, uint32_t *count)
{
    struct mask_cache *c = t->cache;
    ASSERT(key->count >= 1 && key->count <= MASK_KEY_MAX);
    for (uint32_t i = 0; i < c->count; i++) {
        struct mask_entry *e = &c->entries[i];
        if (e->generation == t->generation && fits(&e->key, key)) {
            e->used = ++c->clock;
            *count = e->tokens;
            return c->bits + (size_t)i * t->vocab->words;
        }
    }
    return NULL;
}

void mask_cache_put(struct matcher_tables *t, const struct mask_key *key, const uint32_t *bits,
                    uint32_t count)
{
    struct mask_cache *c = t->cache;
    uint32_t oldest = 0;
    ASSERT(c->count <= ENTRIES_MAX && key->count >= 1 && key->count <= MASK_KEY_MAX);
    for (uint32_t i = 1; i < c->count; i++)
        if (c->entries[i].used < c->entries[oldest].used)
            oldest = i;
    if (c->count == 0)
        return;
    c->entries[oldest] = (struct mask_entry){*key, ++c->clock, t->generation, count};
    memcpy(c->bits + (size_t)oldest * t->vocab->words, bits, t->vocab->words * sizeof(uint32_t));
}
