/* prefix_key.c - SHA-256 through libcrypto's functions of old, which are deprecated and allocate nothing: EVP_DigestInit_ex() of OpenSSL 3.0
 * allocates on each call, and keys are made on the engine's thread. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "cache/prefix_key.h"

#include "base/check.h"
#include "cache/page_pool.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>

_Static_assert(sizeof(struct prefix_picture) == 44, "all its bytes are hashed, and none is padding");

struct prefix_hasher {
    SHA256_CTX context;
};

int prefix_hasher_create(struct prefix_hasher **ret)
{
    struct prefix_hasher *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    *ret = h;
    return 0;
}

void prefix_hasher_free(struct prefix_hasher *h)
{
    free(h);
}

static void begin(struct prefix_hasher *h)
{
    int ok = SHA256_Init(&h->context);
    ASSERT(ok);
}

static void add(struct prefix_hasher *h, const void *bytes, size_t len)
{
    int ok = SHA256_Update(&h->context, bytes, len);
    ASSERT(ok);
}

static struct prefix_key end(struct prefix_hasher *h)
{
    struct prefix_key key;
    int ok = SHA256_Final(key.bytes, &h->context);
    ASSERT(ok);
    return key;
}

struct prefix_key prefix_key_root(struct prefix_hasher *h, const struct slice *parts, uint32_t count)
{
    begin(h);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t len = parts[i].len;
        add(h, &len, sizeof(len));
        add(h, parts[i].ptr, parts[i].len);
    }
    return end(h);
}

struct prefix_key prefix_key_next(struct prefix_hasher *h, const struct prefix_key *parent,
                                  const uint32_t *tokens, const struct prefix_picture *pictures,
                                  uint32_t picture_count)
{
    begin(h);
    add(h, parent->bytes, sizeof(parent->bytes));
    add(h, tokens, PAGE_TOKENS * sizeof(tokens[0]));
    /* What comes before has always the same length, and so has each of these. */
    if (picture_count > 0)
        add(h, pictures, picture_count * sizeof(pictures[0]));
    return end(h);
}
