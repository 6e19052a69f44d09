/* prefix_key.c - SHA-256 through libcrypto: the algorithm is fetched once and the context reused, because looking it up
 * costs more than hashing a page's 160 bytes. */
#include "cache/prefix_key.h"

#include "base/check.h"
#include "cache/page_pool.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>

_Static_assert(sizeof(struct prefix_picture) == 44, "all its bytes are hashed, and none is padding");

struct prefix_hasher {
    EVP_MD *sha256;
    EVP_MD_CTX *context;
};

int prefix_hasher_create(struct prefix_hasher **ret)
{
    struct prefix_hasher *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    h->context = EVP_MD_CTX_new();
    /* The first use allocates; later ones do not. */
    if (!h->sha256 || !h->context || !EVP_DigestInit_ex(h->context, h->sha256, NULL)) {
        prefix_hasher_free(h);
        return -ENOMEM;
    }
    *ret = h;
    return 0;
}

void prefix_hasher_free(struct prefix_hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->context);
    EVP_MD_free(h->sha256);
    free(h);
}

static void begin(struct prefix_hasher *h)
{
    int ok = EVP_DigestInit_ex(h->context, NULL, NULL);
    ASSERT(ok);
}

static void add(struct prefix_hasher *h, const void *bytes, size_t len)
{
    int ok = EVP_DigestUpdate(h->context, bytes, len);
    ASSERT(ok);
}

static struct prefix_key end(struct prefix_hasher *h)
{
    struct prefix_key key;
    int ok = EVP_DigestFinal_ex(h->context, key.bytes, NULL);
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
