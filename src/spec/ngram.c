/* ngram.c - pairs of tokens in chains, the latest first.
 *
 * A chain links the places of pairs with one hash. Longer keys would find long matches at once, but each
 * length needs a table. A walk over some places of a pair, comparing backwards, finds the longest match
 * with one table. */
#include "spec/ngram.h"

#include "base/check.h"
#include "base/hash.h"

#include <errno.h>

#define PLACES_MAX 16 /* places compared per draft */
#define ALIKE_MAX  16 /* tokens compared at each */
#define PAIR       2

struct ngram {
    uint32_t count, linked; /* tokens seen; tokens [0, linked) are the last of a pair that has its chain */
    uint32_t tokens_max, mask;
    uint32_t *heads;  /* [mask + 1]: the latest place; 0: none, for no pair ends there */
    uint32_t *before; /* [tokens_max]: the place before it */
};

size_t ngram_bytes(uint32_t tokens_max)
{
    size_t tables = ((size_t)hash_buckets(32, tokens_max) + tokens_max) * sizeof(uint32_t);
    return sizeof(struct ngram) + tables + 3 * (size_t)64;
}

int ngram_create(struct arena *a, uint32_t tokens_max, struct ngram **ret)
{
    struct ngram *n = ARENA_NEW(a, struct ngram);
    if (!n)
        return -ENOMEM;
    uint32_t heads = hash_buckets(32, tokens_max);
    ASSERT(heads > 0 && (heads & (heads - 1)) == 0);
    n->tokens_max = tokens_max;
    n->mask = heads - 1;
    n->linked = PAIR - 1;
    n->heads = ARENA_ARRAY(a, uint32_t, heads);
    n->before = ARENA_ARRAY(a, uint32_t, tokens_max);
    if (!n->heads || !n->before)
        return -ENOMEM;
    *ret = n;
    return 0;
}

/* Returns the table's entry for the pair whose last token is at `at`. */
static uint32_t *head_of(const struct ngram *n, const uint32_t *tokens, uint32_t at)
{
    ASSERT(at > 0 && at < n->tokens_max);
    uint64_t pair = (uint64_t)tokens[at - 1] << 32 | tokens[at];
    return &n->heads[(pair * 0x9e3779b97f4a7c15ull >> 32) & n->mask];
}

/* A pair is linked once something follows it: only then is it of use. */
void ngram_see(struct ngram *n, const uint32_t *tokens, uint32_t count)
{
    ASSERT(count >= n->count && count <= n->tokens_max);
    n->count = count;
    for (; n->linked + 1 < count; n->linked++) {
        uint32_t *head = head_of(n, tokens, n->linked);
        n->before[n->linked] = *head;
        *head = n->linked;
    }
}

/* Tokens alike, backwards from the two places on; place < end. */
static uint32_t alike(const uint32_t *tokens, uint32_t place, uint32_t end)
{
    uint32_t count = 0;
    while (count <= place && count < ALIKE_MAX && tokens[place - count] == tokens[end - count])
        count++;
    return count;
}

uint32_t ngram_draft(const struct ngram *n, const uint32_t *tokens, uint32_t wanted, uint32_t *ret)
{
    if (n->count <= PAIR)
        return 0;
    uint32_t end = n->count - 1, best = 0, length = PAIR - 1;
    uint32_t place = *head_of(n, tokens, end);
    for (uint32_t i = 0; place != 0 && i < PLACES_MAX && length < ALIKE_MAX; i++) {
        ASSERT(place < end);
        uint32_t l = alike(tokens, place, end);
        if (l > length) {
            length = l;
            best = place;
        }
        place = n->before[place];
    }
    if (best == 0)
        return 0;
    uint32_t count = MIN_OF(wanted, length);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = best + 1 + i;
        ret[i] = at < n->count ? tokens[at] : ret[at - n->count];
    }
    return count;
}
