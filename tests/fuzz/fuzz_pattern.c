/* Patterns. The first byte selects the options, a zero byte ends the pattern; the rest is a text. Invariants:
 * no crash; every refusal has a message; bounds are kept; the derivative by the text is nullable exactly when
 * it is the same in a store that is compacted after every byte. */
#include "base/check.h"
#include "base/err.h"
#include "rx/rx_parse.h"
#include "rx/rx_store.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAX = 40, NODES = 20000 };

static void follow(struct arena *a, struct rx_store *s, rx_id x, struct slice text)
{
    struct rx_store *over;
    rx_id small = x;
    if (rx_store_over(a, s, NODES, &over) < 0)
        return;
    struct rx_store *plain;
    ASSERT(rx_store_over(a, s, NODES, &plain) == 0);
    for (size_t i = 0; i < text.len && i < TEXT_MAX; i++) {
        x = rx_derive(plain, x, (uint8_t)text.ptr[i]);
        small = rx_derive(over, small, (uint8_t)text.ptr[i]);
        if (rx_failed(plain) || rx_failed(over))
            return;
        rx_compact(over, &small, 1);
        ASSERT(rx_nullable(plain, x) == rx_nullable(over, small));
        ASSERT((x == RX_NONE) == (small == RX_NONE));
    }
    int alive = rx_alive(plain, x, 2000);
    ASSERT(alive == 1 || rx_failed(plain) || !rx_nullable(plain, x));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a;
    struct rx_store *s;
    if (size == 0)
        return 0;
    const char *pattern = (const char *)data + 1, *end = memchr(pattern, 0, size - 1);
    size_t len = end ? (size_t)(end - pattern) : size - 1;
    struct slice text = end ? (struct slice){end + 1, size - 2 - len} : (struct slice){0};
    ASSERT(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &a) == 0);
    ASSERT(rx_store_create(a, NODES, &s) == 0);
    struct rx_parse_opts opts = {.search = data[0] & 1};
    struct err e = {{0}};
    rx_id x;
    int r = rx_parse(s, (struct slice){pattern, len}, &opts, &x, &e);
    ASSERT(r == 0 || ((r == -EINVAL || r == -E2BIG || r == -ENOMEM) && e.text[0]));
    ASSERT(rx_count(s) <= NODES);
    if (r == 0)
        follow(a, s, x, text);
    arena_free(a);
    return 0;
}
