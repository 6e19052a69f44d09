/* Stop strings and a text in pieces. What must hold: the hit is the one that a plain search of the whole text
 * finds, however it is cut. */
#include "engine/stop_match.h"

#include "base/check.h"

#include <stdlib.h>

#define STOPS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends first; of several that end there the longest. False: none is in the text. */
static bool search(struct slice text, const struct slice *stops, uint32_t count, struct stop_hit *ret)
{
    for (size_t end = 1; end <= text.len; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (stops[i].len <= longest || !slice_ends(slice_sub(text, 0, end), stops[i]))
                continue;
            longest = stops[i].len;
            *ret = (struct stop_hit){i, end - longest};
        }
        if (longest)
            return true;
    }
    return false;
}

/* The bytes at the text's end that begin a stop string. */
static size_t begun(struct slice text, const struct slice *stops, uint32_t count)
{
    for (size_t len = text.len; len > 0; len--)
        for (uint32_t i = 0; i < count; i++)
            if (stops[i].len > len &&
                slice_eq(slice_sub(text, text.len - len, len), slice_sub(stops[i], 0, len)))
                return len;
    return 0;
}

static void compare(struct arena *a, struct slice text, const struct slice *stops, uint32_t count,
                    size_t piece)
{
    struct stop_match *m;
    struct stop_hit hit = {0}, expected = {0};
    bool found = false;
    ASSERT(stop_match_create(a, stops, count, &m) == 0);
    size_t at = 0;
    for (; at < text.len && !found; at += piece) {
        found = stop_match_feed(m, slice_sub(text, at, piece), &hit);
        if (!found)
            ASSERT(stop_match_held(m) == begun(slice_sub(text, 0, at + piece), stops, count));
    }
    ASSERT(found == search(text, stops, count, &expected));
    if (found)
        ASSERT(hit.text_bytes == expected.text_bytes && slice_eq(stops[hit.index], stops[expected.index]));
}

/* A byte says how many stop strings follow, each with its length before it; the rest is the text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice stops[STOPS_MAX], rest = {(const char *)data, size};
    uint32_t count = 0, wanted = size > 0 ? data[0] % STOPS_MAX + 1 : 1;
    rest = slice_sub(rest, 1, 2048);
    while (count < wanted && rest.len > 1 && rest.ptr[0]) {
        stops[count] = slice_sub(rest, 1, (uint8_t)rest.ptr[0]);
        rest = slice_sub(rest, 1 + stops[count].len, rest.len);
        count += stops[count].len > 0;
    }
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = (size_t)16 << 20};
    if (count == 0 || arena_create(&opts, &a) < 0)
        return 0;
    const size_t pieces[] = {1, 3, 64, rest.len + 1};
    for (size_t i = 0; i < COUNT_OF(pieces); i++)
        compare(a, rest, stops, count, pieces[i]);
    arena_free(a);
    return 0;
}
