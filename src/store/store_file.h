/* store_file.h - one file of the SSD tier: a header block, then the payload.
 *
 *       0  magic, 8 bytes                96  layout, text, 192 bytes
 *       8  version, 4                   288  XXH3-128 of all bytes after the header, 16
 *      12  kind, 4                      304  XXH3-64 of the header, itself counted as 0, 8
 *      16  payload's bytes, 8           312  zeros
 *      24  pending tokens, 4, zeros    4096  the payload, zeros up to a whole block
 *      32  key, 32
 *      64  fingerprint, 32
 *
 * Numbers are little-endian. Every byte of a file is covered by one of the two sums, so all damage is
 * detected. A file's name is its key in hex and a letter for its kind; it lies two directories deep, each
 * named by a digit of the key. Pure; any thread. */
#ifndef PLATEAU_STORE_STORE_FILE_H
#define PLATEAU_STORE_STORE_FILE_H

#include "store/store_identity.h"

#include "cache/prefix_key.h"
#include "cache/tier_io.h"

#define STORE_BLOCK_BYTES 4096u /* alignment of offsets, lengths and addresses for O_DIRECT */
#define STORE_NAME_BYTES  66    /* 64 digits, a letter, a zero */
#define STORE_PATH_BYTES  (4 + STORE_NAME_BYTES)
#define STORE_PAYLOAD_MAX ((uint64_t)1 << 32)

struct store_header {
    enum tier_kind kind;
    uint64_t payload_bytes;
    struct prefix_key key;
    struct store_identity identity;
    uint32_t pending; /* accepted tokens of a snapshot that are pending; 0 for a page */
};

/* Returns the bytes of a whole file with such a payload. */
static inline uint64_t store_file_bytes(uint64_t payload_bytes)
{
    return STORE_BLOCK_BYTES +
           (payload_bytes + STORE_BLOCK_BYTES - 1) / STORE_BLOCK_BYTES * STORE_BLOCK_BYTES;
}

/* Fills the header and the padding of a file in memory that already has its payload. file:
 * [store_file_bytes(h->payload_bytes)] */
void store_file_seal(char *file, const struct store_header *h);
/* The first block of a file. 0, -EINVAL (no header, or a damaged one), -ENOTSUP (of a version we do not
 * know). */
int store_file_read_header(const char *block, struct store_header *ret);
/* A whole file. 0, what store_file_read_header() said, or -EBADMSG: its length is wrong or its payload is
 * damaged. */
int store_file_check(const char *file, uint64_t bytes, struct store_header *ret);

/* "a/b/" and the name. */
void store_file_path(const struct prefix_key *key, enum tier_kind kind, char ret[STORE_PATH_BYTES]);
/* False: this is not a name of ours. */
bool store_file_parse_name(const char *name, struct prefix_key *key, enum tier_kind *kind);
/* Which of the 256 directories it lies in: 16 times the first digit plus the second. */
static inline uint32_t store_file_leaf(const struct prefix_key *key)
{
    return key->bytes[0];
}

#endif
