/* store_file.c - fields at fixed offsets, sums by xxHash: 128 bits over the payload, at the speed of
 * memory. */
#include "store/store_file.h"

#include "base/hex.h"

#include <endian.h>
#include <errno.h>
#include <xxhash.h>

#define VERSION 3u /* 2: a layout of 64 bytes; 1: snapshots had the pending tokens' count in their payload */

enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_KIND = 12,
    AT_PAYLOAD = 16,
    AT_PENDING = 24,
    AT_KEY = 32,
    AT_FINGERPRINT = 64,
    AT_LAYOUT = 96,
    AT_SUM = AT_LAYOUT + STORE_LAYOUT_BYTES,
    AT_HEADER_SUM = AT_SUM + 16,
};

static const char magic[8] = "\x89PLSSD\r\n";
static const char letters[TIER_KINDS + 1] = "pswxy"; /* by kind */

static void put_u32(char *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put_u64(char *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static uint32_t get_u32(const char *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static uint64_t get_u64(const char *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

static XXH128_canonical_t payload_sum(const char *file, uint64_t bytes)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(file + STORE_BLOCK_BYTES, bytes - STORE_BLOCK_BYTES));
    return sum;
}

/* The sum's own field counts as zeros, and so do all bytes after it: they must be zero. */
static uint64_t header_sum(const char *block)
{
    return XXH3_64bits(block, AT_HEADER_SUM);
}

void store_file_seal(char *file, const struct store_header *h)
{
    uint64_t bytes = store_file_bytes(h->payload_bytes);
    char *payload = file + STORE_BLOCK_BYTES;
    memset(payload + h->payload_bytes, 0, bytes - STORE_BLOCK_BYTES - h->payload_bytes);
    memset(file, 0, STORE_BLOCK_BYTES);
    memcpy(file + AT_MAGIC, magic, sizeof(magic));
    put_u32(file + AT_VERSION, VERSION);
    put_u32(file + AT_KIND, h->kind);
    put_u64(file + AT_PAYLOAD, h->payload_bytes);
    put_u32(file + AT_PENDING, h->pending);
    memcpy(file + AT_KEY, h->key.bytes, sizeof(h->key.bytes));
    memcpy(file + AT_FINGERPRINT, h->identity.fingerprint, sizeof(h->identity.fingerprint));
    memcpy(file + AT_LAYOUT, h->identity.layout, sizeof(h->identity.layout));
    XXH128_canonical_t sum = payload_sum(file, bytes);
    memcpy(file + AT_SUM, &sum, sizeof(sum));
    put_u64(file + AT_HEADER_SUM, header_sum(file));
}

static bool is_zero(const char *at, const char *end)
{
    while (at < end && *at == 0)
        at++;
    return at == end;
}

int store_file_read_header(const char *block, struct store_header *ret)
{
    if (memcmp(block + AT_MAGIC, magic, sizeof(magic)) != 0)
        return -EINVAL;
    if (get_u32(block + AT_VERSION) != VERSION)
        return -ENOTSUP;
    uint32_t kind = get_u32(block + AT_KIND);
    uint64_t payload = get_u64(block + AT_PAYLOAD);
    uint32_t pending = get_u32(block + AT_PENDING);
    if (get_u64(block + AT_HEADER_SUM) != header_sum(block) ||
        !is_zero(block + AT_HEADER_SUM + sizeof(uint64_t), block + STORE_BLOCK_BYTES) ||
        !is_zero(block + AT_PENDING + sizeof(pending), block + AT_KEY) || kind >= TIER_KINDS ||
        (kind != TIER_SNAPSHOT && pending > 0) || payload == 0 || payload > STORE_PAYLOAD_MAX ||
        block[AT_LAYOUT + STORE_LAYOUT_BYTES - 1] != 0)
        return -EINVAL;
    *ret = (struct store_header){.kind = (enum tier_kind)kind, .payload_bytes = payload, .pending = pending};
    memcpy(ret->key.bytes, block + AT_KEY, sizeof(ret->key.bytes));
    memcpy(ret->identity.fingerprint, block + AT_FINGERPRINT, sizeof(ret->identity.fingerprint));
    memcpy(ret->identity.layout, block + AT_LAYOUT, sizeof(ret->identity.layout));
    return 0;
}

int store_file_check(const char *file, uint64_t bytes, struct store_header *ret)
{
    struct store_header h;
    if (bytes < STORE_BLOCK_BYTES)
        return -EBADMSG;
    int r = store_file_read_header(file, &h);
    if (r < 0)
        return r;
    if (bytes != store_file_bytes(h.payload_bytes))
        return -EBADMSG;
    XXH128_canonical_t sum = payload_sum(file, bytes);
    if (memcmp(&sum, file + AT_SUM, sizeof(sum)) != 0)
        return -EBADMSG;
    *ret = h;
    return 0;
}

/* ---- names ---- */

static void file_name(const struct prefix_key *key, enum tier_kind kind, char ret[STORE_NAME_BYTES])
{
    hex_text(key->bytes, sizeof(key->bytes), ret);
    ret[STORE_NAME_BYTES - 2] = letters[kind];
    ret[STORE_NAME_BYTES - 1] = 0;
}

void store_file_path(const struct prefix_key *key, enum tier_kind kind, char ret[STORE_PATH_BYTES])
{
    file_name(key, kind, ret + 4);
    ret[0] = ret[4];
    ret[2] = ret[5];
    ret[1] = ret[3] = '/';
}

bool store_file_parse_name(const char *name, struct prefix_key *key, enum tier_kind *kind)
{
    struct prefix_key k;
    if (strnlen(name, STORE_NAME_BYTES) != STORE_NAME_BYTES - 1)
        return false;
    if (!hex_bytes(name, sizeof(k.bytes), k.bytes))
        return false;
    const char *letter = strchr(letters, name[STORE_NAME_BYTES - 2]);
    if (!letter)
        return false;
    *key = k;
    *kind = (enum tier_kind)(letter - letters);
    return true;
}
