/* shared_value.c - HMAC-SHA256 derives names and keys, AES-256-GCM encrypts. */
#include "store/shared_value.h"

#include "base/check.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

struct derived {
    uint8_t bytes[32];
};

static struct derived derive(const void *key, size_t key_bytes, const void *text, size_t len)
{
    struct derived ret;
    unsigned got = 0;
    const unsigned char *done = HMAC(EVP_sha256(), key, (int)key_bytes, text, len, ret.bytes, &got);
    ASSERT(done && got == sizeof(ret.bytes));
    return ret;
}

void shared_secret_init(struct shared_secret *s, const void *secret, size_t len)
{
    static const char none[] = "plateau shared tier without a secret";
    static const char names[] = "names 1", values[] = "values 1";
    ASSERT(len <= SHARED_SECRET_MOST);
    const void *key = len > 0 ? secret : none;
    size_t key_bytes = len > 0 ? len : sizeof(none) - 1;
    struct derived n = derive(key, key_bytes, names, sizeof(names) - 1);
    struct derived v = derive(key, key_bytes, values, sizeof(values) - 1);
    *s = (struct shared_secret){.given = len > 0};
    memcpy(s->names, n.bytes, sizeof(s->names));
    memcpy(s->values, v.bytes, sizeof(s->values));
}

struct prefix_key shared_value_name(const struct shared_secret *s, const struct store_header *h,
                                    uint32_t piece)
{
    struct {
        uint8_t key[32];
        uint32_t kind, piece;
        struct store_identity identity;
    } text = {.kind = htole32((uint32_t)h->kind), .piece = htole32(piece), .identity = h->identity};
    struct prefix_key ret;
    _Static_assert(sizeof(text) == 32 + 8 + sizeof(struct store_identity), "no padding is hashed");
    memcpy(text.key, h->key.bytes, sizeof(text.key));
    struct derived d = derive(s->names, sizeof(s->names), &text, sizeof(text));
    memcpy(ret.bytes, d.bytes, sizeof(ret.bytes));
    return ret;
}

/* ---- AES-256-GCM ---- */

static bool encrypt(const struct derived *key, const struct prefix_key *name, const char *file, int len,
                    char *ret)
{
    unsigned char *nonce = (unsigned char *)ret, *out = nonce + SHARED_NONCE_BYTES;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, more = 0;
    bool ok = c && RAND_bytes(nonce, SHARED_NONCE_BYTES) == 1 &&
              EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1 &&
              EVP_EncryptUpdate(c, NULL, &n, name->bytes, (int)sizeof(name->bytes)) == 1 &&
              EVP_EncryptUpdate(c, out, &n, (const unsigned char *)file, len) == 1 && n == len &&
              EVP_EncryptFinal_ex(c, out + n, &more) == 1 && more == 0 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, SHARED_TAG_BYTES, out + len) == 1;
    EVP_CIPHER_CTX_free(c);
    return ok;
}

static bool decrypt(const struct derived *key, const struct prefix_key *name, const char *value, int len,
                    char *file)
{
    const unsigned char *nonce = (const unsigned char *)value, *in = nonce + SHARED_NONCE_BYTES;
    unsigned char tag[SHARED_TAG_BYTES];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, more = 0;
    memcpy(tag, in + len, sizeof(tag));
    bool ok = c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1 &&
              EVP_DecryptUpdate(c, NULL, &n, name->bytes, (int)sizeof(name->bytes)) == 1 &&
              EVP_DecryptUpdate(c, (unsigned char *)file, &n, in, len) == 1 && n == len &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, SHARED_TAG_BYTES, tag) == 1 &&
              EVP_DecryptFinal_ex(c, (unsigned char *)file + n, &more) == 1 && more == 0;
    EVP_CIPHER_CTX_free(c);
    return ok;
}

/* ---- values ---- */

size_t shared_value_seal(const struct shared_secret *s, const struct store_header *h, char *file, char *ret)
{
    size_t bytes = store_file_bytes(h->payload_bytes);
    ASSERT(h->payload_bytes > 0 && bytes <= SHARED_FILE_BYTES);
    store_file_seal(file, h);
    if (!s->given) {
        memcpy(ret, file, bytes);
        return bytes;
    }
    struct derived key = derive(s->values, sizeof(s->values), h->key.bytes, sizeof(h->key.bytes));
    return encrypt(&key, &h->key, file, (int)bytes, ret) ? bytes + SHARED_NONCE_BYTES + SHARED_TAG_BYTES : 0;
}

static bool is_same(const struct store_header *a, const struct store_header *b)
{
    return a->kind == b->kind && a->payload_bytes == b->payload_bytes && prefix_key_eq(&a->key, &b->key) &&
           memcmp(&a->identity, &b->identity, sizeof(a->identity)) == 0;
}

int shared_value_open(const struct shared_secret *s, const struct store_header *h, const char *value,
                      size_t len, char *file, uint32_t *pending)
{
    struct store_header got;
    size_t bytes = store_file_bytes(h->payload_bytes);
    ASSERT(h->payload_bytes > 0 && bytes <= SHARED_FILE_BYTES);
    if (len != bytes + (s->given ? SHARED_NONCE_BYTES + SHARED_TAG_BYTES : 0))
        return -EBADMSG;
    if (s->given) {
        struct derived key = derive(s->values, sizeof(s->values), h->key.bytes, sizeof(h->key.bytes));
        if (!decrypt(&key, &h->key, value, (int)bytes, file))
            return -EBADMSG;
    } else {
        memcpy(file, value, bytes);
    }
    if (store_file_check(file, bytes, &got) < 0 || !is_same(&got, h))
        return -EBADMSG;
    *pending = got.pending;
    return 0;
}
