/* cache_share.c - allowances, not a common counter.
 *
 * A common counter would pass its limit whenever one share's growth has to wait for another's eviction, and
 * no share may wait. With allowances the sum is right at every moment. The price: a share may be short for
 * one step of another share. Costs are compared as measured. Where a cost is unknown, ages alone decide. */
#include "reclaim/cache_share.h"

#include "base/check.h"

#define FREE_PART 32 /* the budget divided by this stays free while there are several shares */
#define LEAST_NS  1  /* so that an entry used at this instant is evictable too */

/* Weight of `s` relative to that of `other`. */
static double weight_of(const struct cache_share *s, const struct cache_share *other)
{
    bool known = s->cost_ns_per_mib > 0 && other->cost_ns_per_mib > 0;
    return known ? (double)s->cost_ns_per_mib : 1;
}

static double age_ns(const struct cache_share *s, uint64_t now_ns)
{
    ASSERT(s->oldest_ns > 0);
    return now_ns > s->oldest_ns ? (double)(now_ns - s->oldest_ns) : LEAST_NS;
}

bool cache_share_is_staler(const struct cache_share *a, const struct cache_share *b, uint64_t now_ns)
{
    if (a->oldest_ns == 0 || b->oldest_ns == 0)
        return a->oldest_ns > 0;
    return age_ns(a, now_ns) * weight_of(b, a) > age_ns(b, now_ns) * weight_of(a, b);
}

uint64_t cache_share_older_than(const struct cache_share *s, const struct cache_share *other, uint64_t now_ns)
{
    ASSERT(weight_of(other, s) > 0);
    double age = age_ns(other, now_ns) * weight_of(s, other) / weight_of(other, s);
    return age < (double)now_ns ? now_ns - (uint64_t)age : 0;
}

static uint64_t free_bytes(struct cache_share *const *shares, uint32_t count, uint64_t budget)
{
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < count; i++)
        allowed += shares[i]->allowed;
    return budget > allowed ? budget - allowed : 0;
}

/* Bytes that shares were asked to evict and have not evicted yet. */
static uint64_t coming_bytes(struct cache_share *const *shares, uint32_t count)
{
    uint64_t asked = 0;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(shares[i]->asked <= shares[i]->cached);
        asked += shares[i]->asked;
    }
    return asked;
}

/* Bytes that all shares but `except` want beyond their allowance. */
static uint64_t missing_bytes(struct cache_share *const *shares, uint32_t count,
                              const struct cache_share *except)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (shares[i] != except && shares[i]->wanted > shares[i]->allowed)
            bytes += shares[i]->wanted - shares[i]->allowed;
    return bytes;
}

/* The share with the stalest entry. NULL: all are empty. */
static struct cache_share *find_stalest(struct cache_share *const *shares, uint32_t count, uint64_t now_ns)
{
    struct cache_share *stalest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (shares[i]->oldest_ns > 0 && shares[i]->cached > 0 &&
            (!stalest || cache_share_is_staler(shares[i], stalest, now_ns)))
            stalest = shares[i];
    return stalest;
}

/* Asks for one part at a time: after that another share may have the stalest entry. A share that needs more
 * and has the stalest entry itself is not asked: it evicts that entry when it has to. */
static void ask(struct cache_share *const *shares, uint32_t count, uint64_t budget, uint64_t now_ns)
{
    uint64_t part = MAX_OF(budget / FREE_PART, 1), keep = count > 1 ? part : 0;
    struct cache_share *s = find_stalest(shares, count, now_ns);
    if (!s || s->asked > 0)
        return;
    uint64_t needed = missing_bytes(shares, count, s) + keep;
    uint64_t has = free_bytes(shares, count, budget) + coming_bytes(shares, count);
    if (needed > has)
        s->asked = MIN_OF(MIN_OF(needed - has, part), s->cached);
    ASSERT(s->asked <= s->cached);
}

/* Takes back what the share has given up: first the bytes that it was asked for, then those beyond its
 * demand. */
static void take_back(struct cache_share *s)
{
    uint64_t gives = MIN_OF(s->allowed - s->cached, s->asked);
    s->allowed -= gives;
    s->asked = MIN_OF(s->asked - gives, s->cached);
    s->allowed = MIN_OF(s->allowed, MAX_OF(s->wanted, s->cached));
    ASSERT(s->cached <= s->allowed);
    ASSERT(s->asked <= s->cached);
}

void cache_share_update(struct cache_share *const *shares, uint32_t count, uint32_t i, uint64_t budget,
                        uint64_t now_ns)
{
    ASSERT(i < count);
    struct cache_share *s = shares[i];
    ASSERT(s->cached <= s->allowed);
    take_back(s);
    if (s->asked == 0 && s->wanted > s->allowed)
        s->allowed += MIN_OF(s->wanted - s->allowed, free_bytes(shares, count, budget));
    ask(shares, count, budget, now_ns);
}
