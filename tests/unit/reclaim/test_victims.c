/* Which idle models go: as few of the cost as will do, and never fewer bytes than are needed. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "reclaim/victims.h"

#include <string.h>

#define GIB ((uint64_t)1 << 30)

static uint64_t bytes_of(const struct victim *v, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += v[i].bytes;
    return bytes;
}

static uint64_t cost_of(const struct victim *v, uint32_t count)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < count; i++)
        cost += v[i].reload_ns;
    return cost;
}

TEST(nobody_goes_for_nothing_or_in_vain)
{
    struct victim v[] = {{0, GIB, 10, 5}, {1, GIB, 10, 5}};
    assert_int_equal(victims_choose(v, 2, 0), 0);
    assert_int_equal(victims_choose(v, 2, 2 * GIB + 1), 0);
    assert_int_equal(victims_choose(v, 0, 1), 0);
}

TEST(the_cheapest_that_suffices_goes_even_if_others_rest_longer)
{
    struct victim v[] = {{0, 8 * GIB, 900, 1000}, {1, 2 * GIB, 100, 10}, {2, 1 * GIB, 50, 5000}};
    assert_int_equal(victims_choose(v, 3, 3 * GIB / 2), 1);
    assert_int_equal(v[0].index, 1);
}

TEST(a_large_one_that_is_cheap_per_byte_stays_for_a_small_need)
{
    struct victim v[] = {{0, 100 * GIB, 100, 10}, {1, GIB, 2, 10}};
    assert_int_equal(victims_choose(v, 2, GIB), 1);
    assert_int_equal(v[0].index, 1);
}

TEST(two_small_ones_go_before_one_that_is_dear)
{
    struct victim v[] = {{0, 8 * GIB, 900, 1000}, {1, 2 * GIB, 100, 10}, {2, 1 * GIB, 50, 5000}};
    assert_int_equal(victims_choose(v, 3, 3 * GIB), 2);
    assert_true(v[0].index != 0 && v[1].index != 0);
}

TEST(of_equal_cost_the_one_that_rests_longest_goes)
{
    struct victim v[] = {{0, GIB, 100, 10}, {1, GIB, 100, 30}, {2, GIB, 100, 20}};
    assert_int_equal(victims_choose(v, 3, GIB), 1);
    assert_int_equal(v[0].index, 1);
}

/* With any number of them: enough are chosen, none is unnecessary, and each is still in the list once. */
PROPERTY(what_goes_suffices_and_none_of_it_is_spare, seed)
{
    struct rng rng = {seed, 0};
    struct victim v[VICTIMS_MAX];
    uint32_t count = 1 + (uint32_t)rng_below(&rng, VICTIMS_MAX);
    for (uint32_t i = 0; i < count; i++)
        v[i] = (struct victim){i, 1 + rng_below(&rng, 1000), rng_below(&rng, 100), rng_below(&rng, 100)};
    uint64_t wanted = 1 + rng_below(&rng, bytes_of(v, count));
    uint32_t chosen = victims_choose(v, count, wanted);
    uint64_t have = bytes_of(v, chosen), seen = 0;
    assert_true(chosen > 0 && have >= wanted);
    for (uint32_t i = 0; i < count; i++)
        seen |= 1ull << v[i].index;
    assert_true(seen == (count == 64 ? UINT64_MAX : (1ull << count) - 1));
    for (uint32_t i = 0; i < chosen; i++)
        assert_true(have - v[i].bytes < wanted || v[i].reload_ns == 0);
}

/* Few enough to try all: a cheaper choice saves less than the dearest model costs. */
PROPERTY(no_other_choice_of_few_is_much_cheaper, seed)
{
    struct rng rng = {seed, 0};
    struct victim v[10], all[10];
    uint32_t count = 1 + (uint32_t)rng_below(&rng, 10);
    for (uint32_t i = 0; i < count; i++)
        v[i] = (struct victim){i, 1 + rng_below(&rng, 1000), rng_below(&rng, 100), rng_below(&rng, 100)};
    uint64_t wanted = 1 + rng_below(&rng, bytes_of(v, count)), least = UINT64_MAX, dearest = 0;
    for (uint32_t i = 0; i < count; i++)
        dearest = MAX_OF(dearest, v[i].reload_ns);
    for (uint32_t members = 1; members < 1u << count; members++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < count; i++)
            if (members >> i & 1)
                all[n++] = v[i];
        if (bytes_of(all, n) >= wanted)
            least = MIN_OF(least, cost_of(all, n));
    }
    assert_true(cost_of(v, victims_choose(v, count, wanted)) <= least + dearest);
}

TEST_MAIN()
