/* prefix_key.c - SHA-256 of libnettle, whose context is a plain struct.
 *
 * An engine's thread may not allocate, and libcrypto 3.0 allocates in every EVP_DigestInit_ex. */
#include "cache/prefix_key.h"

#include "base/check.h"
#include "base/page_tokens.h"

#include <nettle/sha2.h>

_Static_assert(sizeof(struct prefix_image) == 44, "all its bytes are hashed, and none is padding");
_Static_assert(sizeof(struct prefix_key) == SHA256_DIGEST_SIZE, "a key is a whole digest");

static void add(struct sha256_ctx *c, const void *bytes, size_t len)
{
    sha256_update(c, len, bytes);
}

static struct prefix_key end(struct sha256_ctx *c)
{
    struct prefix_key key;
    sha256_digest(c, sizeof(key.bytes), key.bytes);
    return key;
}

struct prefix_key prefix_key_root(const struct slice *parts, uint32_t count)
{
    ASSERT(count > 0);
    struct sha256_ctx c;
    sha256_init(&c);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t len = parts[i].len;
        add(&c, &len, sizeof(len));
        add(&c, parts[i].ptr, parts[i].len);
    }
    return end(&c);
}

struct prefix_key prefix_key_next(const struct prefix_key *parent, const uint32_t *tokens,
                                  const struct prefix_image *images, uint32_t image_count)
{
    ASSERT((image_count == 0) == (images == NULL));
    struct sha256_ctx c;
    sha256_init(&c);
    add(&c, parent->bytes, sizeof(parent->bytes));
    add(&c, tokens, PAGE_TOKENS * sizeof(tokens[0]));
    /* The data before has a fixed length, and so has each of these. */
    if (image_count > 0)
        add(&c, images, image_count * sizeof(images[0]));
    return end(&c);
}
