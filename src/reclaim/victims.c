/* victims.c - the cheapest per byte until they suffice, without the superfluous ones, or one model that
 * suffices and costs less. The chosen ones before the last cost at most what any set that suffices does. */
#include "reclaim/victims.h"

#include "base/check.h"

#include <stdbool.h>
#include <stdlib.h>

static int by_cost_per_byte(const void *a, const void *b)
{
    const struct victim *x = a, *y = b;
    double cx = (double)x->reload_ns / (double)MAX_OF(x->bytes, 1),
           cy = (double)y->reload_ns / (double)MAX_OF(y->bytes, 1);
    if (cx != cy)
        return cx < cy ? -1 : 1;
    return x->idle_ns > y->idle_ns ? -1 : x->idle_ns < y->idle_ns;
}

/* The cheapest that suffices alone, of equal cost the longest idle; `count`: none does. */
static uint32_t cheapest_alone(const struct victim *v, uint32_t count, uint64_t bytes)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++)
        if (v[i].bytes >= bytes && (best == count || v[i].reload_ns < v[best].reload_ns ||
                                    (v[i].reload_ns == v[best].reload_ns && v[i].idle_ns > v[best].idle_ns)))
            best = i;
    return best;
}

/* Orders `v` and returns its chosen members as bits. */
static uint64_t choose(struct victim *v, uint32_t count, uint64_t bytes)
{
    uint64_t members = 0, have = 0, cost_ns = 0;
    qsort(v, count, sizeof(*v), by_cost_per_byte);
    for (uint32_t i = 0; i < count && have < bytes; i++) {
        members |= 1ull << i;
        have += v[i].bytes;
        cost_ns += v[i].reload_ns;
    }
    for (uint32_t i = count; i-- > 0;) {
        if (!(members >> i & 1) || have - v[i].bytes < bytes)
            continue;
        members &= ~(1ull << i);
        have -= v[i].bytes;
        cost_ns -= v[i].reload_ns;
    }
    uint32_t alone = cheapest_alone(v, count, bytes);
    return alone < count && v[alone].reload_ns <= cost_ns ? 1ull << alone : members;
}

static uint32_t move_to_front(struct victim *v, uint32_t count, uint64_t members)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!(members >> i & 1))
            continue;
        struct victim one = v[i];
        v[i] = v[chosen];
        v[chosen++] = one;
    }
    return chosen;
}

uint32_t victims_choose(struct victim *v, uint32_t count, uint64_t bytes)
{
    uint64_t all = 0;
    ASSERT(count <= VICTIMS_MAX);
    for (uint32_t i = 0; i < count; i++)
        all += v[i].bytes;
    if (bytes == 0 || all < bytes)
        return 0;
    return move_to_front(v, count, choose(v, count, bytes));
}
