/* shared_value.h - one value of the shared tier: a piece of an entry, in the SSD tier's file form.
 *
 * An entry is cut into pieces of SHARED_PIECE_BYTES, because stores are slow with larger values. A piece is a
 * file of store_file.h: its key is the piece's name, and its payload the piece. With a secret the value is
 *
 *       0  nonce, 12 bytes, random
 *      12  the file, AES-256-GCM with the name as associated data
 *     end  tag, 16 bytes
 *
 * and without one the file alone, whose checksums detect damage, not forgery. A name is an HMAC over the
 * page's key, the kind, the piece's number and the model's identity. It reveals no text, tenant or model.
 * Each value has a key of its own, derived from the secret and the name, so the random nonces suffice for any
 * number of values. Pure but for the nonce; any thread. */
#ifndef PLATEAU_STORE_SHARED_VALUE_H
#define PLATEAU_STORE_SHARED_VALUE_H

#include "store/store_file.h"

#include <stdbool.h>

#define SHARED_PIECE_BYTES  ((size_t)1 << 20)
#define SHARED_FILE_BYTES   (STORE_BLOCK_BYTES + SHARED_PIECE_BYTES)
#define SHARED_NONCE_BYTES  12
#define SHARED_TAG_BYTES    16
#define SHARED_VALUE_BYTES  (SHARED_NONCE_BYTES + SHARED_FILE_BYTES + SHARED_TAG_BYTES)
#define SHARED_SECRET_LEAST 16 /* bytes of a secret */
#define SHARED_SECRET_MOST  4096

/* Keys derived from the fleet's secret. */
struct shared_secret {
    bool given; /* false: values are not encrypted */
    uint8_t names[32], values[32];
};

/* Derives the keys. `len` 0: no secret. */
void shared_secret_init(struct shared_secret *s, const void *secret, size_t len);

/* Returns how many pieces an entry of `bytes` has, and the bytes of one of them. */
static inline uint32_t shared_pieces(size_t bytes)
{
    return (uint32_t)((bytes + SHARED_PIECE_BYTES - 1) / SHARED_PIECE_BYTES);
}
static inline size_t shared_piece_bytes(size_t bytes, uint32_t piece)
{
    size_t left = bytes - piece * SHARED_PIECE_BYTES;
    return left < SHARED_PIECE_BYTES ? left : SHARED_PIECE_BYTES;
}

/* Returns the name of a piece. `h`: the entry's header, of which key, kind and identity count. */
struct prefix_key shared_value_name(const struct shared_secret *s, const struct store_header *h,
                                    uint32_t piece);
/* Makes a value. `h`: the piece's header, with its name as the key; file: SHARED_FILE_BYTES, with the payload
 * after the first block. Writes the value to ret[SHARED_VALUE_BYTES] and returns its length; 0: libcrypto has
 * no memory or no random bytes. */
size_t shared_value_seal(const struct shared_secret *s, const struct store_header *h, char *file, char *ret);
/* Reads a value of `len` bytes into file[SHARED_FILE_BYTES]. 0, and *pending has the header's count; or
 * -EBADMSG: it is damaged, forged, or not what `h` says. */
int shared_value_open(const struct shared_secret *s, const struct store_header *h, const char *value,
                      size_t len, char *file, uint32_t *pending);

#endif
