/* When and how much a trim gives back, from pools alone: no engine, no model, no images. */
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "engine/budget.h"
#include "engine/image_sched.h"
#include "engine/pools.h"
#include "engine/trim.h"
#include "reclaim/holders.h"

#include <string.h>

#define UNITS 24

struct fixture {
    struct arena *arena;
    struct account *parent;
    struct pools pools;
    struct image_sched images; /* images of a model that sees nothing */
    struct budget budget;
    struct trim t;
    uint32_t pages[UNITS];
    uint32_t quiet, published; /* quiet: looks before a message comes */
};

static bool is_wanted(void *arg)
{
    struct fixture *f = arg;
    return f->quiet == 0 || --f->quiet == 0;
}

static void publish(void *arg)
{
    struct fixture *f = arg;
    f->published++;
}

/* Every page is a unit. */
static void setup(struct fixture *f)
{
    *f = (struct fixture){.parent = test_account(ACCOUNT_NO_LIMIT), .quiet = 1000000};
    struct pools_opts o = {.parent = f->parent,
                           .pages_max = UNITS,
                           .groups = {{.page_bytes = UNIT_BYTES}},
                           .group_count = 1,
                           .bytes_max = UNITS * UNIT_BYTES,
                           .prefix_cache_max = UNITS * UNIT_BYTES};
    struct trim_opts trim = {&f->pools, &f->images, &f->budget, "test", false, is_wanted, publish, f};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pools_arena_bytes(&o) + 4096}, &f->arena),
                     0);
    assert_int_equal(pools_create(f->arena, &o, &f->pools), 0);
    trim_init(&f->t, &trim);
}

static void teardown(struct fixture *f)
{
    trim_end(&f->t);
    assert_int_equal(pools_done(&f->pools, NULL), 0);
    assert_int_equal(account_numbers(f->parent).reserved, 0);
    arena_free(f->arena);
}

/* A request that takes pages and ends: their units are free. */
static void use(struct fixture *f, uint32_t count)
{
    pools_clock(&f->pools, clock_now_ns());
    trim_call_off(&f->t);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(page_pool_take(f->pools.groups[0].pages, &f->pages[i]), 0);
    for (uint32_t i = 0; i < count; i++)
        page_pool_unref(f->pools.groups[0].pages, f->pages[i]);
}

static uint64_t held_units(struct fixture *f)
{
    return pools_held_bytes(&f->pools) / UNIT_BYTES;
}

TEST(an_idle_trim_begins_after_its_patience_and_gives_all_back)
{
    struct fixture f;
    setup(&f);
    use(&f, UNITS);
    uint64_t end_ns = clock_now_ns(), wait_ns = trim_wait_ns(&f.t, end_ns, end_ns);
    assert_true(wait_ns > 0 && wait_ns <= 50 * NS_PER_MS);
    assert_int_equal(trim_pending_bytes(&f.t, 0), UNITS * UNIT_BYTES);
    assert_int_equal(trim_wait_ns(&f.t, end_ns, end_ns + wait_ns), 0);
    trim_run(&f.t);
    assert_int_equal(held_units(&f), 0);
    assert_true(f.t.now.trims == 1 && f.t.now.units == UNITS && f.t.now.slices >= UNITS);
    assert_true(trim_wait_ns(&f.t, end_ns, end_ns + wait_ns) == UINT64_MAX);
    assert_int_equal(trim_pending_bytes(&f.t, 0), 0);
    teardown(&f);
}

TEST(a_message_interrupts_a_trim_and_a_step_calls_it_off)
{
    struct fixture f;
    setup(&f);
    use(&f, UNITS);
    uint64_t end_ns = clock_now_ns();
    (void)trim_wait_ns(&f.t, end_ns, end_ns);
    f.quiet = 4;
    trim_run(&f.t);
    assert_int_equal(held_units(&f), UNITS - 3);
    assert_true(f.t.owed);
    trim_call_off(&f.t);
    assert_false(f.t.owed);
    teardown(&f);
}

TEST(units_that_are_needed_again_at_once_make_it_patient)
{
    struct fixture f;
    setup(&f);
    uint64_t end_ns = clock_now_ns(), first_ns = trim_wait_ns(&f.t, end_ns, end_ns);
    use(&f, UNITS);
    trim_run(&f.t);
    use(&f, UNITS);
    end_ns = clock_now_ns();
    assert_true(trim_wait_ns(&f.t, end_ns, end_ns) == 2 * first_ns);
    trim_run(&f.t);
    /* Later ones were right to give back. */
    trim_call_off(&f.t);
    end_ns = clock_now_ns() + 2 * NS_PER_S;
    assert_true(trim_wait_ns(&f.t, end_ns, end_ns) == first_ns);
    teardown(&f);
}

TEST(between_steps_units_beyond_a_threshold_go_which_falls_with_the_sequences)
{
    struct fixture f;
    setup(&f);
    uint64_t began_ns = clock_now_ns();
    use(&f, UNITS);
    uint64_t end_ns = clock_now_ns();
    assert_int_equal(trim_pending_bytes(&f.t, 0), UNITS / 2 * UNIT_BYTES);
    assert_int_equal(trim_pending_bytes(&f.t, 1), UNITS * 3 / 4 * UNIT_BYTES);
    trim_between_steps(&f.t, 1);
    /* Empty for too short a time, unless the machine ran something else meanwhile. */
    assert_true(held_units(&f) == UNITS || clock_now_ns() > began_ns + 50 * NS_PER_MS);
    while (clock_now_ns() < end_ns + 51 * NS_PER_MS)
        ;
    for (uint32_t i = 0; i < 10 * UNITS; i++)
        trim_between_steps(&f.t, 1);
    /* The threshold falls with the bytes, down to four units. */
    assert_int_equal(held_units(&f), 4);
    teardown(&f);
}

TEST(an_order_gives_cached_pages_and_is_answered_with_the_bytes)
{
    struct fixture f;
    setup(&f);
    struct prefix_key key = {.bytes = {1}};
    struct holder_answer answer;
    pools_clock(&f.pools, clock_now_ns());
    assert_int_equal(page_pool_take(f.pools.groups[0].pages, &f.pages[0]), 0);
    uint32_t node = prefix_index_add(f.pools.index, 0, NONE, &key, NULL, &f.pages[0]);
    page_pool_unref(f.pools.groups[0].pages, f.pages[0]);
    prefix_index_released(f.pools.index, node);
    struct holder_ask *trim = holder_ask_create(HOLDER_TRIM, 0, 0), *give, *clear;
    trim_take_order(&f.t, trim);
    assert_int_equal(trim_wait_ns(&f.t, 0, 0), 0);
    trim_run(&f.t);
    assert_int_equal(holder_ask_wait(trim, UINT64_MAX, &answer), 0);
    assert_true(answer.bytes == 0 && held_units(&f) == 1 && f.published == 1);
    give = holder_ask_create(HOLDER_GIVE, UNIT_BYTES, UINT64_MAX);
    trim_take_order(&f.t, give);
    trim_between_steps(&f.t, 1);
    assert_int_equal(holder_ask_wait(give, UINT64_MAX, &answer), 0);
    assert_true(answer.bytes == UNIT_BYTES && answer.entries == 1 && f.t.now.reclaims == 1);
    clear = holder_ask_create(HOLDER_CLEAR, 0, 0);
    trim_take_order(&f.t, clear);
    trim_end(&f.t);
    assert_int_equal(holder_ask_wait(clear, UINT64_MAX, &answer), 0);
    teardown(&f);
}

TEST(short_memory_drops_prefixes_and_waits_for_nothing)
{
    struct fixture f;
    setup(&f);
    trim_reclaim(&f.t);
    assert_false(f.t.pressed); /* nothing is there */
    use(&f, UNITS);
    trim_reclaim(&f.t);
    assert_true(f.t.pressed && f.t.now.reclaims == 1);
    assert_int_equal(trim_wait_ns(&f.t, clock_now_ns(), 0), 0);
    trim_run(&f.t);
    assert_true(held_units(&f) == 0 && !f.t.pressed);
    teardown(&f);
}

TEST_MAIN()
