/* Pinned memory below the pools: hits, the order of eviction, offers to the tier below, and its memory. */
#include "test_ledger.h"

#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/pinned_tier.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"
#include "memory/units.h"

#include <errno.h>
#include <string.h>

#define PAGE   (UNIT_BYTES / 2) /* two of a chunk */
#define STATE  UNIT_BYTES
#define STORED 16

struct fixture {
    struct account *account;
    struct arena *arena;
    struct pinned_tier *t;
    struct tier_io io;
    uint64_t allowed;
    uint32_t pins, wakes;
    /* The tier below. */
    struct tier_io below;
    struct prefix_key stored[STORED];
    uint8_t first[STORED];
    uint32_t stored_count, ended;
    char bytes[STATE];
};

static struct prefix_key key_of(uint32_t number)
{
    struct prefix_key key = {.bytes = {(uint8_t)number, (uint8_t)(number >> 8), 1}};
    return key;
}

static bool below_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    const struct fixture *f = arg;
    (void)kind;
    for (uint32_t i = 0; i < f->stored_count; i++)
        if (memcmp(&f->stored[i], key, sizeof(*key)) == 0)
            return true;
    return false;
}

static uint64_t below_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                              const uint32_t first[TIER_KINDS])
{
    (void)keys;
    (void)arg;
    return (count - first[TIER_PAGE]) * 1000000ull;
}

static int below_write_begin(void *arg, const struct tier_offer *o, struct tier_write *ret)
{
    struct fixture *f = arg;
    if (below_has(f, o->key, o->kind))
        return -EEXIST;
    assert_true(f->stored_count < STORED);
    f->stored[f->stored_count] = *o->key;
    f->ended += o->why == TIER_END;
    *ret = (struct tier_write){.bytes = f->bytes};
    return 0;
}

static void below_write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct fixture *f = arg;
    assert_true(w->bytes == f->bytes && whole);
    f->first[f->stored_count++] = (uint8_t)f->bytes[0];
}

static bool below_take(void *arg, struct tier_arrival *ret)
{
    (void)arg;
    (void)ret;
    return false;
}

static void below_cancel(void *arg, uint64_t tag)
{
    (void)arg;
    (void)tag;
}

static uint64_t allow(void *arg, uint64_t bytes)
{
    const struct fixture *f = arg;
    return MIN_OF(bytes, f->allowed);
}

static void pin(void *arg, void *at, size_t bytes)
{
    struct fixture *f = arg;
    assert_true(at && bytes == UNIT_BYTES);
    f->pins++;
}

static void unpin(void *arg, void *at)
{
    struct fixture *f = arg;
    assert_true(at && f->pins > 0);
    f->pins--;
}

static void wake(void *arg)
{
    struct fixture *f = arg;
    f->wakes++;
}

/* Chunks of a unit, up to `chunks`. */
static void setup(struct fixture *f, uint32_t chunks, bool below)
{
    *f = (struct fixture){.account = test_account(ACCOUNT_NO_LIMIT), .allowed = UINT64_MAX};
    f->below = (struct tier_io){.arg = below ? f : NULL,
                                .has = below_has,
                                .read_ns = below_read_ns,
                                .cancel = below_cancel,
                                .take = below_take,
                                .write_begin = below_write_begin,
                                .write_end = below_write_end};
    struct pinned_tier_opts o = {.account = f->account,
                                 .bytes_max = chunks * (uint64_t)UNIT_BYTES,
                                 .chunk_bytes = UNIT_BYTES,
                                 .bytes = {[TIER_PAGE] = PAGE, [TIER_SNAPSHOT] = STATE},
                                 .below = &f->below,
                                 .allow = allow,
                                 .pin = pin,
                                 .unpin = unpin,
                                 .wake = wake,
                                 .arg = f};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = pinned_tier_arena_bytes(&o)}, &f->arena),
                     0);
    assert_int_equal(pinned_tier_create(f->arena, &o, &f->t, &f->io), 0);
}

static void teardown(struct fixture *f)
{
    pinned_tier_check(f->t);
    pinned_tier_done(f->t);
    assert_int_equal(f->pins, 0);
    assert_int_equal(account_numbers(f->account).reserved, 0);
    arena_free(f->arena);
}

static struct pinned_numbers numbers(const struct fixture *f)
{
    struct pinned_numbers n;
    pinned_tier_check(f->t);
    pinned_tier_numbers(f->t, &n);
    return n;
}

static void grow(struct fixture *f)
{
    while (pinned_tier_grow(f->t))
        pinned_tier_check(f->t);
}

/* Evicted by the pools at this time; filled with its number. */
static int put(struct fixture *f, uint32_t number, enum tier_kind kind, uint32_t share)
{
    struct prefix_key key = key_of(number);
    struct tier_write w;
    pinned_tier_clock(f->t, 1000 + number);
    int r = f->io.write_begin(f->io.arg, &(struct tier_offer){&key, kind, share, TIER_EVICTED}, &w);
    if (r == 0) {
        memset(w.bytes, (int)number, kind == TIER_PAGE ? PAGE : STATE);
        w.pending = kind == TIER_SNAPSHOT ? number : 0;
        f->io.write_end(f->io.arg, &w, true);
    }
    pinned_tier_check(f->t);
    return r;
}

static bool has(struct fixture *f, uint32_t number, enum tier_kind kind)
{
    struct prefix_key key = key_of(number);
    return f->io.has(f->io.arg, &key, kind);
}

/* Two pages are in the only chunk. */
static void put_two(struct fixture *f, uint32_t share)
{
    assert_int_equal(put(f, 1, TIER_PAGE, share), -ENODEV);
    grow(f);
    assert_int_equal(put(f, 1, TIER_PAGE, share), 0);
    assert_int_equal(put(f, 2, TIER_PAGE, share), 0);
}

TEST(entries_come_back_as_they_were)
{
    struct fixture f;
    struct tier_arrival a;
    struct prefix_key key = key_of(2);
    setup(&f, 1, false);
    put_two(&f, 0);
    assert_true(f.pins == 1 && numbers(&f).bytes == UNIT_BYTES && numbers(&f).pages == 2);
    assert_int_equal(put(&f, 2, TIER_PAGE, 0), -EEXIST);
    assert_int_equal(f.io.read(f.io.arg, &key, TIER_PAGE, 7, 5), 0);
    assert_int_equal(f.wakes, 1);
    assert_true(f.io.take(f.io.arg, &a));
    assert_true(a.tag == 7 && a.index == 5 && a.kind == TIER_PAGE && a.status == 0 && a.pinned);
    for (size_t i = 0; i < PAGE; i++)
        assert_true(((const char *)a.bytes)[i] == 2);
    assert_false(f.io.take(f.io.arg, &a));
    f.io.give(f.io.arg, &a);
    key = key_of(3);
    assert_int_equal(f.io.read(f.io.arg, &key, TIER_PAGE, 7, 5), -ENOENT);
    teardown(&f);
}

TEST(what_is_being_read_stays)
{
    struct fixture f;
    struct tier_arrival a;
    uint32_t entries = 0;
    struct prefix_key key = key_of(1);
    setup(&f, 1, false);
    put_two(&f, 0);
    assert_int_equal(f.io.read(f.io.arg, &key, TIER_PAGE, 7, 0), 0);
    assert_int_equal(put(&f, 3, TIER_PAGE, 0), 0);
    assert_true(has(&f, 1, TIER_PAGE) && !has(&f, 2, TIER_PAGE) && has(&f, 3, TIER_PAGE));
    assert_true(f.io.take(f.io.arg, &a));
    assert_int_equal(pinned_tier_clear(f.t, &entries), 0);
    assert_int_equal(*(const char *)a.bytes, 1);
    f.io.give(f.io.arg, &a);
    assert_int_equal(pinned_tier_clear(f.t, &entries), UNIT_BYTES);
    assert_int_equal(entries, 2);
    teardown(&f);
}

TEST(a_cancelled_read_does_not_arrive)
{
    struct fixture f;
    struct tier_arrival a;
    struct prefix_key one = key_of(1), two = key_of(2);
    setup(&f, 1, false);
    put_two(&f, 0);
    assert_int_equal(f.io.read(f.io.arg, &one, TIER_PAGE, 7, 0), 0);
    assert_int_equal(f.io.read(f.io.arg, &two, TIER_PAGE, 8, 1), 0);
    f.io.cancel(f.io.arg, 7);
    pinned_tier_check(f.t);
    assert_true(f.io.take(f.io.arg, &a) && a.tag == 8 && a.index == 1);
    f.io.give(f.io.arg, &a);
    assert_false(f.io.take(f.io.arg, &a));
    teardown(&f);
}

TEST(the_least_recently_used_entry_of_the_largest_share_goes)
{
    struct fixture f;
    setup(&f, 2, false);
    put_two(&f, 1);
    grow(&f);
    assert_int_equal(put(&f, 3, TIER_PAGE, 2), 0);
    assert_int_equal(put(&f, 4, TIER_PAGE, 1), 0);
    assert_int_equal(put(&f, 1, TIER_PAGE, 1), -EEXIST); /* used again */
    assert_int_equal(put(&f, 5, TIER_PAGE, 2), 0);
    assert_true(has(&f, 1, TIER_PAGE) && !has(&f, 2, TIER_PAGE) && has(&f, 3, TIER_PAGE));
    assert_int_equal(numbers(&f).evictions, 1);
    teardown(&f);
}

TEST(a_stale_entry_of_a_smaller_share_goes_first)
{
    struct fixture f;
    struct prefix_key key = key_of(6);
    struct tier_write w;
    setup(&f, 2, false);
    put_two(&f, 1);
    grow(&f);
    assert_int_equal(put(&f, 3, TIER_PAGE, 2), 0);
    assert_int_equal(put(&f, 4, TIER_PAGE, 1), 0);
    pinned_tier_clock(f.t, 1003 + PAGE_STALE_MS * 1000000ull);
    f.io.used(f.io.arg, 1, (const struct prefix_key[]){key_of(1)}, 1, (uint32_t[TIER_KINDS]){0});
    f.io.used(f.io.arg, 1, (const struct prefix_key[]){key_of(2)}, 1, (uint32_t[TIER_KINDS]){0});
    assert_int_equal(f.io.write_begin(f.io.arg, &(struct tier_offer){&key, TIER_PAGE, 1, TIER_EVICTED}, &w),
                     0);
    f.io.write_end(f.io.arg, &w, true);
    assert_true(has(&f, 1, TIER_PAGE) && has(&f, 2, TIER_PAGE) && !has(&f, 3, TIER_PAGE));
    teardown(&f);
}

TEST(a_kind_takes_the_stalest_chunk_of_another)
{
    struct fixture f;
    setup(&f, 1, false);
    put_two(&f, 0);
    assert_int_equal(put(&f, 3, TIER_SNAPSHOT, 0), -ENODEV); /* there may be another chunk */
    grow(&f);
    assert_int_equal(put(&f, 3, TIER_SNAPSHOT, 0), 0);
    assert_true(has(&f, 3, TIER_SNAPSHOT) && !has(&f, 1, TIER_PAGE) && !has(&f, 2, TIER_PAGE));
    assert_true(numbers(&f).snapshots == 1 && numbers(&f).bytes == UNIT_BYTES);
    teardown(&f);
}

/* Share 2 has one page in the older chunk, share 1 the other three. */
static void put_three_beside_one(struct fixture *f)
{
    setup(f, 2, false);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(put(f, i, TIER_PAGE, i == 2 ? 2 : 1), -ENODEV);
    grow(f);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(put(f, i, TIER_PAGE, i == 2 ? 2 : 1), 0);
    assert_int_equal(put(f, 5, TIER_SNAPSHOT, 1), -ENODEV); /* there may be another chunk */
    grow(f);
}

TEST(a_kind_takes_no_chunk_that_has_an_entry_of_a_smaller_share)
{
    struct fixture f;
    put_three_beside_one(&f);
    assert_int_equal(put(&f, 6, TIER_SNAPSHOT, 1), 0);
    assert_true(has(&f, 1, TIER_PAGE) && has(&f, 2, TIER_PAGE));
    assert_false(has(&f, 3, TIER_PAGE) || has(&f, 4, TIER_PAGE));
    /* The other chunk stays, too, when the new snapshot evicts the one before. */
    assert_int_equal(put(&f, 7, TIER_SNAPSHOT, 1), 0);
    assert_true(has(&f, 2, TIER_PAGE) && !has(&f, 6, TIER_SNAPSHOT) && has(&f, 7, TIER_SNAPSHOT));
    teardown(&f);
}

TEST(a_kind_takes_the_chunk_of_the_largest_share_although_it_is_newer)
{
    struct fixture f;
    put_three_beside_one(&f);
    assert_int_equal(put(&f, 6, TIER_SNAPSHOT, 3), 0);
    assert_true(has(&f, 1, TIER_PAGE) && has(&f, 2, TIER_PAGE));
    assert_false(has(&f, 3, TIER_PAGE) || has(&f, 4, TIER_PAGE));
    teardown(&f);
}

TEST(a_kind_takes_a_chunk_of_a_smaller_share_when_its_entries_are_stale)
{
    struct fixture f;
    struct prefix_key key = key_of(6);
    struct tier_write w;
    put_three_beside_one(&f);
    pinned_tier_clock(f.t, 1004 + PAGE_STALE_MS * 1000000ull);
    f.io.used(f.io.arg, 1, (const struct prefix_key[]){key_of(3)}, 1, (uint32_t[TIER_KINDS]){0});
    f.io.used(f.io.arg, 1, (const struct prefix_key[]){key_of(4)}, 1, (uint32_t[TIER_KINDS]){0});
    assert_int_equal(
        f.io.write_begin(f.io.arg, &(struct tier_offer){&key, TIER_SNAPSHOT, 1, TIER_EVICTED}, &w), 0);
    f.io.write_end(f.io.arg, &w, true);
    assert_true(has(&f, 3, TIER_PAGE) && has(&f, 4, TIER_PAGE) && !has(&f, 2, TIER_PAGE));
    teardown(&f);
}

TEST(memory_goes_back_by_share)
{
    struct fixture f;
    uint32_t entries = 0;
    put_three_beside_one(&f);
    assert_int_equal(pinned_tier_give(f.t, UNIT_BYTES, UINT64_MAX, &entries), UNIT_BYTES);
    assert_true(entries == 2 && has(&f, 1, TIER_PAGE) && has(&f, 2, TIER_PAGE));
    teardown(&f);
}

TEST(what_goes_is_offered_to_the_tier_below)
{
    struct fixture f;
    uint32_t entries = 0;
    setup(&f, 1, true);
    assert_int_equal(put(&f, 1, TIER_PAGE, 0), 0); /* to the tier below: nothing is committed yet */
    assert_true(f.stored_count == 1 && has(&f, 1, TIER_PAGE));
    grow(&f);
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(put(&f, i, TIER_PAGE, 0), 0);
    assert_true(numbers(&f).evictions == 1 && f.stored_count == 1); /* it has the first one */
    assert_int_equal(put(&f, 4, TIER_PAGE, 0), 0);
    assert_true(f.stored_count == 2 && f.first[1] == 2);
    pinned_tier_end(f.t);
    assert_true(f.stored_count == 4 && f.ended == 2);
    assert_int_equal(pinned_tier_clear(f.t, &entries), UNIT_BYTES);
    assert_true(entries == 2 && f.stored_count == 4);
    teardown(&f);
}

TEST(memory_goes_back_by_age)
{
    struct fixture f;
    uint32_t entries = 0;
    setup(&f, 2, false);
    put_two(&f, 0);
    grow(&f);
    assert_int_equal(put(&f, 3, TIER_PAGE, 0), 0);
    assert_true(numbers(&f).bytes == 2 * UNIT_BYTES && numbers(&f).oldest_ns == 1002);
    assert_int_equal(pinned_tier_give(f.t, UNIT_BYTES, 1002, &entries), 0);
    assert_int_equal(pinned_tier_give(f.t, UINT64_MAX, 1003, &entries), UNIT_BYTES);
    assert_true(entries == 2 && has(&f, 3, TIER_PAGE) && numbers(&f).oldest_ns == 1003);
    teardown(&f);
}

TEST(it_takes_no_more_than_account_and_allowance_have)
{
    struct fixture f;
    setup(&f, 2, false);
    f.allowed = UNIT_BYTES;
    put_two(&f, 0);
    grow(&f);
    assert_int_equal(numbers(&f).bytes, UNIT_BYTES);
    f.allowed = UINT64_MAX;
    account_set_limit(f.account, UNIT_BYTES);
    assert_int_equal(put(&f, 3, TIER_PAGE, 0), 0);
    grow(&f);
    assert_true(numbers(&f).bytes == UNIT_BYTES && numbers(&f).evictions == 1);
    teardown(&f);
}

TEST(it_grows_by_what_found_no_room)
{
    struct fixture f;
    setup(&f, 4, false);
    for (uint32_t i = 1; i <= 5; i++)
        assert_int_equal(put(&f, i, TIER_PAGE, 0), -ENODEV);
    grow(&f);
    assert_int_equal(numbers(&f).bytes, 3 * UNIT_BYTES);
    for (uint32_t i = 1; i <= 5; i++)
        assert_int_equal(put(&f, i, TIER_PAGE, 0), 0);
    assert_int_equal(numbers(&f).evictions, 0);
    teardown(&f);
}

TEST(an_estimate_counts_each_entry_where_it_is)
{
    struct fixture f;
    struct prefix_key keys[3] = {key_of(1), key_of(2), key_of(3)};
    const uint32_t pages[TIER_KINDS] = {0, 3, 3, 3, 3}, two[TIER_KINDS] = {0, 2, 2, 2, 2};
    setup(&f, 1, true);
    assert_int_equal(put(&f, 9, TIER_PAGE, 0), 0);
    grow(&f);
    assert_int_equal(put(&f, 1, TIER_PAGE, 0), 0);
    assert_int_equal(put(&f, 2, TIER_PAGE, 0), 0);
    uint64_t here_ns = f.io.read_ns(f.io.arg, keys, 2, two);
    assert_true(here_ns < 1000000 && f.io.read_ns(f.io.arg, keys, 3, pages) == here_ns + 1000000);
    teardown(&f);
}

TEST_MAIN()
