/* Any bytes as a value of the shared tier, with a secret and without. An accepted one is as a seal would
 * have made it, and a sealed payload comes back. */
#include "store/shared_value.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

#define PAYLOAD 96u

static char file[SHARED_FILE_BYTES], value[SHARED_VALUE_BYTES];

static struct store_header header_of(const uint8_t *data, size_t size, const struct shared_secret *s)
{
    struct store_header h = {.payload_bytes = PAYLOAD};
    h.kind = size > 0 ? data[0] % TIER_KINDS : TIER_PAGE;
    memcpy(h.key.bytes, data, size < sizeof(h.key.bytes) ? size : sizeof(h.key.bytes));
    h.key = shared_value_name(s, &h, 0);
    return h;
}

static void check(const uint8_t *data, size_t size, const struct shared_secret *s)
{
    struct store_header h = header_of(data, size, s);
    uint32_t pending = 0;
    size_t whole = store_file_bytes(PAYLOAD) + (s->given ? SHARED_NONCE_BYTES + SHARED_TAG_BYTES : 0);
    memset(value, 0, sizeof(value));
    memcpy(value, data, size < whole ? size : whole);
    /* Seeds stand without the zeros at their end. */
    int r = shared_value_open(s, &h, value, size, file, &pending);
    ASSERT(r == 0 || r == -EBADMSG);
    r = shared_value_open(s, &h, value, whole, file, &pending);
    ASSERT(r == -EBADMSG || (!s->given && r == 0));
    /* A right value, with the input's bytes over a part of it. */
    memset(file, 7, sizeof(file));
    ASSERT(shared_value_seal(s, &h, file, value) == whole);
    ASSERT(shared_value_open(s, &h, value, whole, file, &pending) == 0 && pending == 0);
    ASSERT(file[STORE_BLOCK_BYTES] == 7 && file[STORE_BLOCK_BYTES + PAYLOAD - 1] == 7);
    bool same = true;
    for (size_t i = 0; i + 2 < size && i < 64; i += 3) {
        size_t at = ((size_t)data[i] << 8 | data[i + 1]) % whole;
        value[at] = (char)(value[at] ^ (char)data[i + 2]);
    }
    if (size > 2) {
        char *copy = malloc(whole);
        ASSERT(copy);
        memcpy(copy, value, whole);
        same = shared_value_open(s, &h, value, whole, file, &pending) == 0;
        /* Damage may undo itself. */
        ASSERT(!same || file[STORE_BLOCK_BYTES] == 7);
        ASSERT(memcmp(copy, value, whole) == 0);
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shared_secret with, without;
    shared_secret_init(&with, "a secret of the fleet", 21);
    shared_secret_init(&without, NULL, 0);
    check(data, size, &with);
    check(data, size, &without);
    return 0;
}
