/* Two tiers as one: which of them reads, and which of them gets a write. */
#include "test.h"

#include "cache/prefix_key.h"
#include "cache/tier_pair.h"

#include <errno.h>
#include <string.h>

#define BYTES 64

struct fake {
    struct tier_io io;
    int accepts; /* result of write_begin */
    bool has;
    uint32_t read, given, whole, abandoned, queried_from;
    char bytes[BYTES];
};

static bool has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    (void)key, (void)kind;
    return ((struct fake *)arg)->has;
}

static uint64_t read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    uint64_t sum = 0;
    (void)keys;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        sum += count - first[kind];
    return ((struct fake *)arg)->has ? sum * 10 : UINT64_MAX;
}

static bool query(void *arg, const struct tier_query *q)
{
    ((struct fake *)arg)->queried_from = q->page_first;
    return true;
}

static int reads(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag, uint32_t index)
{
    struct fake *f = arg;
    (void)key, (void)kind, (void)tag, (void)index;
    f->read += f->has;
    return f->has ? 0 : -ENOENT;
}

static bool take(void *arg, struct tier_arrival *ret)
{
    struct fake *f = arg;
    if (f->read == f->given)
        return false;
    *ret = (struct tier_arrival){.handle = 5, .bytes = f->bytes};
    return true;
}

static void give(void *arg, const struct tier_arrival *a)
{
    struct fake *f = arg;
    assert_true(a->handle == 5 && a->bytes == f->bytes);
    f->given++;
}

static int write_begin(void *arg, const struct tier_offer *o, struct tier_write *ret)
{
    struct fake *f = arg;
    (void)o;
    if (f->accepts == 0)
        *ret = (struct tier_write){.bytes = f->bytes, .handle = 7};
    return f->accepts;
}

static void write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct fake *f = arg;
    assert_true(w->handle == 7 && w->bytes == f->bytes && w->pending == 3);
    f->whole += whole;
    f->abandoned += !whole;
}

static struct fake upper, lower;
static struct tier_pair pair;
static struct tier_io both;
static bool again; /* member of the pair's last write */

static void open_pair(bool has_upper)
{
    struct tier_io io = {.has = has,
                         .read_ns = read_ns,
                         .query = query,
                         .read = reads,
                         .take = take,
                         .give = give,
                         .write_begin = write_begin,
                         .write_end = write_end};
    upper = lower = (struct fake){.io = io};
    upper.io.arg = has_upper ? &upper : NULL;
    lower.io.arg = &lower;
    pair = (struct tier_pair){.upper = &upper.io, .lower = &lower.io, .bytes = {BYTES, BYTES}};
    tier_pair_init(&pair, &both);
}

static int offer(enum tier_why why, bool whole)
{
    static const struct prefix_key key;
    struct tier_write w;
    int r = both.write_begin(both.arg, &(struct tier_offer){&key, TIER_PAGE, 0, why}, &w);
    if (r < 0)
        return r;
    again = w.again;
    memset(w.bytes, 'x', BYTES);
    w.pending = 3;
    both.write_end(both.arg, &w, whole);
    return 0;
}

TEST(each_reason_to_write_has_its_tiers)
{
    static const struct {
        enum tier_why why;
        uint32_t above, below;
    } rows[] = {
        {TIER_IDLE, 1, 0}, {TIER_LEASED, 1, 0}, {TIER_COMMON, 0, 1}, {TIER_EVICTED, 1, 1}, {TIER_END, 1, 1}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        open_pair(true);
        assert_int_equal(offer(rows[i].why, true), 0);
        assert_true(upper.whole == rows[i].above && lower.whole == rows[i].below);
        assert_true(rows[i].below == 0 || lower.bytes[BYTES - 1] == 'x');
        assert_int_equal(offer(rows[i].why, false), 0);
        assert_true(upper.abandoned == rows[i].above && lower.abandoned == rows[i].below);
        open_pair(false);
        assert_int_equal(offer(rows[i].why, true), rows[i].below ? 0 : -ENODEV);
        assert_int_equal(lower.whole, rows[i].below);
    }
}

TEST(one_tier_that_refuses_does_not_keep_the_other_from_it)
{
    open_pair(true);
    upper.accepts = -EEXIST;
    assert_int_equal(offer(TIER_EVICTED, true), 0);
    assert_true(upper.whole == 0 && lower.whole == 1);
    lower.accepts = -EEXIST;
    assert_int_equal(offer(TIER_END, true), -EEXIST);
    upper.accepts = -EAGAIN;
    assert_int_equal(offer(TIER_IDLE, true), -EAGAIN);
    lower.accepts = -EAGAIN;
    assert_int_equal(offer(TIER_COMMON, true), -EAGAIN);
}

TEST(what_an_engine_leaves_is_offered_until_both_tiers_have_answered)
{
    static const struct {
        int upper, lower, result;
        bool again;
        uint32_t above, below;
    } rows[] = {{0, 0, 0, false, 1, 1},
                {0, -EAGAIN, 0, true, 1, 0},
                {-EAGAIN, 0, 0, true, 0, 1},
                {-EAGAIN, -EAGAIN, -EAGAIN, false, 0, 0},
                {-EEXIST, -EAGAIN, -EAGAIN, false, 0, 0},
                {-EAGAIN, -EEXIST, -EAGAIN, false, 0, 0},
                {-EEXIST, 0, 0, false, 0, 1},
                {0, -ENODEV, 0, false, 1, 0},
                {-EEXIST, -ENODEV, -EEXIST, false, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        open_pair(true);
        again = false;
        upper.accepts = rows[i].upper;
        lower.accepts = rows[i].lower;
        assert_int_equal(offer(TIER_LEAVING, true), rows[i].result);
        assert_int_equal(again, rows[i].again);
        assert_true(upper.whole == rows[i].above && lower.whole == rows[i].below);
    }
}

TEST(the_upper_tier_reads_what_it_has)
{
    struct prefix_key keys[3] = {0};
    const uint32_t first[TIER_KINDS] = {0, 3, 3, 3, 3};
    struct tier_arrival a;
    struct tier_query q = {.keys = keys, .count = 3, .page_first = 1};
    open_pair(true);
    assert_true(both.read_ns(both.arg, keys, 3, first) == UINT64_MAX);
    lower.has = true;
    assert_true(both.has(both.arg, keys, TIER_PAGE) && both.read_ns(both.arg, keys, 3, first) == 30);
    assert_int_equal(both.read(both.arg, keys, TIER_PAGE, 1, 0), 0);
    assert_true(both.query(both.arg, &q) && lower.queried_from == 1);
    upper.has = true;
    assert_true(both.query(both.arg, &q) && lower.queried_from == 3);
    assert_int_equal(both.read(both.arg, keys, TIER_PAGE, 1, 0), 0);
    assert_true(upper.read == 1 && lower.read == 1);
    for (int i = 0; i < 2; i++) {
        assert_true(both.take(both.arg, &a));
        both.give(both.arg, &a);
    }
    assert_false(both.take(both.arg, &a));
    assert_true(upper.given == 1 && lower.given == 1);
}

TEST_MAIN()
