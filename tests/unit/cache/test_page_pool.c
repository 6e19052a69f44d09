/* Pages: the order of taking, commits, trims, evictions. */
/* One account each, and the ledger of a test has 16. */
#define TEST_SEEDS 15
#include "test_rng.h"
#include "test_blocks.h"
#include "test_ledger.h"

#include "base/check.h"
#include "cache/page_pool.h"

#include <errno.h>
#include <string.h>

struct fixture {
    struct arena *arena;
    struct account *kv;
    struct page_pool *pool;
    uint32_t evicted[64], evicted_count;
};

static void on_evict(void *arg, uint32_t page)
{
    struct fixture *f = arg;
    f->evicted[f->evicted_count++] = page;
}

static struct fixture *open_limited(struct fixture *f, uint32_t pages_max, size_t page_bytes,
                                    uint64_t limit_bytes)
{
    *f = (struct fixture){.kv = test_account(limit_bytes)};
    struct page_pool_opts opts = {
        .pages_max = pages_max, .page_bytes = page_bytes, .kv = f->kv, .evict = on_evict, .arg = f};
    struct arena_opts arena = {.bytes_max = page_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &opts, &f->pool), 0);
    return f;
}

static struct fixture *open_pool(struct fixture *f, uint32_t pages_max, size_t page_bytes)
{
    return open_limited(f, pages_max, page_bytes, ACCOUNT_NO_LIMIT);
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
    uint32_t page = UINT32_MAX;
    assert_int_equal(page_pool_take(f->pool, &page), 0);
    page_pool_check(f->pool);
    return page;
}

static uint64_t committed(const struct fixture *f)
{
    return account_numbers(f->kv).used;
}

struct crew {
    uint32_t runs, tasks;
    bool is_busy;
};

static bool on_run(void *arg, void (*task)(void *task_arg, uint32_t i), void *task_arg, uint32_t count)
{
    struct crew *c = arg;
    c->runs++;
    c->tasks += c->is_busy ? 0 : count;
    for (uint32_t i = count; i-- > 0 && !c->is_busy;)
        task(task_arg, i);
    return !c->is_busy;
}

/* Pages of 1.5 units, the pool's account limited to `units` units. */
static struct fixture *open_with_crew(struct fixture *f, uint64_t units, struct crew *crew,
                                      struct units_crew *ret)
{
    *f = (struct fixture){.kv = test_account(units * UNIT_BYTES)};
    *ret = (struct units_crew){on_run, crew};
    struct page_pool_opts opts = {
        .pages_max = 100, .page_bytes = UNIT_BYTES * 3 / 2, .kv = f->kv, .arg = f, .crew = ret};
    struct arena_opts arena = {.bytes_max = page_pool_arena_bytes(&opts)};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &opts, &f->pool), 0);
    return f;
}

TEST(pages_that_are_about_to_be_taken_are_committed_at_once)
{
    struct fixture f;
    struct crew crew = {0};
    struct units_crew units;
    open_with_crew(&f, 1000, &crew, &units);
    page_pool_prepare(f.pool, 10);
    assert_int_equal(crew.runs, 1);
    assert_int_equal(crew.tasks, 15);
    assert_int_equal(committed(&f), 15 * UNIT_BYTES);
    assert_int_equal(page_pool_ready(f.pool), 10);
    page_pool_check(f.pool);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(take(&f), i);
        memset(test_pages(f.pool) + i * (UNIT_BYTES * 3 / 2), 7, UNIT_BYTES * 3 / 2);
    }
    assert_int_equal(committed(&f), 15 * UNIT_BYTES);
    /* Ready pages need no commit, nor does one page need a crew. */
    page_pool_unref(f.pool, 2);
    page_pool_prepare(f.pool, 1);
    page_pool_prepare(f.pool, 2);
    assert_int_equal(crew.runs, 1);
    /* At most UNITS_AT_ONCE units at once; the lowest. */
    page_pool_prepare(f.pool, 90);
    assert_int_equal(committed(&f), (15 + UNITS_AT_ONCE) * UNIT_BYTES);
    page_pool_check(f.pool);
    for (uint32_t i = 0; i < 10; i++)
        if (i != 2)
            page_pool_unref(f.pool, i);
    close_pool(&f);
}

TEST(what_the_account_does_not_give_is_not_prepared)
{
    struct fixture f;
    struct crew crew = {0};
    struct units_crew units;
    open_with_crew(&f, 8, &crew, &units);
    page_pool_prepare(f.pool, 20);
    assert_int_equal(crew.tasks, 8);
    assert_int_equal(committed(&f), 8 * UNIT_BYTES);
    assert_int_equal(page_pool_ready(f.pool), 5);
    close_pool(&f);
}

TEST(a_crew_that_does_other_things_leaves_the_commits_to_who_takes)
{
    struct fixture f;
    struct crew crew = {.is_busy = true};
    struct units_crew units;
    open_with_crew(&f, 100, &crew, &units);
    page_pool_prepare(f.pool, 20);
    assert_int_equal(crew.runs, 1);
    assert_int_equal(account_numbers(f.kv).reserved, 0);
    assert_int_equal(take(&f), 0);
    assert_int_equal(committed(&f), 2 * UNIT_BYTES);
    page_pool_unref(f.pool, 0);
    close_pool(&f);
}

TEST(the_lowest_page_is_handed_out)
{
    struct fixture f;
    open_pool(&f, 200, 4096);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(take(&f), i);
    uint32_t none = 77;
    assert_int_equal(page_pool_take(f.pool, &none), -ENOSPC);
    assert_int_equal(none, 77);
    page_pool_unref(f.pool, 150);
    page_pool_unref(f.pool, 3);
    page_pool_unref(f.pool, 64);
    assert_int_equal(take(&f), 3);
    assert_int_equal(take(&f), 64);
    assert_int_equal(take(&f), 150);
    close_pool(&f);
}

TEST(units_are_committed_as_pages_need_them)
{
    struct fixture f;
    open_pool(&f, 8, UNIT_BYTES / 2 + 64);
    assert_int_equal(committed(&f), 0);
    memset(test_pages(f.pool) + take(&f) * (UNIT_BYTES / 2 + 64), 1, UNIT_BYTES / 2 + 64);
    assert_int_equal(committed(&f), UNIT_BYTES);
    /* The second page reaches 128 bytes into the second unit. */
    memset(test_pages(f.pool) + take(&f) * (UNIT_BYTES / 2 + 64), 1, UNIT_BYTES / 2 + 64);
    assert_int_equal(committed(&f), 2 * UNIT_BYTES);
    take(&f);
    assert_int_equal(committed(&f), 2 * UNIT_BYTES);
    struct page_pool_numbers n;
    page_pool_numbers(f.pool, &n);
    assert_int_equal(n.blocks.active_bytes, 3 * (UNIT_BYTES / 2 + 64));
    assert_int_equal(n.blocks.cached_bytes, 2 * UNIT_BYTES - n.blocks.active_bytes);
    assert_int_equal(n.blocks.limit_bytes, 5 * UNIT_BYTES);
    close_pool(&f);
}

TEST(trim_gives_back_empty_units_from_the_top)
{
    struct fixture f;
    open_pool(&f, 6, UNIT_BYTES);
    for (int i = 0; i < 6; i++)
        take(&f);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 0);
    page_pool_unref(f.pool, 1);
    page_pool_unref(f.pool, 4);
    page_pool_unref(f.pool, 5);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 1, UINT64_MAX), UNIT_BYTES);
    assert_int_equal(committed(&f), 5 * UNIT_BYTES);
    page_pool_check(f.pool);
    /* Unit 5 went first: page 4 needs no commit, page 5 does. */
    assert_int_equal(page_pool_ready(f.pool), 2);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 2 * UNIT_BYTES);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 0);
    assert_int_equal(committed(&f), 3 * UNIT_BYTES);
    close_pool(&f);
}

TEST(a_page_across_units_keeps_all_of_them)
{
    struct fixture f;
    open_pool(&f, 3, 2 * UNIT_BYTES + 64);
    take(&f);
    assert_int_equal(committed(&f), 3 * UNIT_BYTES);
    take(&f);
    assert_int_equal(committed(&f), 5 * UNIT_BYTES);
    page_pool_unref(f.pool, 0);
    /* Unit 2 is shared with page 1. */
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 2 * UNIT_BYTES);
    page_pool_unref(f.pool, 1);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 3 * UNIT_BYTES);
    assert_int_equal(committed(&f), 0);
    close_pool(&f);
}

TEST(a_refused_reservation_moves_nothing)
{
    struct fixture f;
    open_limited(&f, 3, 2 * UNIT_BYTES, 3 * UNIT_BYTES);
    uint32_t page = 99;
    take(&f);
    assert_int_equal(page_pool_take(f.pool, &page), -ENOMEM);
    assert_int_equal(page, 99);
    assert_int_equal(committed(&f), 2 * UNIT_BYTES);
    assert_int_equal(account_numbers(f.kv).reserved, 2 * UNIT_BYTES);
    page_pool_check(f.pool);
    page_pool_unref(f.pool, 0);
    assert_int_equal(take(&f), 0);
    close_pool(&f);
}

TEST(committed_memory_is_used_before_more_is_asked_for)
{
    struct fixture f;
    open_limited(&f, 4, UNIT_BYTES, 3 * UNIT_BYTES);
    take(&f);
    take(&f);
    take(&f);
    page_pool_unref(f.pool, 0);
    page_pool_unref(f.pool, 1);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 1, UINT64_MAX), UNIT_BYTES); /* unit 1 */
    assert_int_equal(take(&f), 0);
    page_pool_unref(f.pool, 2);
    account_set_limit(f.kv, 2 * UNIT_BYTES);
    assert_int_equal(take(&f), 2);
    assert_int_equal(page_pool_take(f.pool, &(uint32_t){0}), -ENOMEM);
    close_pool(&f);
}

TEST(take_never_evicts_a_referenced_page)
{
    struct fixture f;
    open_pool(&f, 4, 4096);
    for (int i = 0; i < 4; i++)
        page_pool_keep(f.pool, take(&f), 0);
    assert_int_equal(page_pool_take(f.pool, &(uint32_t){0}), -ENOSPC);
    page_pool_ref(f.pool, 2);
    page_pool_unref(f.pool, 2);
    assert_int_equal(page_pool_take(f.pool, &(uint32_t){0}), -ENOSPC);
    assert_int_equal(f.evicted_count, 0);
    page_pool_unref(f.pool, 2);
    assert_int_equal(page_pool_available(f.pool), 1);
    assert_int_equal(take(&f), 2);
    assert_int_equal(f.evicted_count, 1);
    assert_int_equal(f.evicted[0], 2);
    assert_int_equal(page_pool_refs(f.pool, 2), 1);
    close_pool(&f);
}

/* Takes a page and caches it for the share. */
static uint32_t cache(struct fixture *f, uint32_t share)
{
    uint32_t page = take(f);
    page_pool_keep(f->pool, page, share);
    page_pool_unref(f->pool, page);
    page_pool_check(f->pool);
    return page;
}

TEST(a_share_that_grows_evicts_its_own_pages)
{
    struct fixture f;
    open_pool(&f, 6, 4096);
    uint32_t first = cache(&f, 1), second = cache(&f, 1);
    for (int i = 0; i < 40; i++)
        cache(&f, 2);
    assert_int_equal(f.evicted_count, 36);
    for (uint32_t i = 0; i < f.evicted_count; i++)
        assert_true(f.evicted[i] != first && f.evicted[i] != second);
    /* Shares of two pages each: the older page goes. */
    assert_true(page_pool_evict(f.pool) && page_pool_evict(f.pool));
    assert_int_equal(page_pool_age(f.pool), 42);
    assert_true(page_pool_evict(f.pool));
    assert_int_equal(f.evicted[38], first);
    close_pool(&f);
}

TEST(a_stale_share_gives_its_pages_to_the_others)
{
    struct fixture f;
    const uint64_t ms = 1000000, start = 5000;
    open_pool(&f, 6, 4096);
    page_pool_clock(f.pool, start * ms);
    uint32_t first = cache(&f, 1), second = cache(&f, 1);
    page_pool_clock(f.pool, (start + PAGE_STALE_MS - 1) * ms);
    for (int i = 0; i < 10; i++)
        cache(&f, 2);
    assert_int_equal(f.evicted_count, 6);
    for (uint32_t i = 0; i < f.evicted_count; i++)
        assert_true(f.evicted[i] != first && f.evicted[i] != second);
    assert_false(page_pool_stale(f.pool, first));
    page_pool_clock(f.pool, (start + PAGE_STALE_MS) * ms);
    assert_true(page_pool_stale(f.pool, first));
    assert_int_equal(page_pool_oldest_ns(f.pool), start * ms);
    cache(&f, 2);
    cache(&f, 2);
    assert_int_equal(f.evicted_count, 8);
    assert_int_equal(f.evicted[6], first);
    assert_int_equal(f.evicted[7], second);
    close_pool(&f);
}

TEST(the_least_recently_used_page_is_evicted_and_free_ones_go_first)
{
    struct fixture f;
    open_pool(&f, 4, 4096);
    for (int i = 0; i < 4; i++)
        page_pool_keep(f.pool, take(&f), 0);
    page_pool_unref(f.pool, 3);
    page_pool_unref(f.pool, 0);
    page_pool_unref(f.pool, 1);
    page_pool_check(f.pool);
    /* Used again: now it is the youngest. */
    page_pool_ref(f.pool, 3);
    page_pool_unref(f.pool, 3);
    page_pool_drop(f.pool, 1);
    assert_int_equal(take(&f), 1);
    assert_int_equal(f.evicted_count, 0);
    assert_int_equal(take(&f), 0);
    assert_int_equal(take(&f), 3);
    assert_int_equal(f.evicted_count, 2);
    page_pool_drop(f.pool, 2);
    page_pool_unref(f.pool, 2);
    struct page_pool_numbers n;
    page_pool_numbers(f.pool, &n);
    assert_int_equal(n.referenced, 3);
    assert_int_equal(n.kept, 0);
    assert_int_equal(n.blocks.taken, 3);
    close_pool(&f);
}

TEST(a_cached_page_keeps_its_unit)
{
    struct fixture f;
    open_pool(&f, 2, UNIT_BYTES);
    page_pool_keep(f.pool, take(&f), 0);
    page_pool_unref(f.pool, 0);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), 0);
    page_pool_drop(f.pool, 0);
    assert_int_equal(block_pool_trim(page_pool_blocks(f.pool), 10, UINT64_MAX), UNIT_BYTES);
    close_pool(&f);
}

TEST(wrong_options_are_refused_and_wrong_calls_stop)
{
    struct fixture f;
    open_pool(&f, 2, 4096);
    struct page_pool *none = NULL;
    struct page_pool_opts opts = {.pages_max = 0, .page_bytes = 64, .kv = f.kv};
    assert_int_equal(page_pool_create(f.arena, &opts, &none), -EINVAL);
    opts = (struct page_pool_opts){.pages_max = 1, .page_bytes = 100, .kv = f.kv};
    assert_int_equal(page_pool_create(f.arena, &opts, &none), -EINVAL);
    opts = (struct page_pool_opts){.pages_max = UINT32_MAX, .page_bytes = SIZE_MAX / 64 * 64, .kv = f.kv};
    assert_int_not_equal(page_pool_create(f.arena, &opts, &none), 0);
    assert_null(none);
    assert_stops(page_pool_unref(f.pool, 0));
    assert_stops(page_pool_ref(f.pool, 1));
    assert_stops(page_pool_keep(f.pool, 2, 0));
    page_pool_done(NULL);
    close_pool(&f);
}

/* Against the plainest model there is: a count and a flag per page. */
PROPERTY(pages_follow_their_counts, seed)
{
    enum { PAGES = 48 };
    static const size_t sizes[] = {4096, 40960 + 64, 700032, 5 << 20};
    struct rng rng = {seed, 0};
    struct fixture f;
    uint32_t refs[PAGES] = {0};
    bool kept[PAGES] = {false};
    open_pool(&f, PAGES, sizes[seed % COUNT_OF(sizes)]);
    for (int step = 0; step < 300; step++) {
        uint32_t page = (uint32_t)rng_below(&rng, PAGES), got;
        f.evicted_count = 0;
        switch (rng_below(&rng, 6)) {
        case 0:
        case 1:
            if (page_pool_take(f.pool, &got) == 0) {
                assert_int_equal(refs[got], 0);
                assert_int_equal(f.evicted_count, kept[got]);
                refs[got] = 1;
                kept[got] = false;
            }
            break;
        case 2:
            if (refs[page] || kept[page]) {
                page_pool_ref(f.pool, page);
                refs[page]++;
            }
            break;
        case 3:
            if (refs[page]) {
                page_pool_unref(f.pool, page);
                refs[page]--;
            }
            break;
        case 4:
            if (refs[page]) {
                page_pool_keep(f.pool, page, 0);
                kept[page] = true;
            } else if (kept[page]) {
                page_pool_drop(f.pool, page);
                kept[page] = false;
            }
            break;
        default:
            block_pool_trim(page_pool_blocks(f.pool), (uint32_t)rng_below(&rng, 3), UINT64_MAX);
        }
        page_pool_check(f.pool);
        assert_int_equal(page_pool_refs(f.pool, page), refs[page]);
    }
    close_pool(&f);
}

TEST(an_arena_that_is_too_small_makes_no_pool)
{
    struct page_pool_opts opts = {
        .pages_max = 1000, .page_bytes = 4096, .kv = test_account(ACCOUNT_NO_LIMIT)};
    size_t whole = 0;
    for (size_t left = 0; left < 4096; left += 256) {
        struct arena *a;
        struct page_pool *none = NULL;
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 65536}, &a), 0);
        if (left == 0)
            while (arena_alloc(a, 64))
                whole += 64;
        else
            assert_non_null(arena_alloc(a, whole - left));
        assert_int_equal(page_pool_create(a, &opts, &none), -ENOMEM);
        assert_null(none);
        arena_free(a);
    }
    assert_int_equal(account_numbers(opts.kv).reserved, 0);
}

TEST_MAIN()
