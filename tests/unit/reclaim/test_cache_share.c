/* One budget for many caches: never exceeded, and the stalest entries go first. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "reclaim/cache_share.h"

#include <string.h>

#define SHARES_MAX  6
#define ENTRIES_MAX 400
#define BUDGET      10000

/* Entries of one place, the stalest first; their size follows from its layout. */
struct place {
    struct cache_share share;
    uint64_t entry_bytes;
    uint64_t used_ns[ENTRIES_MAX]; /* last use of each entry, ascending */
    uint32_t count, running;       /* running: entries in use, which will be cached */
};

struct world {
    struct place places[SHARES_MAX];
    struct cache_share *shares[SHARES_MAX];
    uint32_t count;
    uint64_t now_ns;
};

static void look(struct place *p)
{
    p->share.cached = p->count * p->entry_bytes;
    p->share.wanted = (p->count + p->running) * p->entry_bytes;
    p->share.oldest_ns = p->count ? p->used_ns[0] : 0;
}

static void settle(struct world *w, uint32_t i)
{
    look(&w->places[i]);
    cache_share_update(w->shares, w->count, i, BUDGET, w->now_ns);
}

static void check(const struct world *w)
{
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct cache_share *s = w->shares[i];
        assert_true(s->cached <= s->allowed && s->asked <= s->cached);
        allowed += s->allowed;
    }
    assert_true(allowed <= BUDGET);
}

static void evict(struct place *p)
{
    memmove(p->used_ns, p->used_ns + 1, --p->count * sizeof(p->used_ns[0]));
    look(p);
}

/* An owner's reaction to a poke: it evicts the bytes requested of it. */
static void give(struct world *w, uint32_t i)
{
    struct place *p = &w->places[i];
    uint64_t before = p->share.cached;
    while (p->count > 0 && before - p->share.cached < p->share.asked)
        evict(p);
    settle(w, i);
}

/* All users in this place have ended: their entries are cached, up to its allowance. */
static void release(struct world *w, uint32_t i)
{
    struct place *p = &w->places[i];
    settle(w, i);
    while (p->running > 0) {
        while ((p->count + 1) * p->entry_bytes > p->share.allowed && p->count > 0)
            evict(p);
        if ((p->count + 1) * p->entry_bytes <= p->share.allowed)
            p->used_ns[p->count++] = w->now_ns;
        p->running--;
        look(p);
    }
    settle(w, i);
}

static struct world world_of(uint32_t count, const uint64_t *entry_bytes)
{
    struct world w = {.count = count, .now_ns = 1000};
    for (uint32_t i = 0; i < count; i++)
        w.places[i].entry_bytes = entry_bytes[i];
    return w;
}

static void link_shares(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        w->shares[i] = &w->places[i].share;
}

static void cache(struct world *w, uint32_t i, uint32_t entries)
{
    w->now_ns += 1000;
    w->places[i].running = entries;
    release(w, i);
}

TEST(one_share_has_all_of_it)
{
    struct world w = world_of(1, (uint64_t[]){100});
    link_shares(&w);
    cache(&w, 0, 100);
    assert_int_equal(w.places[0].share.cached, BUDGET);
    cache(&w, 0, 40);
    assert_int_equal(w.places[0].share.cached, BUDGET);
    assert_int_equal(w.places[0].share.asked, 0);
    assert_true(w.places[0].used_ns[0] == 2000 && w.places[0].used_ns[60] == 3000);
}

/* Two layouts: entries of one make room for the other's, the oldest first in either. */
TEST(the_oldest_entry_of_all_shares_is_evicted_first)
{
    struct world w = world_of(3, (uint64_t[]){100, 70, 30});
    link_shares(&w);
    cache(&w, 0, 40);
    cache(&w, 1, 40);
    w.now_ns += 1000;
    w.places[2].running = 100;
    for (uint32_t steps = 0; steps < 40; steps++) {
        settle(&w, 2);
        check(&w);
        for (uint32_t i = 0; i < 2; i++)
            if (w.places[i].share.asked > 0)
                give(&w, i);
    }
    release(&w, 2);
    check(&w);
    assert_int_equal(w.places[2].count, 100);
    assert_int_equal(w.places[1].count, 40);
    assert_in_range(w.places[0].count, 36, 40);
    cache(&w, 1, 10);
    w.places[2].running = 200;
    for (uint32_t steps = 0; steps < 200; steps++) {
        settle(&w, 2);
        for (uint32_t i = 0; i < 2; i++)
            if (w.places[i].share.asked > 0)
                give(&w, i);
    }
    release(&w, 2);
    check(&w);
    /* Nothing of the first is left, then the second's older ones went; those in use and used last are all
     * there. */
    assert_int_equal(w.places[0].count, 0);
    assert_in_range(w.places[1].count, 10, 12);
    assert_in_range(w.places[2].count, 297, 300);
}

TEST(entries_that_are_expensive_to_compute_stay_longer)
{
    struct cache_share dear = {.cached = 1, .allowed = 1, .oldest_ns = 1000, .cost_ns_per_mib = 100},
                       cheap = {.cached = 1, .allowed = 1, .oldest_ns = 9000, .cost_ns_per_mib = 5};
    assert_true(cache_share_is_staler(&dear, &cheap, 9100));
    assert_true(cache_share_is_staler(&cheap, &dear, 10000));
    /* At 10000 the dear one's age counts as 450 of the cheap one's. */
    assert_int_equal(cache_share_older_than(&cheap, &dear, 10000), 9550);
    cheap.cost_ns_per_mib = 0; /* not known: ages decide */
    assert_true(cache_share_is_staler(&dear, &cheap, 10000));
    cheap.oldest_ns = 0;
    assert_false(cache_share_is_staler(&cheap, &dear, 10000));
}

/* Places come and go, run, release and are asked in any order. The sum holds after each step, and at rest no
 * request is open. */
PROPERTY(the_sum_holds_whatever_happens, seed)
{
    struct rng rng = {seed, 0};
    uint64_t sizes[SHARES_MAX];
    for (uint32_t i = 0; i < SHARES_MAX; i++)
        sizes[i] = 25 + rng_below(&rng, 400);
    struct world w = world_of(1 + (uint32_t)rng_below(&rng, SHARES_MAX), sizes);
    link_shares(&w);
    for (uint32_t i = 0; i < w.count; i++)
        w.places[i].share.cost_ns_per_mib = rng_below(&rng, 3) * (1 + rng_below(&rng, 50));
    for (uint32_t step = 0; step < 2000; step++) {
        uint32_t i = (uint32_t)rng_below(&rng, w.count);
        struct place *p = &w.places[i];
        w.now_ns += rng_below(&rng, 100);
        switch (rng_below(&rng, 4)) {
        case 0:
            if (p->running < 50)
                p->running += (uint32_t)rng_below(&rng, 20);
            settle(&w, i);
            break;
        case 1:
            release(&w, i);
            break;
        case 2:
            give(&w, i);
            break;
        default:
            settle(&w, i);
        }
        check(&w);
    }
    for (uint32_t i = 0; i < w.count; i++)
        release(&w, i);
    bool asked = true;
    for (uint32_t rounds = 0; asked; rounds++) {
        assert_true(rounds < 1000);
        asked = false;
        for (uint32_t i = 0; i < w.count; i++) {
            if (w.places[i].share.asked > 0)
                give(&w, i);
            asked = asked || w.places[i].share.asked > 0;
        }
        check(&w);
    }
}

TEST_MAIN()
