/* tier_pair.c - handles of the lower tier have a bit. */
#include "cache/tier_pair.h"

#include "cache/prefix_key.h"

#include <errno.h>
#include <string.h>

#define LOWER 0x40000000u

static bool upper_has(const struct tier_pair *p, const struct prefix_key *key, enum tier_kind kind)
{
    return p->upper->arg && p->upper->has(p->upper->arg, key, kind);
}

static bool pair_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    const struct tier_pair *p = arg;
    ASSERT(p->lower->arg && kind < TIER_KINDS);
    return upper_has(p, key, kind) || p->lower->has(p->lower->arg, key, kind);
}

static void pair_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS])
{
    const struct tier_pair *p = arg;
    if (p->upper->arg)
        p->upper->used(p->upper->arg, share, keys, count, first);
    p->lower->used(p->lower->arg, share, keys, count, first);
}

static uint64_t one_ns(const struct tier_io *t, const struct prefix_key *key, enum tier_kind kind)
{
    uint32_t first[TIER_KINDS];
    ASSERT(t->arg && kind < TIER_KINDS);
    for (enum tier_kind k = 0; k < TIER_KINDS; k++)
        first[k] = k == kind ? 0 : 1;
    return t->read_ns(t->arg, key, 1, first);
}

static uint64_t pair_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                             const uint32_t first[TIER_KINDS])
{
    const struct tier_pair *p = arg;
    uint64_t sum_ns = 0;
    ASSERT(p->lower->arg && first[TIER_PAGE] <= count);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        for (uint32_t i = first[kind]; i < count; i++) {
            uint64_t ns = one_ns(upper_has(p, &keys[i], kind) ? p->upper : p->lower, &keys[i], kind);
            if (ns == UINT64_MAX)
                return ns;
            sum_ns += ns;
        }
    return sum_ns;
}

/* Pages that the upper tier has are not asked for. */
static bool pair_query(void *arg, const struct tier_query *query)
{
    const struct tier_pair *p = arg;
    struct tier_query q = *query;
    ASSERT(q.page_first <= q.count && q.end_first <= q.count);
    while (q.page_first < q.count && upper_has(p, &q.keys[q.page_first], TIER_PAGE))
        q.page_first++;
    return p->lower->query(p->lower->arg, &q);
}

static bool pair_queries(void *arg, uint64_t tag)
{
    const struct tier_pair *p = arg;
    ASSERT(p->lower->queries);
    return p->lower->queries(p->lower->arg, tag);
}

static void pair_common(void *arg, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    const struct tier_pair *p = arg;
    ASSERT(first[TIER_PAGE] <= count);
    p->lower->common(p->lower->arg, keys, count, first);
}

static int pair_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                     uint32_t index)
{
    const struct tier_pair *p = arg;
    ASSERT(kind < TIER_KINDS && p->bytes[kind] > 0);
    int r = p->upper->arg ? p->upper->read(p->upper->arg, key, kind, tag, index) : -ENOENT;
    return r == -ENOENT || r == -ENODEV ? p->lower->read(p->lower->arg, key, kind, tag, index) : r;
}

static void pair_cancel(void *arg, uint64_t tag)
{
    const struct tier_pair *p = arg;
    if (p->upper->arg)
        p->upper->cancel(p->upper->arg, tag);
    p->lower->cancel(p->lower->arg, tag);
}

static bool pair_take(void *arg, struct tier_arrival *ret)
{
    const struct tier_pair *p = arg;
    if (p->upper->arg && p->upper->take(p->upper->arg, ret))
        return true;
    if (!p->lower->take(p->lower->arg, ret))
        return false;
    ASSERT(!(ret->handle & LOWER));
    ret->handle |= LOWER;
    return true;
}

static void pair_give(void *arg, const struct tier_arrival *a)
{
    const struct tier_pair *p = arg;
    struct tier_arrival own = *a;
    own.handle &= ~LOWER;
    ASSERT(a->handle & LOWER || p->upper->arg);
    if (a->handle & LOWER)
        p->lower->give(p->lower->arg, &own);
    else
        p->upper->give(p->upper->arg, a);
}

/* ---- writing ---- */

static int pair_write_begin(void *arg, const struct tier_offer *o, struct tier_write *ret)
{
    struct tier_pair *p = arg;
    struct tier_write lower;
    const bool up = p->upper->arg && o->why != TIER_COMMON;
    const bool low = o->why != TIER_IDLE && o->why != TIER_LEASED;
    ASSERT(!p->both && p->bytes[o->kind] > 0);
    int above = up ? p->upper->write_begin(p->upper->arg, o, ret) : -ENODEV;
    int below = low ? p->lower->write_begin(p->lower->arg, o, &lower) : -ENODEV;
    const bool again = o->why == TIER_LEAVING && (above == -EAGAIN || below == -EAGAIN);
    if (above < 0 && below < 0 && again)
        return -EAGAIN;
    if (above == 0)
        ret->again = again;
    if (below < 0)
        return above < 0 && low && (!up || above == -ENODEV) ? below : above;
    lower.handle |= LOWER;
    if (above < 0) {
        *ret = lower;
        ret->again = again;
        return 0;
    }
    p->both = true;
    p->kind = o->kind;
    p->second = lower;
    return 0;
}

static void end_lower(const struct tier_pair *p, const struct tier_write *w, bool whole)
{
    struct tier_write own = *w;
    ASSERT(w->handle & LOWER);
    own.handle &= ~LOWER;
    p->lower->write_end(p->lower->arg, &own, whole);
}

static void pair_write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct tier_pair *p = arg;
    if (w->handle & LOWER) {
        ASSERT(!p->both);
        end_lower(p, w, whole);
        return;
    }
    if (p->both) {
        if (whole)
            memcpy(p->second.bytes, w->bytes, p->bytes[p->kind]);
        p->second.pending = w->pending;
        end_lower(p, &p->second, whole);
    }
    p->both = false;
    p->upper->write_end(p->upper->arg, w, whole);
}

void tier_pair_init(struct tier_pair *p, struct tier_io *ret)
{
    ASSERT(p->lower->arg && p->upper != p->lower);
    p->both = false;
    *ret = (struct tier_io){.arg = p,
                            .has = pair_has,
                            .used = pair_used,
                            .read_ns = pair_read_ns,
                            .query = pair_query,
                            .queries = pair_queries,
                            .common = pair_common,
                            .read = pair_read,
                            .cancel = pair_cancel,
                            .take = pair_take,
                            .give = pair_give,
                            .write_begin = pair_write_begin,
                            .write_end = pair_write_end};
}
