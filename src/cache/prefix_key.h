/* prefix_key.h - what a page's content depends on, as one number.
 *
 * The key of a page is SHA-256 over its parent's key and its tokens; the first page's parent is a root that stands for
 * everything else: the model's fingerprint, the layout and type of K and V, the compute mode, the tenant's salt. Two
 * pages with the same key hold the same bits. */
#ifndef PLATEAU_CACHE_PREFIX_KEY_H
#define PLATEAU_CACHE_PREFIX_KEY_H

#include "base/slice.h"

struct prefix_key {
    uint8_t bytes[32];
};

/* One thread at a time; hashing allocates nothing. */
struct prefix_hasher;

/* 0 or -ENOMEM. 240 bytes of the general heap (OpenSSL 3.0). */
int prefix_hasher_create(struct prefix_hasher **ret);
void prefix_hasher_free(struct prefix_hasher *h);

/* The root of all that is described by `parts`, in their order; where one ends matters. */
struct prefix_key prefix_key_root(struct prefix_hasher *h, const struct slice *parts, uint32_t count);
/* The key of a page with tokens[PAGE_TOKENS] after `parent`. */
struct prefix_key prefix_key_next(struct prefix_hasher *h, const struct prefix_key *parent,
                                  const uint32_t *tokens);

static inline bool prefix_key_eq(const struct prefix_key *a, const struct prefix_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

#endif
