/* prefix_key.h - what a page's content depends on, as one number.
 *
 * The key of a page is SHA-256 over its parent's key, its tokens, and each image that some of them stand
 * for; the first page's parent is a root that stands for everything else: the model's fingerprint, the layout
 * and type of K and V, the compute mode, the tenant's salt. Two pages with the same key hold the same bits. A
 * image decides the positions of all tokens behind it as well: their pages have its page among their
 * parents. */
#ifndef PLATEAU_CACHE_PREFIX_KEY_H
#define PLATEAU_CACHE_PREFIX_KEY_H

#include "base/slice.h"

struct prefix_key {
    uint8_t bytes[32];
};

/* Any thread; hashing allocates nothing. The root of all that is described by `parts`, in their order; where
 * one ends matters. */
struct prefix_key prefix_key_root(const struct slice *parts, uint32_t count);
/* A image among the tokens. Its hash is that of all its pixels, as they were decoded: images that begin
 * alike are two. */
struct prefix_image {
    uint8_t sha256[32];
    uint32_t first, rows, columns; /* index of its first token in the sequence, and how many it has */
};

/* The key of a page with tokens[PAGE_TOKENS] after `parent`. images: those that have a token in it, in
 * their order; a page without any has the key of its tokens alone. */
struct prefix_key prefix_key_next(const struct prefix_key *parent, const uint32_t *tokens,
                                  const struct prefix_image *images, uint32_t image_count);

static inline bool prefix_key_eq(const struct prefix_key *a, const struct prefix_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

#endif
