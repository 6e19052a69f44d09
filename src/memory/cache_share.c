/* cache_share.c - allowances, not a common counter.
 *
 * A counter that all add to would pass its limit whenever what one adds has to wait until another has
 * evicted, and nobody may wait. With allowances the sum holds at every moment; what it costs is that a share
 * may be short for the time of another's step. Costs are compared as they are measured. Where one is not
 * known yet, ages alone decide. */
#include "memory/cache_share.h"

#include "base/check.h"

#define FREE_PART 32 /* of the budget is kept free while there are several shares */
#define LEAST_NS  1  /* so that what was used this instant is evictable too */

/* Of what `s` has, compared with what `other` has. */
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

/* What those who were asked have not given yet. */
static uint64_t coming_bytes(struct cache_share *const *shares, uint32_t count)
{
    uint64_t asked = 0;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(shares[i]->asked <= shares[i]->cached);
        asked += shares[i]->asked;
    }
    return asked;
}

/* What all but `except` want and may not have yet. */
static uint64_t missing_bytes(struct cache_share *const *shares, uint32_t count,
                              const struct cache_share *except)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (shares[i] != except && shares[i]->wanted > shares[i]->allowed)
            bytes += shares[i]->wanted - shares[i]->allowed;
    return bytes;
}

/* Who has the entry of least use. NULL: nobody has any. */
static struct cache_share *find_stalest(struct cache_share *const *shares, uint32_t count, uint64_t now_ns)
{
    struct cache_share *stalest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (shares[i]->oldest_ns > 0 && shares[i]->cached > 0 &&
            (!stalest || cache_share_is_staler(shares[i], stalest, now_ns)))
            stalest = shares[i];
    return stalest;
}

/* A part at a time: when that has gone, another may have the entry of least use. Who wants more and has it
 * itself is not asked for its own sake: it evicts when it comes to that. */
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

/* What it gave up is not its any more: what it was asked for first, then what it does not want. */
static void take_back(struct cache_share *s)
{
    uint64_t gives = MIN_OF(s->allowed - s->cached, s->asked);
    s->allowed -= gives;
    s->asked = MIN_OF(s->asked - gives, s->cached);
    s->allowed = MIN_OF(s->allowed, MAX_OF(s->wanted, s->cached));
    ASSERT(s->cached <= s->allowed);
    ASSERT(s->asked <= s->cached);
}

void cache_share_settle(struct cache_share *const *shares, uint32_t count, uint32_t i, uint64_t budget,
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
