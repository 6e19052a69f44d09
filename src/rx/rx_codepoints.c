/* rx_codepoints.c - sets of code points as the bytes of their UTF-8 encodings.
 *
 * A set becomes a tree over leading and continuation bytes whose equal branches are one node: the smallest
 * automaton for it. A branch that is full is not looked into. */
#include "rx/rx_store.h"

#include "base/check.h"

struct ranges {
    struct rx_store *store;
    const struct rx_range *at;
    uint32_t count;
    rx_id full[4]; /* any 0 to 3 continuation bytes */
};

/* The first range that reaches `code` or further. */
static uint32_t range_at(const struct ranges *g, uint32_t code)
{
    uint32_t low = 0, high = g->count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (g->at[mid].last < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Bytes `lead` and `count` - 1 after it, and the rest after each; bytes with equal rests are one set. */
static rx_id join(struct rx_store *s, uint32_t lead, const rx_id *rests, uint32_t count)
{
    ASSERT(lead + count <= 256);
    rx_id made = RX_NONE;
    for (uint32_t i = 0; i < count; i++) {
        if (rests[i] == RX_NONE)
            continue;
        struct rx_bytes set = {{0}};
        bool first = true;
        for (uint32_t k = 0; k < count; k++) {
            if (rests[k] != rests[i])
                continue;
            first = first && k >= i;
            set.bits[(lead + k) / 64] |= 1ull << (lead + k) % 64;
        }
        if (first)
            made = rx_or(s, made, rx_cat(s, rx_bytes(s, &set), rests[i]));
    }
    return made;
}

/* The last `bytes` continuation bytes of the code points [base, base + 64^bytes). */
static rx_id tail(const struct ranges *g, uint32_t base, uint32_t bytes)
{
    ASSERT(bytes < COUNT_OF(g->full));
    uint32_t last = base + ((uint32_t)1 << 6 * bytes) - 1;
    uint32_t i = range_at(g, base);
    if (i == g->count || g->at[i].first > last)
        return RX_NONE;
    if (g->at[i].first <= base && g->at[i].last >= last)
        return g->full[bytes];
    rx_id rests[64];
    for (uint32_t k = 0; k < 64; k++)
        rests[k] = tail(g, base + (k << 6 * (bytes - 1)), bytes - 1);
    return join(g->store, 0x80, rests, 64);
}

/* Encodings of `bytes` bytes: code points [first, last], whose leading bytes begin at `lead`. */
static rx_id encodings(const struct ranges *g, uint32_t bytes, uint32_t lead, uint32_t count)
{
    rx_id rests[128];
    ASSERT(count <= COUNT_OF(rests) && bytes > 0);
    for (uint32_t k = 0; k < count; k++)
        rests[k] = tail(g, k << 6 * (bytes - 1), bytes - 1);
    return join(g->store, lead, rests, count);
}

/* E0 and F0 with less would be overlong, ED with more a surrogate: the ranges decide, so those are cut here.
 * */
static uint32_t cut(const struct rx_range *ranges, uint32_t count, uint32_t first, uint32_t last,
                    struct rx_range *ret)
{
    ASSERT(first <= last);
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rx_range r = {MAX_OF(ranges[i].first, first), MIN_OF(ranges[i].last, last)};
        if (ranges[i].last >= first && ranges[i].first <= last)
            ret[made++] = r;
    }
    return made;
}

rx_id rx_codepoints(struct rx_store *s, const struct rx_range *ranges, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ASSERT(ranges[i].first <= ranges[i].last && (i == 0 || ranges[i - 1].last < ranges[i].first));
    static const struct {
        uint32_t first, last, bytes, lead, leads;
    } forms[] = {{0, 0x7F, 1, 0x00, 128},
                 {0x80, 0x7FF, 2, 0xC0, 32},
                 {0x800, 0xD7FF, 3, 0xE0, 16},
                 {0xE000, 0xFFFF, 3, 0xE0, 16},
                 {0x10000, 0x10FFFF, 4, 0xF0, 5}};
    struct rx_range *part = s->base ? NULL : ARENA_ARRAY(s->arena, struct rx_range, count + 1);
    if (!part)
        return rx_fail(s);
    struct rx_bytes continuation = {{0, 0, UINT64_MAX, 0}};
    struct ranges g = {.store = s, .at = part, .full = {RX_EMPTY}};
    g.full[1] = rx_bytes(s, &continuation);
    g.full[2] = rx_cat(s, g.full[1], g.full[1]);
    g.full[3] = rx_cat(s, g.full[1], g.full[2]);
    rx_id made = RX_NONE;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        g.count = cut(ranges, count, forms[i].first, forms[i].last, part);
        if (g.count)
            made = rx_or(s, made, encodings(&g, forms[i].bytes, forms[i].lead, forms[i].leads));
    }
    return made;
}
