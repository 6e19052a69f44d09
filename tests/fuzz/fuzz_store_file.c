/* Any bytes as a file of the SSD tier, and as a file's name: a file accepted as whole has the stated length,
 * and a sealed one is whole. */
#include "store/store_file.h"

#include "base/check.h"

#include <stdlib.h>

static void check_name(const uint8_t *data, size_t size)
{
    char name[STORE_NAME_BYTES + 2] = {0}, again[STORE_PATH_BYTES];
    struct prefix_key key;
    enum tier_kind kind;
    memcpy(name, data, size < sizeof(name) - 1 ? size : sizeof(name) - 1);
    if (!store_file_parse_name(name, &key, &kind))
        return;
    store_file_path(&key, kind, again);
    ASSERT(strcmp(name, again + 4) == 0);
}

/* Corrected checksums, so that the data after them is tested as well. */
static void check_sealed(const char *file, size_t size)
{
    struct store_header h = {0}, back;
    if (size < STORE_BLOCK_BYTES + 1)
        return;
    h.payload_bytes = size - STORE_BLOCK_BYTES;
    h.kind = (uint8_t)file[12] % TIER_KINDS;
    if (h.kind == TIER_SNAPSHOT)
        memcpy(&h.pending, file + 24, sizeof(h.pending));
    memcpy(&h.key, file, sizeof(h.key));
    memcpy(&h.identity, file + 64, sizeof(h.identity));
    h.identity.layout[STORE_LAYOUT_BYTES - 1] = 0;
    char *sealed = malloc(store_file_bytes(h.payload_bytes));
    ASSERT(sealed);
    memcpy(sealed + STORE_BLOCK_BYTES, file + STORE_BLOCK_BYTES, h.payload_bytes);
    store_file_seal(sealed, &h);
    ASSERT(store_file_check(sealed, store_file_bytes(h.payload_bytes), &back) == 0);
    ASSERT(memcmp(&h.key, &back.key, sizeof(h.key)) == 0 && back.payload_bytes == h.payload_bytes &&
           back.pending == h.pending && back.kind == h.kind);
    free(sealed);
}

/* The bytes, and zeros up to `bytes`, as a file: one accepted as whole has the stated length. */
static void check_file(const uint8_t *data, size_t size, size_t bytes)
{
    struct store_header h;
    char *file = calloc(1, bytes + 1);
    ASSERT(file);
    memcpy(file, data, size);
    if (store_file_check(file, bytes, &h) == 0)
        ASSERT(store_file_bytes(h.payload_bytes) == bytes && h.kind < TIER_KINDS &&
               (h.kind == TIER_SNAPSHOT || h.pending == 0));
    check_sealed(file, bytes);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Seeds stand without the zeros that fill a file's last block. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_name(data, size);
    check_file(data, size, size);
    check_file(data, size, ROUND_UP(size, (size_t)STORE_BLOCK_BYTES));
    return 0;
}
