/* Commit units and the process's footprint: what the ledger says is what the system sees. */
#include "test_rng.h"
#include "test_domain.h"
#include "test_ledger.h"

#include "base/check.h"
#include "memory/footprint.h"
#include "memory/units.h"

#include <errno.h>
#include <string.h>

static uint64_t rss_anon(void)
{
    struct footprint f;
    footprint_read(&f);
    return f.rss_anon_bytes;
}

static struct units *units_of(struct account *a, uint32_t units_max)
{
    struct units *u = NULL;
    assert_int_equal(units_create(a, UNIT_BYTES, units_max, &u), 0);
    return u;
}

/* The difference of two gauges, within a megabyte: the kernel counts pages per CPU before it adds them up,
 * and the sanitizers keep notes of their own. */
static void expect_change(uint64_t before, uint64_t after, int64_t bytes)
{
    int64_t change = (int64_t)(after - before);
    assert_true(change - bytes < 1 << 20 && bytes - change < 1 << 20);
}

TEST(a_committed_unit_is_resident_and_a_decommitted_one_is_not)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct units *u = units_of(a, 32);
    uint64_t before = rss_anon();
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(unit_commit(u, i), 0);
    uint64_t full = rss_anon();
    expect_change(before, full, 32 * (int64_t)UNIT_BYTES);
    assert_int_equal(account_numbers(a).used, 32 * UNIT_BYTES);
    for (uint32_t i = 0; i < 32; i += 2)
        unit_decommit(u, i);
    expect_change(before, rss_anon(), 16 * (int64_t)UNIT_BYTES);
    assert_int_equal(account_numbers(a).used, 16 * UNIT_BYTES);
    units_free(u);
    expect_change(before, rss_anon(), 0);
    assert_int_equal(account_numbers(a).reserved, 0);
}

TEST(a_small_unit_is_as_large_as_it_says)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct units *u = NULL;
    uint64_t before = rss_anon();
    assert_int_equal(units_create(a, UNIT_SMALL_BYTES, 256, &u), 0);
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(unit_commit(u, i), 0);
    memset(dev_host(units_base(u)), 1, 256 * UNIT_SMALL_BYTES);
    expect_change(before, rss_anon(), 256 * (int64_t)UNIT_SMALL_BYTES);
    for (uint32_t i = 1; i < 256; i++)
        unit_decommit(u, i);
    /* Not a huge page of which one part is in use. */
    expect_change(before, rss_anon(), (int64_t)UNIT_SMALL_BYTES);
    assert_int_equal(account_numbers(a).used, UNIT_SMALL_BYTES);
    assert_int_equal(dev_host(units_base(u))[UNIT_SMALL_BYTES - 1], 1);
    units_free(u);
    expect_change(before, rss_anon(), 0);
    assert_int_equal(account_numbers(a).reserved, 0);
}

TEST(a_range_costs_address_space_only)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    uint64_t before = rss_anon();
    struct units *u = units_of(a, 4096);
    expect_change(before, rss_anon(), 0);
    assert_int_equal(account_numbers(a).reserved, 0);
    assert_int_equal((uintptr_t)dev_host(units_base(u)) % UNIT_BYTES, 0);
    assert_int_equal(units_max(u), 4096);
    assert_int_equal(units_committed(u), 0);
    units_free(u);
    units_free(NULL);
}

TEST(a_refused_reservation_changes_nothing)
{
    struct account *a = test_account(2 * UNIT_BYTES + 100);
    struct units *u = units_of(a, 4);
    assert_int_equal(unit_commit(u, 3), 0);
    assert_int_equal(unit_commit(u, 1), 0);
    assert_int_equal(unit_commit(u, 3), 0);
    assert_int_equal(unit_commit(u, 0), -ENOMEM);
    assert_int_equal(units_committed(u), 2);
    assert_false(unit_is_committed(u, 0));
    assert_true(unit_is_committed(u, 1) && unit_is_committed(u, 3));
    unit_decommit(u, 1);
    unit_decommit(u, 1);
    assert_int_equal(unit_commit(u, 0), 0);
    assert_int_equal(account_numbers(a).reserved, 2 * UNIT_BYTES);
    units_free(u);
}

TEST(a_unit_comes_back_zeroed)
{
    struct units *u = units_of(test_account(ACCOUNT_NO_LIMIT), 2);
    assert_int_equal(unit_commit(u, 1), 0);
    char *p = dev_host(units_base(u)) + UNIT_BYTES;
    memset(p, 0xAB, UNIT_BYTES);
    unit_decommit(u, 1);
    assert_int_equal(unit_commit(u, 1), 0);
    for (size_t i = 0; i < UNIT_BYTES; i++)
        assert_true(p[i] == 0);
    units_free(u);
}

TEST(a_pool_without_units_is_refused)
{
    struct units *u = NULL;
    assert_int_equal(units_create(test_account(1), UNIT_BYTES, 0, &u), -EINVAL);
    assert_null(u);
}

TEST(an_index_out_of_range_stops_the_program)
{
    struct units *u = units_of(test_account(ACCOUNT_NO_LIMIT), 2);
    assert_stops(unit_commit(u, 2));
    assert_stops(unit_decommit(u, 2));
    units_free(u);
}

TEST(cycles_do_not_add_up)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    uint64_t before = 0;
    for (int cycle = 0; cycle < 50; cycle++) {
        struct units *u = units_of(a, 8);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(unit_commit(u, i), 0);
        units_free(u);
        if (cycle == 0)
            before = rss_anon();
    }
    expect_change(before, rss_anon(), 0);
}

TEST(the_footprint_is_known)
{
    struct footprint f;
    footprint_read(&f);
    assert_true(f.rss_anon_bytes > 0 && f.rss_file_bytes > 0);
    assert_true(f.ram_bytes > f.ram_available_bytes && f.ram_available_bytes > 0);
    assert_true(f.rss_anon_bytes < f.ram_bytes);
}

#ifdef TEST_JEMALLOC
TEST(the_heap_is_known_to_its_allocator)
{
    struct footprint before, after, freed;
    const size_t bytes = 64 << 20;
    footprint_read(&before);
    char *p = malloc(bytes);
    assert_non_null(p);
    memset(p, 1, bytes);
    __asm__ volatile("" : : "r"(p) : "memory"); /* or the compiler drops the three lines above */
    footprint_read(&after);
    free(p);
    footprint_read(&freed);
    fprintf(stderr, "HB %zu %zu %zu\n", (size_t)before.heap_bytes, (size_t)after.heap_bytes,
            (size_t)freed.heap_bytes);
    assert_true(before.heap_bytes > 0);
    /* The allocator's notes grow by 2 MiB at a time. */
    assert_true(after.heap_bytes >= before.heap_bytes + bytes);
    assert_true(after.heap_bytes <= before.heap_bytes + bytes + 2 * UNIT_BYTES);
    assert_true(freed.heap_bytes <= after.heap_bytes);
}
#endif

TEST(the_ceiling_is_the_least_of_all_limits)
{
    const uint64_t gib = (uint64_t)1 << 30;
    struct footprint f = {.ram_bytes = 64 * gib};
    uint64_t whole = footprint_ceiling(&f, 0);
    assert_int_equal(whole, 64 * gib - 64 * gib / 20);
    assert_int_equal(footprint_ceiling(&f, 12 * gib), 12 * gib);
    assert_int_equal(footprint_ceiling(&f, 100 * gib), whole);
    f.cgroup_limit_bytes = 8 * gib;
    assert_int_equal(footprint_ceiling(&f, 0), 8 * gib);
    assert_int_equal(footprint_ceiling(&f, 12 * gib), 8 * gib);
    assert_int_equal(footprint_ceiling(&f, 4 * gib), 4 * gib);
    f = (struct footprint){.ram_bytes = 8 * gib};
    assert_int_equal(footprint_ceiling(&f, 0), 7 * gib);
    f = (struct footprint){.ram_bytes = gib};
    assert_int_equal(footprint_ceiling(&f, 0), gib / 2);
}

/* ---- another domain ---- */

static struct account *open_root(struct test_domain *t)
{
    struct account *root = NULL;
    assert_int_equal(ledger_open_root(test_ledger(), test_domain_init(t, "test:0"), 16 * UNIT_BYTES, &root),
                     0);
    return root;
}

TEST(units_of_a_domain_are_its_own)
{
    struct test_domain t = {.hidden = true};
    struct account *root = open_root(&t);
    struct units *u = NULL;
    char text[4] = "", zeros[4] = {0};
    assert_int_equal(units_create(root, UNIT_BYTES, 4, &u), 0);
    assert_true(units_domain(u) == &t.domain && units_base(u).at >= TEST_DOMAIN_HIDDEN);
    assert_int_equal(unit_commit(u, 1), 0);
    assert_int_equal(t.open, UNIT_BYTES);
    dev_ptr at = dev_add(units_base(u), UNIT_BYTES);
    assert_int_equal(domain_get(&t.domain, text, at, 4), 0);
    assert_memory_equal(text, zeros, 4);
    domain_put(&t.domain, at, "abc", 4);
    domain_copy(&t.domain, dev_add(at, 8), at, 4);
    assert_int_equal(domain_get(&t.domain, text, dev_add(at, 8), 4), 0);
    assert_string_equal(text, "abc");
    assert_int_equal(account_numbers(root).used, UNIT_BYTES);
    assert_int_equal(account_numbers(ledger_root(test_ledger())).reserved, 0);
    assert_int_equal(units_free(u), 0);
    assert_int_equal(t.open + t.ranges, 0);
    account_close(root);
}

/* After any failure the account has exactly the committed units, and all of them go in the end. */
PROPERTY(a_domain_that_fails_loses_nothing, seed)
{
    struct test_domain t = {.empty = true};
    struct account *root = open_root(&t);
    struct units *u = NULL;
    assert_int_equal(units_create(root, UNIT_BYTES, 24, &u), 0);
    t.rng = (struct rng){seed, 0};
    t.no_memory = 0.3;
    t.stuck = 0.3;
    for (int i = 0; i < 300; i++) {
        uint32_t unit = (uint32_t)rng_below(&t.rng, 24);
        if (rng_below(&t.rng, 2))
            (void)unit_commit(u, unit);
        else
            (void)unit_decommit(u, unit);
        units_check(u);
        assert_int_equal(account_numbers(root).used, units_committed(u) * UNIT_BYTES);
        assert_int_equal(account_numbers(root).reserved, units_committed(u) * UNIT_BYTES);
        assert_true(units_committed(u) <= 16 && t.open == units_committed(u) * UNIT_BYTES);
    }
    while (units_free(u) < 0)
        ;
    assert_int_equal(account_numbers(root).reserved, 0);
    account_close(root);
}

TEST_MAIN()
