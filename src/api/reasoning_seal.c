/* reasoning_seal.c - a signature, then the text, both in base64. Another server's content does not have the
 * signature, so it is recognised and dropped. */
#include "api/reasoning_seal.h"

#include "api/wire/messages.h"

#include "base/check.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define SIGNATURE_CHARS 44   /* 32 bytes in base64 */
#define CHUNK_BYTES     3072 /* a multiple of 3 */
#define CHUNK_CHARS     (CHUNK_BYTES / 3 * 4)

typedef void sign_fn(struct slice text, char ret[MESSAGES_SIGNATURE_BYTES]);

static void sign_here(struct slice text, char ret[MESSAGES_SIGNATURE_BYTES])
{
    struct messages_signature s;
    messages_signature_begin(&s);
    messages_signature_add(&s, text);
    messages_signature_end(&s, ret);
    ASSERT(strlen(ret) == SIGNATURE_CHARS);
}

/* HMAC with a key that all servers have. */
static void sign_anywhere(struct slice text, char ret[MESSAGES_SIGNATURE_BYTES])
{
    static const char name[] = "plateau summary";
    unsigned char digest[32];
    unsigned len = sizeof(digest);
    const unsigned char *done =
        HMAC(EVP_sha256(), name, (int)strlen(name), (const unsigned char *)text.ptr, text.len, digest, &len);
    ASSERT(done && len == sizeof(digest));
    int n = EVP_EncodeBlock((unsigned char *)ret, digest, (int)sizeof(digest));
    ASSERT(n == SIGNATURE_CHARS);
}

static void seal(struct slice text, sign_fn *sign, struct buf *ret)
{
    char signature[MESSAGES_SIGNATURE_BYTES];
    unsigned char chars[CHUNK_CHARS + 1];
    sign(text, signature);
    buf_puts(ret, signature);
    for (size_t at = 0; at < text.len; at += CHUNK_BYTES) {
        struct slice piece = slice_sub(text, at, CHUNK_BYTES);
        int n = EVP_EncodeBlock(chars, (const unsigned char *)piece.ptr, (int)piece.len);
        ASSERT(n > 0 && n <= CHUNK_CHARS);
        buf_put(ret, chars, (size_t)n);
    }
}

/* One chunk; padding only at the end of the whole. */
static bool decode(struct slice chars, bool last, struct buf *ret)
{
    unsigned char bytes[CHUNK_BYTES];
    size_t padding = 0;
    while (padding < 2 && chars.ptr[chars.len - 1 - padding] == '=')
        padding++;
    int n = EVP_DecodeBlock(bytes, (const unsigned char *)chars.ptr, (int)chars.len);
    if (n < 0 || (size_t)n < padding || (padding > 0 && !last))
        return false;
    buf_put(ret, bytes, (size_t)n - padding);
    return true;
}

static bool unseal(struct slice sealed, sign_fn *sign, struct buf *ret)
{
    char signature[MESSAGES_SIGNATURE_BYTES];
    bool ok = sealed.len >= SIGNATURE_CHARS && sealed.len % 4 == 0;
    for (size_t at = SIGNATURE_CHARS; ok && at < sealed.len; at += CHUNK_CHARS)
        ok = decode(slice_sub(sealed, at, CHUNK_CHARS), at + CHUNK_CHARS >= sealed.len, ret);
    if (ok && ret->error == 0) {
        sign(buf_slice(ret), signature);
        ok = slice_eq(slice_sub(sealed, 0, SIGNATURE_CHARS), slice_of(signature));
    }
    if (!ok)
        buf_clear(ret);
    return ok;
}

void reasoning_seal(struct slice text, struct buf *ret)
{
    seal(text, sign_here, ret);
}

bool reasoning_unseal(struct slice sealed, struct buf *ret)
{
    return unseal(sealed, sign_here, ret);
}

void summary_seal(struct slice text, struct buf *ret)
{
    seal(text, sign_anywhere, ret);
}

bool summary_unseal(struct slice sealed, struct buf *ret)
{
    return unseal(sealed, sign_anywhere, ret);
}
