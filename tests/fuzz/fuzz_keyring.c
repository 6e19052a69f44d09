/* Files of keys. Invariants: no crash; a refusal has a sentence that quotes no key. An accepted key is found
 * again, under a name that is one word, with fields within their bounds; no other key is found. */
#include "api/access/keyring.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const struct key *key)
{
    ASSERT(key->tenant != 0 && key->name[0] && memchr(key->name, 0, sizeof(key->name)));
    for (const char *c = key->name; *c; c++)
        ASSERT(*c > ' ' && *c <= '~' && *c != '"');
    ASSERT(key->weight >= 1 && key->weight <= KEYRING_WEIGHT_MAX);
    ASSERT(key->priority_first >= -KEYRING_PRIORITY_MAX && key->priority_first <= key->priority_last &&
           key->priority_last <= KEYRING_PRIORITY_MAX);
}

/* Every word of an accepted text that is a key is found; the ring has no more keys than there are words. */
static void check_words(const struct keyring *k, struct slice text)
{
    uint32_t known = 0;
    for (size_t from = 0; from < text.len;) {
        size_t to = from;
        while (to < text.len && !memchr(" \t\r\n", text.ptr[to], 4))
            to++;
        struct keyring_found found = keyring_find(k, slice_sub(text, from, to - from));
        ASSERT(!found.at[KEYRING_ADMIN] && !found.at[KEYRING_METRICS]);
        if (found.at[KEYRING_MODELS]) {
            check_key(found.at[KEYRING_MODELS]);
            known++;
        }
        from = to + 1;
    }
    ASSERT(known >= keyring_count(k, KEYRING_MODELS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data, size};
    struct keyring *k;
    struct err e = {{0}};
    if (keyring_create(&k) < 0)
        return 0;
    int r = keyring_parse(k, KEYRING_MODELS, text, "keys", &e);
    ASSERT((r == 0) == (e.text[0] == 0));
    if (r == 0) {
        ASSERT(keyring_count(k, KEYRING_MODELS) > 0);
        check_words(k, text);
    }
    keyring_free(k);
    return 0;
}
