/* States: one row each, committed before they are handed out, given back whole. */
#include "test_blocks.h"
#include "test_ledger.h"

#include "cache/block_pool.h"

#include <errno.h>
#include <string.h>

#define STATE_BYTES (UNIT_BYTES + UNIT_BYTES / 2)

static struct arena *arena;
static struct account *account;

static struct block_pool *open_pool(uint32_t states_max, uint64_t limit_bytes)
{
    struct block_pool *p = NULL;
    account = test_account(limit_bytes);
    struct block_pool_opts opts = {.blocks_max = states_max, .block_bytes = STATE_BYTES, .account = account};
    struct arena_opts a = {.bytes_max = block_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&a, &arena), 0);
    assert_int_equal(block_pool_create(arena, &opts, &p), 0);
    return p;
}

static void close_pool(struct block_pool *p)
{
    block_pool_check(p);
    block_pool_done(p);
    arena_free(arena);
    assert_int_equal(account_numbers(account).reserved, 0);
}

TEST(states_are_committed_one_by_one_and_trimmed)
{
    struct block_pool *p = open_pool(3, ACCOUNT_NO_LIMIT);
    uint32_t s[3];
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(block_pool_take(p, &s[i]), 0);
        assert_int_equal(s[i], i);
        memset(test_blocks(p) + s[i] * STATE_BYTES, 1, STATE_BYTES);
        block_pool_check(p);
    }
    assert_int_equal(account_numbers(account).used, 5 * UNIT_BYTES);
    assert_int_equal(block_pool_take(p, &s[0]), -ENOSPC);
    block_pool_give(p, 1);
    assert_false(block_pool_is_taken(p, 1));
    /* Units 1 and 2 are shared with the others. */
    assert_int_equal(block_pool_trim(p, 10, UINT64_MAX), UNIT_BYTES);
    block_pool_give(p, 0);
    block_pool_give(p, 2);
    assert_int_equal(block_pool_trim(p, 1, UINT64_MAX), UNIT_BYTES);
    assert_int_equal(block_pool_trim(p, 10, UINT64_MAX), 3 * UNIT_BYTES);
    struct pool_numbers n;
    block_pool_numbers(p, &n);
    assert_int_equal(n.taken, 0);
    assert_int_equal(n.peak, 3);
    assert_int_equal(n.units_committed, 0);
    close_pool(p);
}

TEST(a_refused_state_changes_nothing)
{
    struct block_pool *p = open_pool(4, 3 * UNIT_BYTES);
    uint32_t s = 9;
    assert_int_equal(block_pool_take(p, &s), 0);
    assert_int_equal(block_pool_take(p, &s), 0);
    s = 9;
    /* The third lies in units 3 and 4. */
    assert_int_equal(block_pool_take(p, &s), -ENOMEM);
    assert_int_equal(s, 9);
    assert_int_equal(account_numbers(account).reserved, 3 * UNIT_BYTES);
    block_pool_check(p);
    block_pool_give(p, 0);
    assert_int_equal(block_pool_take(p, &s), 0);
    assert_int_equal(s, 0);
    close_pool(p);
}

TEST(a_state_is_given_back_once)
{
    struct block_pool *p = open_pool(2, ACCOUNT_NO_LIMIT);
    uint32_t s;
    assert_int_equal(block_pool_take(p, &s), 0);
    block_pool_give(p, s);
    assert_stops(block_pool_give(p, s));
    assert_stops(block_pool_give(p, 2));
    block_pool_done(NULL);
    close_pool(p);
}

TEST(bytes_are_copied_within_a_state_and_between_states)
{
    struct block_pool *p = open_pool(3, ACCOUNT_NO_LIMIT);
    uint32_t s[2];
    char host[3] = {0};
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(block_pool_take(p, &s[i]), 0);
    block_pool_put(p, s[0], STATE_BYTES - 3, 3, "abc");
    block_pool_copy(p, s[0], s[1]);
    assert_int_equal(block_pool_get(p, s[1], STATE_BYTES - 2, 2, host), 0);
    assert_string_equal(host, "bc");
    assert_int_equal(block_pool_get(p, s[1], STATE_BYTES - 4, 1, host), 0);
    assert_int_equal(host[0], 0);
    assert_stops(block_pool_get(p, s[1], STATE_BYTES - 2, 3, host));
    assert_stops(block_pool_put(p, 2, 0, 1, host));
    block_pool_give(p, s[0]);
    block_pool_give(p, s[1]);
    close_pool(p);
}

TEST_MAIN()
