/* Pages and snapshots handed to a tier that is a table of the test, without an engine. */
#include "test_ledger.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/tier_io.h"
#include "engine/pools.h"
#include "engine/write_behind.h"

#include <errno.h>
#include <string.h>

struct tier_write;

#define PAGES 4

static uint8_t copied[2 * UNIT_BYTES];

struct fixture {
    struct arena *arena;
    struct account *parent;
    struct pools pools;
    struct tier_io tier;
    struct write_behind w;
    atomic_int failure;
    uint32_t pages[PAGES], node;
    /* The tier. */
    uint32_t room, drops; /* writes that it still takes; refusals of a last write */
    uint32_t slow;        /* refused offers after which the tier takes one; 0: it stays full */
    uint32_t refused;     /* refused offers since the tier last had room */
    uint32_t pages_stored, snapshots_stored, abandoned, pending;
    uint8_t first; /* byte of the last one stored */
    /* The engine. */
    uint32_t quiet;   /* looks before a message comes */
    uint64_t ends_ns; /* end of the drain */
};

static int write_begin(void *arg, const struct tier_offer *offer, struct tier_write *ret)
{
    struct fixture *f = arg;
    if (f->room == 0 && f->slow > 0 && ++f->refused == f->slow) {
        f->refused = 0;
        f->room = 1;
    }
    if (f->room == 0) {
        f->drops += offer->why != TIER_IDLE && offer->why != TIER_LEAVING;
        return -EAGAIN;
    }
    *ret = (struct tier_write){.bytes = copied, .handle = offer->kind};
    return 0;
}

static void write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct fixture *f = arg;
    f->abandoned += !whole;
    if (!whole)
        return;
    f->room--;
    f->first = copied[0];
    if (w->handle == TIER_PAGE) {
        f->pages_stored++;
    } else {
        f->snapshots_stored++;
        f->pending = w->pending;
    }
}

static bool is_wanted(void *arg)
{
    struct fixture *f = arg;
    return f->quiet == 0 || --f->quiet == 0;
}

static uint64_t ends_ns(void *arg)
{
    return ((struct fixture *)arg)->ends_ns;
}

static void failed(void *arg, int error)
{
    struct fixture *f = arg;
    atomic_store(&f->failure, error);
}

/* A cached prefix of PAGES pages, filled with their numbers, and a snapshot at its end. */
static void setup(struct fixture *f)
{
    uint32_t state, node = NONE;
    *f = (struct fixture){
        .tier = {.write_begin = write_begin, .write_end = write_end}, .room = 100, .quiet = 1000000};
    f->tier.arg = f;
    f->w.opts = (struct write_behind_opts){&f->pools, &f->tier, &f->tier, &f->tier, &f->failure,
                                           is_wanted, ends_ns,  failed,   f};
    struct pools_opts o = {.parent = f->parent = test_account(ACCOUNT_NO_LIMIT),
                           .pages_max = 8,
                           .states_max = 8,
                           .groups = {{.page_bytes = 2 * UNIT_BYTES}},
                           .group_count = 1,
                           .state_bytes = UNIT_BYTES,
                           .bytes_max = 32 * UNIT_BYTES,
                           .prefix_cache_max = 32 * UNIT_BYTES,
                           .evicting = write_behind_evicting,
                           .evicting_arg = &f->w};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pools_arena_bytes(&o) + 4096}, &f->arena),
                     0);
    assert_int_equal(pools_create(f->arena, &o, &f->pools), 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        struct prefix_key key = {.bytes = {(uint8_t)(i + 1)}};
        assert_int_equal(page_pool_take(f->pools.groups[0].pages, &f->pages[i]), 0);
        memset(dev_host((dev_ptr){f->pools.page_base[0].at + f->pages[i] * f->pools.page_bytes}), (int)i + 1,
               f->pools.page_bytes);
        node = prefix_index_add(f->pools.index, 0, node, &key, NULL, &f->pages[i]);
    }
    assert_int_equal(block_pool_take(f->pools.states, &state), 0);
    f->pools.pending[state] = 3;
    assert_true(prefix_index_snapshot(f->pools.index, node, state));
    for (uint32_t i = 0; i < PAGES; i++)
        page_pool_unref(f->pools.groups[0].pages, f->pages[i]);
    prefix_index_released(f->pools.index, node);
}

static void teardown(struct fixture *f)
{
    f->tier.arg = NULL;
    assert_int_equal(pools_done(&f->pools, NULL), 0);
    assert_int_equal(account_numbers(f->parent).reserved, 0);
    arena_free(f->arena);
}

TEST(it_begins_after_the_last_request_and_stores_each_once)
{
    struct fixture f;
    setup(&f);
    assert_true(write_behind_wait_ns(&f.w, 1000, 1000) == WRITE_BEHIND_NS);
    assert_true(write_behind_wait_ns(&f.w, 1000, 1000 + WRITE_BEHIND_NS) == 0);
    write_behind_run(&f.w);
    assert_true(f.pages_stored == PAGES && f.snapshots_stored == 1 && f.pending == 3);
    assert_true(write_behind_wait_ns(&f.w, 1000, 1000 + WRITE_BEHIND_NS) == UINT64_MAX);
    assert_true(pools_evict(&f.pools, UINT64_MAX) > 0);
    assert_int_equal(f.pages_stored + f.snapshots_stored, 2 * (PAGES + 1)); /* offered once more */
    teardown(&f);
}

TEST(a_message_abandons_the_copy_under_way)
{
    struct fixture f;
    setup(&f);
    f.quiet = 2; /* the second look is within the first page */
    write_behind_run(&f.w);
    assert_true(f.pages_stored == 0 && f.abandoned == 1);
    f.quiet = 1000000;
    write_behind_run(&f.w);
    assert_true(f.pages_stored == PAGES && f.snapshots_stored == 1);
    teardown(&f);
}

TEST(a_full_tier_is_tried_again_and_given_up_after_its_patience)
{
    struct fixture f;
    uint64_t now_ns = clock_now_ns();
    setup(&f);
    f.room = 1;
    assert_true(write_behind_wait_ns(&f.w, now_ns, now_ns) > 0);
    write_behind_run(&f.w);
    assert_true(f.pages_stored == 1 && !f.w.given_up && f.w.retry_ns > now_ns);
    uint64_t wait_ns = write_behind_wait_ns(&f.w, now_ns, now_ns + WRITE_BEHIND_NS);
    assert_true(wait_ns < UINT64_MAX);
    /* Half a minute later nothing has changed. */
    uint64_t long_ago_ns = now_ns - 31 * NS_PER_S;
    assert_int_equal(write_behind_wait_ns(&f.w, long_ago_ns, now_ns), 0);
    write_behind_run(&f.w);
    assert_true(f.w.given_up);
    assert_true(write_behind_wait_ns(&f.w, long_ago_ns, now_ns) == UINT64_MAX);
    /* Another request has ended. */
    assert_true(write_behind_wait_ns(&f.w, now_ns, now_ns) == WRITE_BEHIND_NS);
    teardown(&f);
}

TEST(an_evicted_entry_is_handed_in_whole)
{
    struct fixture f;
    setup(&f);
    f.quiet = 0; /* not even a message stops that */
    assert_true(pools_evict(&f.pools, UINT64_MAX) > 0);
    assert_true(f.pages_stored == PAGES && f.snapshots_stored == 1 && f.abandoned == 0);
    assert_int_equal(f.first, 1); /* the first page of a prefix goes last */
    teardown(&f);
}

TEST(at_the_end_each_is_offered_once_more)
{
    struct fixture f;
    setup(&f);
    write_behind_run(&f.w);
    f.room = 2;
    f.pages_stored = f.snapshots_stored = 0;
    write_behind_end(&f.w);
    assert_int_equal(f.pages_stored + f.snapshots_stored, 2);
    assert_int_equal(f.drops, PAGES - 2); /* dropped pages; a snapshot is of no use without its page */
    teardown(&f);
}

TEST(the_end_waits_for_room_while_the_drain_lasts)
{
    struct fixture f;
    setup(&f);
    f.room = 1;
    f.slow = 3;
    f.ends_ns = clock_now_ns() + 60 * NS_PER_S;
    write_behind_end(&f.w);
    assert_true(f.pages_stored == PAGES && f.snapshots_stored == 1 && f.drops == 0);
    teardown(&f);
}

TEST(the_end_does_not_wait_after_the_drain)
{
    struct fixture f;
    uint64_t began_ns = clock_now_ns();
    setup(&f);
    f.room = 1;
    f.ends_ns = began_ns + 30 * NS_PER_MS;
    write_behind_end(&f.w);
    assert_true(f.pages_stored == 1 && f.drops > 0);
    assert_true(clock_now_ns() - began_ns >= 30 * NS_PER_MS);
    teardown(&f);
}

TEST(bytes_of_a_failed_device_are_not_stored)
{
    struct fixture f;
    setup(&f);
    atomic_store(&f.failure, -EIO);
    assert_true(write_behind_wait_ns(&f.w, 0, clock_now_ns()) == UINT64_MAX);
    write_behind_end(&f.w);
    assert_true(pools_evict(&f.pools, UINT64_MAX) > 0);
    assert_int_equal(f.pages_stored + f.snapshots_stored, 0);
    teardown(&f);
}

TEST_MAIN()
