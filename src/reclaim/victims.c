/* victims.c - the cheapest set that covers a need is a knapsack, which is exact and instant for the few
 * models that a machine holds at once. Beyond EXACT_MAX the cheapest per byte are chosen first, and
 * superfluous ones are removed again. */
#include "reclaim/victims.h"

#include "base/check.h"

#include <stdbool.h>
#include <stdlib.h>

#define EXACT_MAX 12

struct choice {
    uint64_t cost_ns, idle_ns, bytes;
};

/* Cheaper; of equal cost with the longer rest, then with fewer bytes lost. */
static bool is_better(const struct choice *a, const struct choice *b)
{
    if (a->cost_ns != b->cost_ns)
        return a->cost_ns < b->cost_ns;
    if (a->idle_ns != b->idle_ns)
        return a->idle_ns > b->idle_ns;
    return a->bytes < b->bytes;
}

static struct choice sum_of(const struct victim *v, uint32_t count, uint64_t members)
{
    struct choice c = {.idle_ns = UINT64_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (!(members >> i & 1))
            continue;
        c.cost_ns += v[i].reload_ns;
        c.bytes += v[i].bytes;
        c.idle_ns =
            MIN_OF(c.idle_ns, v[i].idle_ns); /* the set counts as recently used as its most recent member */
    }
    return c;
}

static uint64_t choose_exactly(const struct victim *v, uint32_t count, uint64_t bytes)
{
    uint64_t best = 0;
    struct choice least = {0};
    for (uint64_t members = 1; members < 1ull << count; members++) {
        struct choice c = sum_of(v, count, members);
        if (c.bytes >= bytes && (best == 0 || is_better(&c, &least))) {
            best = members;
            least = c;
        }
    }
    return best;
}

static int by_cost_per_byte(const void *a, const void *b)
{
    const struct victim *x = a, *y = b;
    double cx = (double)x->reload_ns / (double)MAX_OF(x->bytes, 1),
           cy = (double)y->reload_ns / (double)MAX_OF(y->bytes, 1);
    if (cx != cy)
        return cx < cy ? -1 : 1;
    return x->idle_ns > y->idle_ns ? -1 : x->idle_ns < y->idle_ns;
}

static uint64_t choose_nearly(struct victim *v, uint32_t count, uint64_t bytes)
{
    uint64_t members = 0, have = 0;
    qsort(v, count, sizeof(*v), by_cost_per_byte);
    for (uint32_t i = 0; i < count && have < bytes; i++) {
        members |= 1ull << i;
        have += v[i].bytes;
    }
    for (uint32_t i = count; i-- > 0;) {
        if (!(members >> i & 1) || have - v[i].bytes < bytes)
            continue;
        members &= ~(1ull << i);
        have -= v[i].bytes;
    }
    return members;
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
    uint64_t members = count <= EXACT_MAX ? choose_exactly(v, count, bytes) : choose_nearly(v, count, bytes);
    return move_to_front(v, count, members);
}
