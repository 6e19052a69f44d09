/* Slots: one row each, committed before they are handed out, given back whole. */
#include "test_ledger.h"

#include "cache/slot_pool.h"

#include <errno.h>
#include <string.h>

#define SLOT_BYTES (UNIT_BYTES + UNIT_BYTES / 2)

static struct arena *arena;
static struct account *account;

static struct slot_pool *open_pool(uint32_t slots_max, uint64_t limit_bytes)
{
    struct slot_pool *p = NULL;
    account = test_account(limit_bytes);
    struct slot_pool_opts opts = {.slots_max = slots_max, .slot_bytes = SLOT_BYTES, .state = account};
    struct arena_opts a = {.bytes_max = slot_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&a, &arena), 0);
    assert_int_equal(slot_pool_create(arena, &opts, &p), 0);
    return p;
}

static void close_pool(struct slot_pool *p)
{
    slot_pool_check(p);
    slot_pool_done(p);
    arena_free(arena);
    assert_int_equal(account_numbers(account).reserved, 0);
}

TEST(slots_are_committed_one_by_one_and_trimmed)
{
    struct slot_pool *p = open_pool(3, ACCOUNT_NO_LIMIT);
    uint32_t s[3];
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(slot_pool_take(p, &s[i]), 0);
        assert_int_equal(s[i], i);
        memset(slot_pool_base(p) + s[i] * SLOT_BYTES, 1, SLOT_BYTES);
        slot_pool_check(p);
    }
    assert_int_equal(account_numbers(account).used, 5 * UNIT_BYTES);
    assert_int_equal(slot_pool_take(p, &s[0]), -ENOSPC);
    slot_pool_give(p, 1);
    assert_false(slot_pool_is_taken(p, 1));
    /* Units 1 and 2 are shared with the others. */
    assert_int_equal(slot_pool_trim(p, 10, UINT64_MAX), UNIT_BYTES);
    slot_pool_give(p, 0);
    slot_pool_give(p, 2);
    assert_int_equal(slot_pool_trim(p, 1, UINT64_MAX), UNIT_BYTES);
    assert_int_equal(slot_pool_trim(p, 10, UINT64_MAX), 3 * UNIT_BYTES);
    struct pool_numbers n;
    slot_pool_numbers(p, &n);
    assert_int_equal(n.taken, 0);
    assert_int_equal(n.peak, 3);
    assert_int_equal(n.units_committed, 0);
    close_pool(p);
}

TEST(a_refused_slot_leaves_nothing_behind)
{
    struct slot_pool *p = open_pool(4, 3 * UNIT_BYTES);
    uint32_t s = 9;
    assert_int_equal(slot_pool_take(p, &s), 0);
    assert_int_equal(slot_pool_take(p, &s), 0);
    s = 9;
    /* The third lies in units 3 and 4. */
    assert_int_equal(slot_pool_take(p, &s), -ENOMEM);
    assert_int_equal(s, 9);
    assert_int_equal(account_numbers(account).reserved, 3 * UNIT_BYTES);
    slot_pool_check(p);
    slot_pool_give(p, 0);
    assert_int_equal(slot_pool_take(p, &s), 0);
    assert_int_equal(s, 0);
    close_pool(p);
}

TEST(a_slot_is_given_back_once)
{
    struct slot_pool *p = open_pool(2, ACCOUNT_NO_LIMIT);
    uint32_t s;
    assert_int_equal(slot_pool_take(p, &s), 0);
    slot_pool_give(p, s);
    assert_stops(slot_pool_give(p, s));
    assert_stops(slot_pool_give(p, 2));
    slot_pool_done(NULL);
    close_pool(p);
}

TEST_MAIN()
