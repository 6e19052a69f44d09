/* Which entry makes room, against a look at all entries. */
#include "test_rng.h"
#include "test.h"

#include "cache/share_list.h"

#include "base/check.h"

#define SHARES  5
#define ENTRIES 40
#define STALE   600

struct entry {
    uint64_t used, amount;
    uint32_t share;
};

static struct entry entries[ENTRIES];
static uint64_t now;

static void age_of(const void *cache, uint32_t entry, struct share_claim *ret)
{
    assert_ptr_equal(cache, entries);
    ret->age = now - entries[entry].used;
    ret->stale = ret->age >= STALE;
}

/* Entries are in the order of their use. */
static void fill(struct rng *rng, uint32_t count, struct share_list *lists)
{
    share_list_init(lists, SHARES);
    now = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct entry *e = &entries[i];
        *e = (struct entry){now += rng_below(rng, 60), 1 + rng_below(rng, 3),
                            (uint32_t)rng_below(rng, SHARES)};
        struct share_list *l = &lists[e->share];
        l->oldest = l->oldest == NONE ? i : l->oldest;
        l->newest = i;
        l->amount += e->amount;
    }
}

PROPERTY(stale_entries_go_first_and_then_those_of_the_largest_share, seed)
{
    struct rng rng = {seed, 0};
    struct share_list lists[SHARES];
    uint32_t count = (uint32_t)rng_below(&rng, ENTRIES);
    fill(&rng, count, lists);
    uint32_t victim = share_list_victim(lists, SHARES, age_of, entries);
    assert_true((victim == NONE) == (count == 0));
    if (count == 0)
        return;
    const struct share_list *own = &lists[entries[victim].share];
    assert_int_equal(victim, own->oldest);
    bool stale = now - entries[0].used >= STALE;
    assert_true((now - entries[victim].used >= STALE) == stale);
    uint64_t all = 0, held = 0;
    for (uint32_t s = 0; s < SHARES; s++) {
        all += lists[s].amount;
        held += lists[s].oldest != NONE;
        assert_true(stale || lists[s].amount <= own->amount);
        if (lists[s].oldest != NONE && (stale || lists[s].amount == own->amount))
            assert_true(entries[victim].used <= entries[lists[s].oldest].used);
    }
    assert_true(stale || own->amount * held >= all);
}

TEST(of_equal_claims_the_first_one_loses)
{
    const struct share_claim some = {5, 10, false}, more = {6, 1, false}, stale = {1, 0, true};
    assert_true(share_claim_loses(&some, &some));
    assert_true(share_claim_loses(&more, &some) && !share_claim_loses(&some, &more));
    assert_true(share_claim_loses(&stale, &more) && !share_claim_loses(&more, &stale));
}

TEST_MAIN()
