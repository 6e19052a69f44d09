/* mask_cache.c - the masks of positions with one thread.
 *
 * Such a mask is a function of the state and of the row where its terminals began; of the state alone, when
 * no token of the vocabulary goes beyond a terminal's end. Inside of a string the same row and state come
 * back with every token. When all entries are used, the one that was used last the longest ago goes. */
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "grammar/grammar_vocab.h"

#include <errno.h>

enum { ENTRIES_MAX = 64 };

struct mask_entry {
    uint64_t uid, used;
    uint32_t state, generation; /* generation 0: empty */
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

const uint32_t *mask_cache_find(struct matcher_tables *t, uint64_t uid, uint32_t state, uint32_t *count)
{
    struct mask_cache *c = t->cache;
    for (uint32_t i = 0; i < c->count; i++) {
        struct mask_entry *e = &c->entries[i];
        if (e->generation == t->generation && e->state == state && (e->uid == 0 || e->uid == uid)) {
            e->used = ++c->clock;
            *count = e->tokens;
            return c->bits + (size_t)i * t->vocab->words;
        }
    }
    return NULL;
}

void mask_cache_put(struct matcher_tables *t, uint64_t uid, uint32_t state, const uint32_t *bits,
                    uint32_t count)
{
    struct mask_cache *c = t->cache;
    uint32_t oldest = 0;
    ASSERT(c->count <= ENTRIES_MAX && (state & STATE_ACCEPTS) == 0);
    for (uint32_t i = 1; i < c->count; i++)
        if (c->entries[i].used < c->entries[oldest].used)
            oldest = i;
    if (c->count == 0)
        return;
    c->entries[oldest] = (struct mask_entry){uid, ++c->clock, state, t->generation, count};
    memcpy(c->bits + (size_t)oldest * t->vocab->words, bits, t->vocab->words * sizeof(uint32_t));
}
