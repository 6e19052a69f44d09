/* Pages that move: cached pages move down until no unit can be emptied, and nothing else changes. */
/* One account each, and the ledger of a test has 16. */
#define TEST_SEEDS 15
#include "test_rng.h"
#include "test_blocks.h"
#include "test_ledger.h"

#include "base/check.h"
#include "cache/page_pool.h"

#include <errno.h>
#include <string.h>

#define PAGES_MAX 96

struct fixture {
    struct arena *arena;
    struct account *kv;
    struct page_pool *pool;
    size_t page_bytes;
    /* Content of each page by its name; 0: nothing. */
    uint32_t names[PAGES_MAX], next_name;
    uint32_t evicted, moves; /* evicted: the name of the last one */
    uint32_t reclaimable;    /* units that others have */
    bool asked_for_cached;
};

static uint32_t *name_in(struct fixture *f, uint32_t page)
{
    return (uint32_t *)(void *)(test_pages(f->pool) + page * f->page_bytes);
}

static void on_evict(void *arg, uint32_t page)
{
    struct fixture *f = arg;
    f->evicted = f->names[page];
    f->names[page] = 0;
}

static void on_move(void *arg, uint32_t from, uint32_t to)
{
    struct fixture *f = arg;
    assert_int_equal(f->names[to], 0);
    assert_true(to < from);
    memcpy(name_in(f, to), name_in(f, from), f->page_bytes);
    f->names[to] = f->names[from];
    f->names[from] = 0;
    f->moves++;
}

static bool on_refusal(void *arg, bool cached)
{
    struct fixture *f = arg;
    f->asked_for_cached |= cached;
    if (f->reclaimable == 0)
        return false;
    f->reclaimable--;
    account_set_limit(f->kv, account_numbers(f->kv).limit + UNIT_BYTES);
    return true;
}

static void open_pool(struct fixture *f, size_t page_bytes, uint64_t limit_bytes)
{
    *f = (struct fixture){.kv = test_account(limit_bytes), .page_bytes = page_bytes};
    struct page_pool_opts opts = {.pages_max = PAGES_MAX,
                                  .page_bytes = page_bytes,
                                  .kv = f->kv,
                                  .evict = on_evict,
                                  .move = on_move,
                                  .reclaim = on_refusal,
                                  .arg = f};
    struct arena_opts arena = {.bytes_max = page_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &opts, &f->pool), 0);
}

static void close_pool(struct fixture *f)
{
    page_pool_check(f->pool);
    page_pool_done(f->pool);
    arena_free(f->arena);
    assert_int_equal(account_numbers(f->kv).reserved, 0);
}

static uint32_t take(struct fixture *f)
{
    uint32_t page;
    if (page_pool_take(f->pool, &page) < 0)
        return UINT32_MAX;
    f->names[page] = ++f->next_name;
    *name_in(f, page) = f->next_name;
    return page;
}

static void cache(struct fixture *f, uint32_t page)
{
    page_pool_keep(f->pool, page, 0);
    page_pool_unref(f->pool, page);
}

static void forget(struct fixture *f, uint32_t page)
{
    f->names[page] = 0;
    page_pool_unref(f->pool, page);
}

static uint64_t units_of(const struct fixture *f)
{
    return account_numbers(f->kv).used / UNIT_BYTES;
}

static void pack(struct fixture *f)
{
    do
        block_pool_trim(page_pool_blocks(f->pool), UINT32_MAX, UINT64_MAX);
    while (block_pool_compact(page_pool_blocks(f->pool)));
    block_pool_trim(page_pool_blocks(f->pool), UINT32_MAX, UINT64_MAX);
    page_pool_check(f->pool);
}

TEST(cached_pages_move_down_and_their_units_go)
{
    struct fixture f;
    open_pool(&f, UNIT_BYTES / 4, ACCOUNT_NO_LIMIT);
    for (uint32_t i = 0; i < 16; i++)
        take(&f);
    /* One page of each unit stays, cached. */
    for (uint32_t i = 0; i < 16; i++)
        if (i % 4 == 3)
            cache(&f, i);
        else
            forget(&f, i);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 0);
    assert_int_equal(block_pool_spare_bytes(page_pool_blocks(f.pool)), 3 * UNIT_BYTES);
    pack(&f);
    assert_int_equal(units_of(&f), 1);
    assert_int_equal(f.moves, 3);
    assert_int_equal(block_pool_spare_bytes(page_pool_blocks(f.pool)), 0);
    close_pool(&f);
}

TEST(a_page_that_moves_keeps_its_turn)
{
    struct fixture f;
    open_pool(&f, UNIT_BYTES / 2, ACCOUNT_NO_LIMIT);
    for (uint32_t i = 0; i < 6; i++)
        take(&f);
    cache(&f, 5);
    cache(&f, 1);
    cache(&f, 3);
    forget(&f, 0);
    forget(&f, 2);
    forget(&f, 4);
    pack(&f);
    assert_int_equal(units_of(&f), 2);
    static const uint32_t order[] = {6, 2, 4};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(page_pool_evict(f.pool));
        assert_int_equal(f.evicted, order[i]);
    }
    close_pool(&f);
}

TEST(a_referenced_page_does_not_move)
{
    struct fixture f;
    open_pool(&f, UNIT_BYTES / 2, ACCOUNT_NO_LIMIT);
    for (uint32_t i = 0; i < 6; i++)
        take(&f);
    cache(&f, 4); /* next to page 5, which is in use */
    forget(&f, 0);
    forget(&f, 2);
    pack(&f);
    assert_int_equal(f.moves, 0);
    assert_int_equal(units_of(&f), 3);
    close_pool(&f);
}

TEST(what_was_emptied_a_moment_ago_stays)
{
    struct fixture f;
    open_pool(&f, UNIT_BYTES, ACCOUNT_NO_LIMIT);
    page_pool_clock(f.pool, 1000);
    for (uint32_t i = 0; i < 3; i++)
        take(&f);
    page_pool_clock(f.pool, 2000);
    forget(&f, 0);
    page_pool_clock(f.pool, 3000);
    forget(&f, 2);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, 2000), 0);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, 2001), UNIT_BYTES);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, 3000), 0);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, 3001), UNIT_BYTES);
    close_pool(&f);
}

TEST(units_that_come_again_at_once_are_counted)
{
    const uint64_t second = 1000000000;
    struct page_pool_numbers n;
    struct fixture f;
    open_pool(&f, UNIT_BYTES, ACCOUNT_NO_LIMIT);
    page_pool_clock(f.pool, 10 * second);
    forget(&f, take(&f));
    block_pool_trim(page_pool_blocks(f.pool), 1, UINT64_MAX);
    page_pool_clock(f.pool, 11 * second);
    forget(&f, take(&f));
    page_pool_numbers(f.pool, &n);
    assert_int_equal(n.blocks.recommitted, 0);
    block_pool_trim(page_pool_blocks(f.pool), 1, UINT64_MAX);
    page_pool_clock(f.pool, 12 * second - 1);
    forget(&f, take(&f));
    page_pool_numbers(f.pool, &n);
    assert_int_equal(n.blocks.recommitted, 1);
    close_pool(&f);
}

TEST(others_give_before_a_cached_page_goes)
{
    struct fixture f;
    open_pool(&f, UNIT_BYTES, 2 * UNIT_BYTES);
    cache(&f, take(&f));
    take(&f);
    f.reclaimable = 1;
    assert_int_equal(take(&f), 2);
    assert_false(f.asked_for_cached);
    assert_int_equal(f.evicted, 0);
    /* No other pool has free memory: the cached page goes, and other pools' caches stay. */
    assert_int_equal(take(&f), 0);
    assert_int_equal(f.evicted, 1);
    assert_false(f.asked_for_cached);
    uint32_t none = 7;
    assert_int_equal(page_pool_take(f.pool, &none), -ENOMEM);
    assert_int_equal(none, 7);
    assert_true(f.asked_for_cached);
    close_pool(&f);
}

/* The fewest units that unmovable pages allow: only the last is emptied into lower ones. */
static void check_packed(struct fixture *f)
{
    bool movable_only = true;
    for (uint32_t i = 0; i < PAGES_MAX; i++)
        movable_only = movable_only && (f->names[i] == 0 || page_pool_refs(f->pool, i) == 0);
    struct page_pool_numbers n;
    page_pool_numbers(f->pool, &n);
    uint64_t needed = DIV_UP(n.blocks.active_bytes, UNIT_BYTES);
    /* Pages across units keep one more. */
    if (movable_only)
        assert_true(units_of(f) <= needed + (UNIT_BYTES % f->page_bytes != 0));
}

PROPERTY(moves_lose_nothing, seed)
{
    static const size_t sizes[] = {UNIT_BYTES / 8, 40960 + 64, 700032};
    struct rng rng = {seed, 0};
    struct fixture f;
    open_pool(&f, sizes[seed % COUNT_OF(sizes)], ACCOUNT_NO_LIMIT);
    for (int step = 0; step < 2000; step++) {
        uint32_t page = (uint32_t)rng_below(&rng, PAGES_MAX);
        switch (rng_below(&rng, 8)) {
        case 0:
        case 1:
        case 2:
            take(&f);
            break;
        case 3:
        case 4:
            for (uint32_t i = page; i < MIN_OF(page + 8, PAGES_MAX); i++)
                if (f.names[i] && page_pool_refs(f.pool, i) == 1)
                    cache(&f, i);
            break;
        case 5:
            if (f.names[page] && page_pool_refs(f.pool, page) == 0)
                page_pool_ref(f.pool, page);
            break;
        case 6:
            for (uint64_t i = rng_below(&rng, 8); i > 0; i--)
                page_pool_evict(f.pool);
            break;
        default:
            if (rng_below(&rng, 4) == 0) {
                pack(&f);
                check_packed(&f);
            } else {
                block_pool_compact(page_pool_blocks(f.pool));
            }
        }
        page_pool_check(f.pool);
        for (uint32_t i = 0; i < PAGES_MAX; i++)
            assert_true(f.names[i] == 0 || *name_in(&f, i) == f.names[i]);
    }
    assert_true(f.moves > 0);
    close_pool(&f);
}

TEST_MAIN()
