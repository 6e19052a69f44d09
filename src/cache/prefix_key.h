/* prefix_key.h - all that a page's content depends on, as one number.
 *
 * The key of a page is SHA-256 over its parent's key, its tokens, and each image with a token in the page.
 * The parent of the first page is a root that stands for everything else: the model's fingerprint, the layout
 * and type of K and V, the compute mode, the tenant's salt. Two pages with the same key hold the same bits.
 * An image also decides the positions of all later tokens. Their pages have the image's page among their
 * ancestors. */
#ifndef PLATEAU_CACHE_PREFIX_KEY_H
#define PLATEAU_CACHE_PREFIX_KEY_H

#include "base/slice.h"

struct prefix_key {
    uint8_t bytes[32];
};

/* The root key of `parts`, in order; their boundaries matter. Any thread; hashing allocates nothing. */
struct prefix_key prefix_key_root(const struct slice *parts, uint32_t count);
/* An image among the tokens. Its hash is that of all its pixels after decoding: images with the same first
 * pixels differ. */
struct prefix_image {
    uint8_t sha256[32];
    uint32_t first, rows, columns; /* index of its first token in the sequence; its count of tokens */
};

/* The key of a page with tokens[PAGE_TOKENS] after `parent`. images: those with a token in the page, in
 * order; a page without images has the key of its tokens alone. */
struct prefix_key prefix_key_next(const struct prefix_key *parent, const uint32_t *tokens,
                                  const struct prefix_image *images, uint32_t image_count);

static inline bool prefix_key_eq(const struct prefix_key *a, const struct prefix_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

#endif
