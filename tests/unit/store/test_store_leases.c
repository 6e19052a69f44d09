/* Leases of the SSD tier: files that stay, refusals, and the figures after the last end. */
#define TEST_SEEDS 4
#include "test_rng.h"
#include "test_store.h"

#define SHARE 3

enum { CHAIN = 12 };

/* A chain of pages, with a window at its end of two and a snapshot. */
static int hold(struct scene *s, uint32_t lease, uint32_t from, uint32_t count)
{
    struct prefix_key keys[64];
    uint32_t first[TIER_KINDS] = {[TIER_PAGE] = 0, [TIER_SNAPSHOT] = count - 1, [TIER_WINDOW] = count - 2};
    for (enum tier_kind kind = TIER_WINDOW + 1; kind < TIER_KINDS; kind++)
        first[kind] = count;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = key_of(from + i);
    uint64_t bytes = 0;
    int r = s->io.lease_hold(s->io.arg, lease, keys, count, first, &bytes);
    assert_int_equal(bytes > 0, r == 0);
    return r;
}

static int open_lease(struct scene *s, uint32_t share, uint32_t pages, uint32_t *ret,
                      struct lease_refusal *why)
{
    uint32_t counts[TIER_KINDS] = {[TIER_PAGE] = pages, [TIER_SNAPSHOT] = 1, [TIER_WINDOW] = 2};
    return s->io.lease_open(s->io.arg, share, counts, ret, why);
}

static enum tier_lease_state look(struct scene *s, uint32_t lease, struct tier_lease *ret)
{
    return s->io.lease_look(s->io.arg, lease, ret);
}

/* Number of a key of this chain. */
static uint32_t number_of(const struct prefix_key *key, uint32_t from)
{
    struct prefix_key k = key_of(from);
    while (!prefix_key_eq(&k, key))
        k = key_of(++from);
    return from;
}

/* Hands in what the lease lacks, until it has all. */
static void write_all_of(struct scene *s, uint32_t lease, uint32_t from)
{
    struct tier_lease is;
    enum tier_lease_state state;
    while ((state = look(s, lease, &is)) != TIER_LEASE_WHOLE) {
        if (state == TIER_LEASE_LACKS)
            (void)put_of(s, SHARE, number_of(is.key, from), is.kind);
        else
            usleep(200);
    }
    assert_int_equal(is.stored_bytes, is.bytes);
}

static uint32_t lease_of(struct scene *s, uint32_t from, uint32_t count)
{
    uint32_t lease = 0;
    struct lease_refusal why;
    assert_int_equal(open_lease(s, SHARE, count, &lease, &why), 0);
    assert_int_equal(hold(s, lease, from, count), 0);
    return lease;
}

/* Other pages of the tenant, more than the limit: those it would lose first. */
static void flood(struct scene *s, uint32_t from)
{
    for (uint32_t i = 0; i < 400; i++) {
        while (put_of(s, SHARE, from + i, TIER_PAGE) == -EAGAIN)
            usleep(200);
    }
    wait_written(s);
    assert_true(numbers(s).evictions > 0);
}

static bool has_all(struct scene *s, uint32_t from, uint32_t count)
{
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        struct prefix_key key = key_of(from + i);
        all &= s->io.has(s->io.arg, &key, TIER_PAGE);
        all &= i + 1 < count || s->io.has(s->io.arg, &key, TIER_SNAPSHOT);
        all &= i + 2 < count || s->io.has(s->io.arg, &key, TIER_WINDOW);
    }
    return all;
}

TEST(leased_files_outlive_newer_ones_and_a_clear)
{
    struct scene s;
    struct store_cleared c = {0};
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, 6 << 20);
    uint32_t lease = lease_of(&s, 0, CHAIN);
    write_all_of(&s, lease, 0);
    flood(&s, 1000);
    assert_true(has_all(&s, 0, CHAIN));
    assert_int_equal(store_clear(s.store, &c), 0);
    assert_true(c.kept == CHAIN + 3 && c.bytes_kept > CHAIN * PAGE_BYTES && has_all(&s, 0, CHAIN));
    assert_int_equal(numbers(&s).leases, 1);
    /* The chain's end moves; what only the old end had is a file as any other. */
    assert_int_equal(hold(&s, lease, 0, CHAIN + 4), 0);
    write_all_of(&s, lease, 0);
    flood(&s, 2000);
    assert_true(has_all(&s, 0, CHAIN + 4));
    s.io.lease_end(s.io.arg, lease);
    assert_int_equal(numbers(&s).leased_bytes, 0);
    flood(&s, 3000);
    assert_false(has_all(&s, 0, CHAIN));
    scene_close(&s);
    /* A close ends them; after it the files are as any other. */
    scene_open(&s, dir, 6 << 20);
    write_all_of(&s, lease_of(&s, 0, CHAIN), 0);
    scene_close(&s);
    scene_open(&s, dir, 6 << 20);
    assert_true(numbers(&s).leases == 0 && numbers(&s).leased_bytes == 0 && has_all(&s, 0, CHAIN));
    scene_close(&s);
}

TEST(leases_have_half_of_the_limit_and_a_tenant_half_of_that)
{
    struct scene s;
    struct lease_refusal why;
    const char *dir = test_dir();
    sys_reset();
    uint32_t lease = 0, other = 0, third = 0;
    scene_open(&s, dir, 8 << 20);
    assert_int_equal(numbers(&s).lease_bytes_max, 4 << 20);
    assert_int_equal(open_lease(&s, SHARE, 100, &lease, &why), -ENOSPC);
    assert_true(why.by_tenant && why.limit_bytes == 4 << 20 && why.tenant_limit_bytes == 2 << 20);
    assert_true(why.wanted_bytes > why.tenant_limit_bytes && why.held_bytes == 0);
    assert_int_equal(open_lease(&s, SHARE, 60, &lease, &why), 0);
    assert_int_equal(open_lease(&s, SHARE, 60, &other, &why), -ENOSPC);
    assert_int_equal(numbers(&s).leased_bytes, why.held_bytes);
    assert_int_equal(open_lease(&s, SHARE + 1, 30, &other, &why), 0);
    /* A promise counts until its entries are there, and entries of two leases count once. */
    uint64_t promised = numbers(&s).leased_bytes;
    assert_int_equal(hold(&s, lease, 0, 30), 0);
    uint64_t held = numbers(&s).leased_bytes;
    assert_true(held < promised);
    assert_int_equal(open_lease(&s, SHARE, 1, &third, &why), 0);
    assert_int_equal(hold(&s, third, 0, 30), 0);
    assert_int_equal(numbers(&s).leased_bytes, held);
    s.io.lease_end(s.io.arg, lease);
    assert_int_equal(numbers(&s).leased_bytes, held);
    /* It stays where it was if its new end does not fit. */
    assert_int_equal(hold(&s, third, 100, 64), -ENOSPC);
    write_all_of(&s, third, 0);
    assert_true(has_all(&s, 0, 30));
    uint32_t more[TIER_KINDS] = {[TIER_PAGE] = 1000};
    assert_int_equal(s.io.lease_grow(s.io.arg, third, more, &why), -ENOSPC);
    more[TIER_PAGE] = 4;
    assert_int_equal(s.io.lease_grow(s.io.arg, third, more, &why), 0);
    scene_close(&s);
}

TEST(a_lost_file_is_written_again)
{
    struct scene s;
    struct tier_lease is;
    struct tier_arrival a;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, 8 << 20);
    uint32_t lease = lease_of(&s, 0, CHAIN);
    write_all_of(&s, lease, 0);
    uint64_t held = numbers(&s).leased_bytes;
    struct prefix_key key = key_of(5);
    char path[STORE_PATH_BYTES], whole[512];
    store_file_path(&key, TIER_PAGE, path);
    snprintf(whole, sizeof(whole), "%s/%s", dir, path);
    assert_int_equal(unlink(whole), 0);
    assert_int_equal(s.io.read(s.io.arg, &key, TIER_PAGE, 1, 0), 0);
    while (!s.io.take(s.io.arg, &a))
        usleep(200);
    assert_true(a.status < 0);
    s.io.give(s.io.arg, &a);
    assert_int_equal(numbers(&s).leased_bytes, held);
    while (look(&s, lease, &is) != TIER_LEASE_LACKS)
        ;
    assert_true(is.kind == TIER_PAGE && prefix_key_eq(is.key, &key));
    write_all_of(&s, lease, 0);
    assert_true(has_all(&s, 0, CHAIN));
    scene_close(&s);
}

TEST(a_disk_that_is_full_read_only_or_off_is_an_answer)
{
    struct scene s;
    struct lease_refusal why;
    struct tier_lease is;
    const char *dir = test_dir();
    sys_reset();
    uint32_t lease = 0, other = 0;
    scene_open(&s, dir, 8 << 20);
    lease = lease_of(&s, 0, CHAIN);
    for (int error = 0; error < 2; error++) {
        sys_fail(CALL_PWRITE, error ? -EROFS : -ENOSPC, 0, 0);
        while (put_of(&s, SHARE, 5, TIER_PAGE) == -EAGAIN)
            usleep(1000);
        wait_written(&s);
        assert_int_equal(numbers(&s).write_error, error ? -EROFS : -ENOSPC);
        assert_int_equal(open_lease(&s, SHARE, 4, &other, &why), -EIO);
        while (look(&s, lease, &is) != TIER_LEASE_LACKS)
            ;
        assert_int_equal(is.stored_bytes, 0);
        sys_reset();
    }
    write_all_of(&s, lease, 0);
    assert_int_equal(numbers(&s).write_error, 0);
    assert_int_equal(open_lease(&s, SHARE, 4, &other, &why), 0);
    scene_close(&s);
    /* Another process has the directory. */
    struct scene first;
    scene_open(&first, dir, 8 << 20);
    struct store_opts o = opts_of(dir, 8 << 20);
    scene_open_with(&s, &o);
    assert_int_equal(wait_listed(&s).state, STORE_OFF);
    assert_int_equal(open_lease(&s, SHARE, 4, &other, &why), -ENODEV);
    scene_close(&s);
    scene_close(&first);
}

PROPERTY(thousands_of_leases_leave_nothing, seed)
{
    struct rng rng = {seed, 0};
    struct scene s;
    struct lease_refusal why;
    struct tier_lease is;
    const char *dir = test_dir();
    sys_reset();
    uint32_t leases[24], count = 0, opened = 0;
    scene_open(&s, dir, 8 << 20);
    while (opened < 10000 / TEST_SEEDS) {
        uint32_t share = (uint32_t)rng_below(&rng, 3), from = 1000 * share;
        if (count < COUNT_OF(leases) &&
            open_lease(&s, share, (uint32_t)rng_below(&rng, 40), &leases[count], &why) == 0) {
            opened++;
            (void)hold(&s, leases[count], from + 8 * (uint32_t)rng_below(&rng, 4),
                       2 + (uint32_t)rng_below(&rng, 30));
            count++;
        } else if (count > 0) {
            uint32_t i = (uint32_t)rng_below(&rng, count);
            s.io.lease_end(s.io.arg, leases[i]);
            leases[i] = leases[--count];
        }
        if (count > 0 && look(&s, leases[rng_below(&rng, count)], &is) == TIER_LEASE_LACKS && opened % 8 == 0)
            (void)put_of(&s, 0, number_of(is.key, 0), is.kind);
        assert_true(numbers(&s).leased_bytes <= numbers(&s).lease_bytes_max);
    }
    while (count > 0)
        s.io.lease_end(s.io.arg, leases[--count]);
    wait_written(&s);
    assert_true(numbers(&s).leases == 0 && numbers(&s).leased_bytes == 0);
    scene_close(&s);
}

TEST_MAIN()
