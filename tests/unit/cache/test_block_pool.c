/* States: one row each, committed before they are handed out, given back whole. */
#include "test_blocks.h"
#include "test_ledger.h"
#include "test_rng.h"

#include "cache/block_pool.h"

#include <errno.h>
#include <stdlib.h>
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

/* ---- blocks with a part on each of several devices ---- */

#define SMALL_BYTES 64u
#define LARGE_BYTES (UNIT_BYTES / 4)

static struct account *of_shards[3];

static struct block_pool *open_shards(uint32_t blocks_max, const uint64_t limits[3])
{
    struct block_pool *p = NULL;
    for (size_t i = 0; i < COUNT_OF(of_shards); i++)
        of_shards[i] = test_account(limits ? limits[i] : ACCOUNT_NO_LIMIT);
    struct block_pool_opts opts = {.blocks_max = blocks_max,
                                   .block_bytes = STATE_BYTES,
                                   .account = of_shards[0],
                                   .beside = {{SMALL_BYTES, of_shards[1]}, {LARGE_BYTES, of_shards[2]}}};
    struct arena_opts a = {.bytes_max = block_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&a, &arena), 0);
    assert_int_equal(block_pool_create(arena, &opts, &p), 0);
    return p;
}

static void assert_units(uint32_t first, uint32_t second, uint32_t third)
{
    const uint32_t units[] = {first, second, third};
    for (size_t i = 0; i < COUNT_OF(of_shards); i++)
        assert_int_equal(account_numbers(of_shards[i]).used, units[i] * UNIT_BYTES);
}

static void close_shards(struct block_pool *p)
{
    block_pool_check(p);
    block_pool_done(p);
    arena_free(arena);
    assert_units(0, 0, 0);
}

TEST(parts_of_a_block_come_and_go_together)
{
    struct block_pool *p = open_shards(8, NULL);
    uint32_t s[5];
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(block_pool_take(p, &s[i]), 0);
    assert_units(8, 1, 2);
    block_pool_check(p);
    block_pool_give(p, s[4]);
    assert_int_equal(block_pool_spare_bytes(p), 3 * UNIT_BYTES);
    assert_int_equal(block_pool_trim(p, 1, UINT64_MAX), 2 * UNIT_BYTES);
    assert_units(7, 1, 1);
    for (uint32_t i = 0; i < 4; i++)
        block_pool_give(p, s[i]);
    assert_int_equal(block_pool_trim(p, 100, UINT64_MAX), 8 * UNIT_BYTES + UNIT_BYTES);
    close_shards(p);
}

TEST(a_block_that_one_device_refuses_changes_nothing_on_the_others)
{
    struct block_pool *p = open_shards(8, (const uint64_t[]){100 * UNIT_BYTES, UNIT_BYTES, UNIT_BYTES});
    uint32_t s = 9;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(block_pool_take(p, &s), 0);
    /* The fifth lies in a second unit of the third device. */
    assert_int_equal(block_pool_take(p, &s), -ENOMEM);
    assert_units(6, 1, 1);
    block_pool_check(p);
    block_pool_give(p, 2);
    assert_int_equal(block_pool_take(p, &s), 0);
    assert_int_equal(s, 2);
    close_shards(p);
}

TEST(a_block_has_the_bytes_of_its_parts_in_order)
{
    struct block_pool *p = open_shards(4, NULL);
    const size_t all = STATE_BYTES + SMALL_BYTES + LARGE_BYTES;
    uint8_t *bytes = malloc(2 * all);
    uint32_t s[2];
    assert_non_null(bytes);
    for (size_t i = 0; i < all; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(block_pool_whole_bytes(p), all);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(block_pool_take(p, &s[i]), 0);
    block_pool_put(p, s[0], 0, all, bytes);
    block_pool_copy(p, s[0], s[1]);
    for (size_t at = 0; at < all; at += STATE_BYTES / 3)
        assert_int_equal(block_pool_get(p, s[1], at, MIN_OF(STATE_BYTES / 3, all - at), bytes + all + at), 0);
    assert_memory_equal(bytes, bytes + all, all);
    assert_memory_equal((char *)(uintptr_t)block_pool_base(p, 1).at + SMALL_BYTES, bytes + STATE_BYTES,
                        SMALL_BYTES);
    assert_true(dev_is_null(block_pool_base(p, 3)));
    free(bytes);
    close_shards(p);
}

TEST(blocks_of_several_devices_keep_their_invariants)
{
    struct block_pool *p = open_shards(16, (const uint64_t[]){20 * UNIT_BYTES, UNIT_BYTES, 3 * UNIT_BYTES});
    struct rng r = {.seed = 1};
    for (int i = 0; i < 2000; i++) {
        uint32_t s = (uint32_t)rng_below(&r, 16);
        switch (rng_below(&r, 3)) {
        case 0:
            (void)block_pool_take(p, &s);
            break;
        case 1:
            if (block_pool_is_taken(p, s))
                block_pool_give(p, s);
            break;
        default:
            block_pool_trim(p, 1, UINT64_MAX);
        }
        block_pool_check(p);
    }
    close_shards(p);
}

TEST_MAIN()
