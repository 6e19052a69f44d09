/* messages_signature.c - signatures of thinking blocks. Clients require one and send it back. The server
 * accepts any, since a conversation may begin on another server. */
#include "api/wire/messages.h"

#include "base/check.h"
#include "base/rng.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>

static unsigned char key[32];
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    rng_secret(key, sizeof(key));
}

/* digest = HMAC(key, digest || block) */
static void fold(struct messages_signature *s)
{
    unsigned char text[sizeof(s->digest) + sizeof(s->block)];
    unsigned len = sizeof(s->digest);
    memcpy(text, s->digest, sizeof(s->digest));
    memcpy(text + sizeof(s->digest), s->block, s->used);
    const unsigned char *done =
        HMAC(EVP_sha256(), key, (int)sizeof(key), text, sizeof(s->digest) + s->used, s->digest, &len);
    ASSERT(done && len == sizeof(s->digest));
    s->used = 0;
}

void messages_signature_begin(struct messages_signature *s)
{
    pthread_once(&key_once, draw_key);
    *s = (struct messages_signature){.used = 0};
}

void messages_signature_add(struct messages_signature *s, struct slice text)
{
    while (text.len > 0) {
        size_t n = MIN_OF(text.len, sizeof(s->block) - s->used);
        memcpy(s->block + s->used, text.ptr, n);
        s->used += (uint32_t)n;
        text = slice_sub(text, n, text.len);
        if (s->used == sizeof(s->block))
            fold(s);
    }
}

void messages_signature_end(struct messages_signature *s, char ret[MESSAGES_SIGNATURE_BYTES])
{
    fold(s);
    int n = EVP_EncodeBlock((unsigned char *)ret, s->digest, (int)sizeof(s->digest));
    ASSERT(n > 0 && n < MESSAGES_SIGNATURE_BYTES);
}
