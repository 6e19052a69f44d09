/* The exchange of units between pools of pages and the pool of states, and the accounts that show them. */
#include "test_ledger.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "engine/pools.h"

#include <errno.h>
#include <string.h>

#define UNITS 8

struct scene {
    struct arena *arena;
    struct account *parent;
    struct pools pools;
};

/* Every page and every state is a unit, and there are UNITS of them. With two groups, the second one of which
 * has a window, there are no states. */
static void scene_open_groups(struct scene *s, uint32_t groups)
{
    struct pools_opts o = {.parent = s->parent = test_account(ACCOUNT_NO_LIMIT),
                           .pages_max = UNITS,
                           .states_max = UNITS,
                           .groups = {{.page_bytes = UNIT_BYTES}, {.page_bytes = UNIT_BYTES, .window = 64}},
                           .group_count = groups,
                           .state_bytes = groups == 1 ? UNIT_BYTES : 0,
                           .bytes_max = UNITS * UNIT_BYTES,
                           .prefix_cache_max = UNITS * UNIT_BYTES};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pools_arena_bytes(&o) + 4096}, &s->arena),
                     0);
    assert_int_equal(pools_create(s->arena, &o, &s->pools), 0);
}

static void scene_open(struct scene *s)
{
    scene_open_groups(s, 1);
}

static void scene_close(struct scene *s)
{
    assert_int_equal(pools_done(&s->pools, NULL), 0);
    assert_int_equal(account_numbers(s->parent).reserved, 0);
    arena_free(s->arena);
}

static uint64_t used(struct account *a)
{
    return account_numbers(a).used / UNIT_BYTES;
}

/* A prompt of `count` pages in the prefix cache; the last nodes have `states` snapshots. Returns its end. */
static uint32_t add_prompt(struct scene *s, uint32_t count, uint32_t states, uint32_t *pages)
{
    uint32_t node = NONE, state;
    for (uint32_t i = 0; i < count; i++) {
        struct prefix_key key = {.bytes = {(uint8_t)(i + 1)}};
        assert_int_equal(page_pool_take(s->pools.groups[0].pages, &pages[i]), 0);
        node = prefix_index_add(s->pools.index, 0, node, &key, NULL, &pages[i]);
        if (i + states < count)
            continue;
        assert_int_equal(block_pool_take(s->pools.states, &state), 0);
        assert_true(prefix_index_snapshot(s->pools.index, node, state));
    }
    pools_move_accounts(&s->pools);
    return node;
}

static void release(struct scene *s, const uint32_t *pages, uint32_t count, uint32_t node)
{
    for (uint32_t i = 0; i < count; i++)
        page_pool_unref(s->pools.groups[0].pages, pages[i]);
    prefix_index_released(s->pools.index, node);
}

TEST(pages_take_the_units_of_snapshots)
{
    struct scene s;
    uint32_t pages[UNITS + 1], node;
    scene_open(&s);
    node = add_prompt(&s, UNITS / 2, UNITS / 2, pages);
    assert_int_equal(used(s.pools.snapshots), UNITS / 2);
    assert_int_equal(used(s.pools.state), 0);
    for (uint32_t i = UNITS / 2; i < UNITS; i++) {
        assert_int_equal(page_pool_take(s.pools.groups[0].pages, &pages[i]), 0);
        assert_int_equal(used(s.pools.snapshots), UNITS - i - 1);
        assert_int_equal(used(s.pools.kv), i + 1);
    }
    assert_int_equal(page_pool_take(s.pools.groups[0].pages, &pages[UNITS]), -ENOSPC);
    for (uint32_t i = UNITS / 2; i < UNITS; i++)
        page_pool_unref(s.pools.groups[0].pages, pages[i]);
    release(&s, pages, UNITS / 2, node);
    scene_close(&s);
}

TEST(states_take_the_units_of_cached_pages)
{
    struct scene s;
    uint32_t pages[UNITS], states[UNITS], node;
    scene_open(&s);
    node = add_prompt(&s, UNITS - 1, 1, pages);
    release(&s, pages, UNITS - 1, node);
    pools_move_accounts(&s.pools);
    assert_int_equal(used(s.pools.prefix_cache), UNITS - 1);
    for (uint32_t i = 0; i < UNITS - 1; i++) {
        assert_int_equal(block_pool_take(s.pools.states, &states[i]), 0);
        pools_move_accounts(&s.pools);
        assert_int_equal(used(s.pools.state), i + 1);
    }
    for (uint32_t i = 0; i < UNITS - 1; i++)
        block_pool_give(s.pools.states, states[i]);
    scene_close(&s);
}

/* All that there is, as pages of one group: what the other one has free or cached is taken. */
static void take_all(struct scene *s, uint32_t group)
{
    uint32_t pages[UNITS], none;
    struct page_pool *own = s->pools.groups[group].pages, *other = s->pools.groups[1 - group].pages;
    for (uint32_t i = 0; i < UNITS; i++)
        assert_int_equal(page_pool_take(own, &pages[i]), 0);
    pools_move_accounts(&s->pools);
    assert_int_equal(used(s->pools.kv), UNITS);
    assert_int_equal(used(s->pools.prefix_cache), 0);
    assert_int_equal(page_pool_take(own, &none), -ENOSPC);
    assert_int_equal(page_pool_take(other, &none), -ENOMEM);
    for (uint32_t i = 0; i < UNITS; i++)
        page_pool_unref(own, pages[i]);
}

TEST(pages_of_one_group_take_the_free_units_of_another)
{
    struct scene s;
    scene_open_groups(&s, 2);
    for (uint32_t turn = 0; turn < 4; turn++)
        take_all(&s, turn % 2);
    scene_close(&s);
}

TEST(pages_of_one_group_take_the_cached_units_of_another)
{
    for (uint32_t group = 0; group < 2; group++) {
        struct scene s;
        uint32_t pages[UNITS / 2][2], node = NONE;
        scene_open_groups(&s, 2);
        for (uint32_t i = 0; i < UNITS / 2; i++) {
            struct prefix_key key = {.bytes = {(uint8_t)(i + 1)}};
            for (uint32_t g = 0; g < 2; g++)
                assert_int_equal(page_pool_take(s.pools.groups[g].pages, &pages[i][g]), 0);
            node = prefix_index_add(s.pools.index, 0, node, &key, NULL, pages[i]);
        }
        for (uint32_t i = 0; i < UNITS / 2; i++)
            for (uint32_t g = 0; g < 2; g++)
                page_pool_unref(s.pools.groups[g].pages, pages[i][g]);
        prefix_index_released(s.pools.index, node);
        pools_move_accounts(&s.pools);
        assert_int_equal(used(s.pools.prefix_cache), UNITS);
        take_all(&s, group);
        scene_close(&s);
    }
}

/* States of a quarter of a unit: the first unit has room for the snapshots of the second. */
TEST(a_state_that_moves_keeps_its_pending_tokens)
{
    struct arena *arena;
    struct pools p;
    struct pools_given given;
    const size_t bytes = UNIT_BYTES / 4;
    struct pools_opts o = {.parent = test_account(ACCOUNT_NO_LIMIT),
                           .pages_max = UNITS,
                           .states_max = UNITS,
                           .groups = {{.page_bytes = 4096}},
                           .group_count = 1,
                           .state_bytes = bytes,
                           .bytes_max = UNITS * UNIT_BYTES,
                           .prefix_cache_max = UNITS * UNIT_BYTES};
    struct prefix_key keys[2] = {{{1}}, {{2}}};
    struct prefix_hit hit;
    uint32_t pages[2], node = NONE, states[6];
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pools_arena_bytes(&o) + 4096}, &arena),
                     0);
    assert_int_equal(pools_create(arena, &o, &p), 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(block_pool_take(p.states, &states[i]), 0);
        assert_int_equal(p.pending[states[i]], 0);
        p.pending[states[i]] = 10 + i;
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(page_pool_take(p.groups[0].pages, &pages[i]), 0);
        node = prefix_index_add(p.index, 0, node, &keys[i], NULL, &pages[i]);
        assert_true(prefix_index_snapshot(p.index, node, states[4 + i]));
    }
    for (uint32_t i = 0; i < 3; i++)
        block_pool_give(p.states, states[i]);
    while (pools_shrink(&p, UINT64_MAX, &given))
        ;
    assert_int_equal(p.moves, 2);
    for (uint32_t i = 0; i < 2; i++) {
        prefix_index_find(p.index, keys, 1 + i, &hit);
        assert_true(hit.pages == 1 + i && hit.state < 2);
        assert_int_equal(pools_pending(&p, hit.state), 14 + i);
    }
    assert_int_equal(pools_pending(&p, NONE), 0);
    for (uint32_t i = 0; i < 2; i++)
        page_pool_unref(p.groups[0].pages, pages[i]);
    prefix_index_released(p.index, node);
    block_pool_give(p.states, states[3]);
    assert_int_equal(pools_done(&p, NULL), 0);
    arena_free(arena);
}

/* An arrival's bytes and its pending tokens. */
TEST(an_arrival_fills_its_block)
{
    struct scene s;
    uint32_t page, state;
    char *bytes = malloc(UNIT_BYTES), *back = malloc(UNIT_BYTES);
    assert_true(bytes && back);
    memset(bytes, 7, UNIT_BYTES);
    scene_open(&s);
    assert_int_equal(page_pool_take(s.pools.groups[0].pages, &page), 0);
    assert_int_equal(block_pool_take(s.pools.states, &state), 0);
    s.pools.pending[state] = 5;
    struct tier_arrival a = {.kind = TIER_PAGE, .bytes = bytes};
    pools_arrived(&s.pools, &a, page);
    assert_int_equal(pools_get(&s.pools, TIER_PAGE, page, 0, UNIT_BYTES, back), 0);
    assert_memory_equal(back, bytes, UNIT_BYTES);
    a = (struct tier_arrival){.kind = TIER_SNAPSHOT, .bytes = bytes, .pending = 3};
    pools_arrived(&s.pools, &a, state);
    assert_int_equal(pools_get(&s.pools, TIER_SNAPSHOT, state, 0, UNIT_BYTES, back), 0);
    assert_memory_equal(back, bytes, UNIT_BYTES);
    assert_int_equal(pools_pending(&s.pools, state), 3);
    page_pool_unref(s.pools.groups[0].pages, page);
    block_pool_give(s.pools.states, state);
    free(bytes);
    free(back);
    scene_close(&s);
}

/* ---- several devices ---- */

static bool count_more(void *arg)
{
    *(uint32_t *)arg += 1;
    return false;
}

/* Returns how often others were asked for memory of the first device, of which there is enough: a device
 * beside it has `beside` units. */
static uint32_t asked_with(uint32_t beside)
{
    struct account *parent = test_account(ACCOUNT_NO_LIMIT), *other = test_account(ACCOUNT_NO_LIMIT);
    uint32_t asked = 0, page, taken = 0;
    struct pools_opts o = {
        .parent = parent,
        .pages_max = UNITS,
        .groups = {{.page_bytes = UNIT_BYTES}},
        .group_count = 1,
        .bytes_max = ACCOUNT_NO_LIMIT,
        .beside = {{.parent = other, .page_bytes = {UNIT_BYTES}, .bytes_max = beside * UNIT_BYTES}},
        .beside_count = 1,
        .more = count_more,
        .arg = &asked};
    struct pools pools;
    struct arena *arena;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pools_arena_bytes(&o) + 4096}, &arena),
                     0);
    assert_int_equal(pools_create(arena, &o, &pools), 0);
    while (page_pool_take(pools.groups[0].pages, &page) == 0)
        taken++;
    assert_int_equal(taken, beside);
    while (taken > 0)
        page_pool_unref(pools.groups[0].pages, --taken);
    assert_int_equal(pools_done(&pools, NULL), 0);
    assert_int_equal(account_numbers(parent).reserved + account_numbers(other).reserved, 0);
    arena_free(arena);
    return asked;
}

TEST(others_are_not_asked_for_memory_that_does_not_help)
{
    assert_int_equal(asked_with(3), 0);
}

TEST_MAIN()
