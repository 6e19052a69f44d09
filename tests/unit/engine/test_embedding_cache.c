/* Features by content: hits, kept entries, the order of eviction, and that no byte remains. */
#define TEST_SEEDS 20
#include "test_rng.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/none.h"
#include "engine/embedding_cache.h"
#include "memory/units.h"

#include <errno.h>

#define TOKEN_BYTES 256 /* 16 tokens a system page */

struct fixture {
    struct account *account;
    struct arena *arena;
    struct embedding_cache *g;
};

static void open_embedding_cache(struct fixture *f, uint64_t limit, uint64_t bytes_max, uint64_t keep_bytes)
{
    *f = (struct fixture){.account = test_account(limit)};
    assert_int_equal(
        arena_create(&(struct arena_opts){.bytes_max = embedding_cache_arena_bytes()}, &f->arena), 0);
    struct embedding_cache_opts o = {f->account, TOKEN_BYTES, bytes_max, keep_bytes};
    assert_int_equal(embedding_cache_create(f->arena, &o, &f->g), 0);
}

static void close_embedding_cache(struct fixture *f)
{
    embedding_cache_check(f->g);
    embedding_cache_done(f->g);
    assert_int_equal(account_numbers(f->account).reserved, 0);
    arena_free(f->arena);
}

/* One of a page's bytes, unless `rows` is larger. */
static struct embedding_cache_key key(uint8_t look, uint32_t rows)
{
    return (struct embedding_cache_key){.sha256 = {[31] = look}, .rows = rows, .columns = 16, .frames = 1};
}

/* Returns the scope as a job makes it. */
static struct prefix_key scope_of(uint64_t tenant, struct slice salt)
{
    const struct slice parts[] = {{(const char *)&tenant, sizeof(tenant)}, salt};
    return prefix_key_root(parts, COUNT_OF(parts));
}

TEST(a_scope_is_a_tenant_and_a_salt)
{
    struct prefix_key a = scope_of(1, SLICE("x"));
    struct prefix_key b = scope_of(1, SLICE("x"));
    assert_memory_equal(&a, &b, sizeof(a));
    b = scope_of(2, SLICE("x"));
    assert_memory_not_equal(&a, &b, sizeof(a));
    b = scope_of(1, (struct slice){0});
    assert_memory_not_equal(&a, &b, sizeof(a));
    struct embedding_cache_key k = key(1, 1), other = key(1, 1);
    other.scope = a;
    assert_false(embedding_cache_key_eq(&k, &other));
}

static struct embedding_cache_numbers numbers(const struct fixture *f)
{
    struct embedding_cache_numbers n;
    embedding_cache_check(f->g);
    embedding_cache_numbers(f->g, &n);
    return n;
}

/* Filled with its look, and referenced. */
static uint32_t add(struct fixture *f, uint8_t look, uint32_t rows)
{
    struct embedding_cache_key k = key(look, rows);
    uint32_t index;
    assert_int_equal(embedding_cache_begin(f->g, &k, &index), 0);
    assert_int_equal(embedding_cache_find(f->g, &k), NONE);
    while (embedding_cache_commit(f->g, index) > 0)
        embedding_cache_check(f->g);
    memset(dev_host(embedding_cache_features(f->g, index)), look, (size_t)rows * 16 * TOKEN_BYTES);
    embedding_cache_finish(f->g, index);
    assert_int_equal(embedding_cache_find(f->g, &k), index);
    return index;
}

static bool has(const struct fixture *f, uint8_t look)
{
    struct embedding_cache_key k = key(look, 1);
    return embedding_cache_find(f->g, &k) != NONE;
}

TEST(an_entry_is_found_by_all_of_its_key)
{
    struct fixture f;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 1 << 20, 1 << 20);
    uint32_t index = add(&f, 7, 2);
    embedding_cache_unref(f.g, index);
    struct embedding_cache_key k = key(7, 2);
    assert_int_equal(embedding_cache_find(f.g, &k), index);
    struct embedding_cache_key others[] = {k, k, k, k, k};
    others[0].sha256[0] = 1;
    others[1].sha256[31] = 6;
    others[2].rows = 1;
    others[3].columns = 15;
    others[4].frames = 2;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_int_equal(embedding_cache_find(f.g, &others[i]), NONE);
    close_embedding_cache(&f);
}

TEST(what_was_used_longest_ago_makes_room_and_what_is_referenced_never_does)
{
    struct fixture f;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 3 * 4096, 3 * 4096);
    uint32_t a = add(&f, 1, 1), b = add(&f, 2, 1), c = add(&f, 3, 1), d;
    struct embedding_cache_key k = key(4, 1);
    assert_int_equal(embedding_cache_begin(f.g, &k, &d), -EAGAIN);
    embedding_cache_unref(f.g, b);
    embedding_cache_unref(f.g, a);
    embedding_cache_ref(f.g, b);
    embedding_cache_unref(f.g, b);
    d = add(&f, 4, 1);
    assert_false(has(&f, 1));
    assert_true(has(&f, 2) && has(&f, 3) && has(&f, 4));
    assert_int_equal(numbers(&f).evicted, 1);
    embedding_cache_unref(f.g, c);
    embedding_cache_unref(f.g, d);
    /* One that needs all of it. */
    embedding_cache_unref(f.g, add(&f, 5, 3));
    assert_int_equal(numbers(&f).entries, 1);
    close_embedding_cache(&f);
}

TEST(what_nobody_uses_stays_within_its_bound_and_goes_at_once_without_one)
{
    struct fixture f;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 4 * 4096, 2 * 4096);
    uint32_t a = add(&f, 1, 1), b = add(&f, 2, 1), c = add(&f, 3, 1);
    embedding_cache_unref(f.g, a);
    embedding_cache_unref(f.g, b);
    embedding_cache_unref(f.g, c);
    assert_int_equal(numbers(&f).unused_bytes, 2 * 4096);
    assert_false(has(&f, 1));
    close_embedding_cache(&f);
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 4 * 4096, 0);
    a = add(&f, 1, 4);
    embedding_cache_ref(f.g, a);
    embedding_cache_unref(f.g, a);
    assert_int_equal(account_numbers(f.account).used, 4 * 4096);
    embedding_cache_unref(f.g, a);
    assert_int_equal(account_numbers(f.account).reserved, 0);
    close_embedding_cache(&f);
}

TEST(bytes_are_reserved_before_they_are_there_and_given_back_when_it_is_abandoned)
{
    struct fixture f;
    uint32_t index;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, (uint64_t)64 << 20, 0);
    struct embedding_cache_key k = key(1, 2560); /* 10 MiB */
    assert_int_equal(embedding_cache_begin(f.g, &k, &index), 0);
    assert_int_equal(account_numbers(f.account).reserved, 10 << 20);
    assert_int_equal(account_numbers(f.account).used, 0);
    assert_int_equal(embedding_cache_commit(f.g, index), 1);
    assert_int_equal(account_numbers(f.account).used, UNIT_SMALL_BYTES);
    for (int i = 0; i < 3; i++)
        assert_int_equal(embedding_cache_commit(f.g, index), 1);
    embedding_cache_check(f.g);
    embedding_cache_abandon(f.g, index);
    assert_int_equal(account_numbers(f.account).reserved, 0);
    assert_int_equal(embedding_cache_find(f.g, &k), NONE);
    close_embedding_cache(&f);
}

TEST(a_refused_account_is_asked_again_when_unused_entries_are_gone)
{
    struct fixture f;
    uint32_t c;
    open_embedding_cache(&f, 2 * 4096, 8 * 4096, 8 * 4096);
    uint32_t a = add(&f, 1, 1), b = add(&f, 2, 1);
    struct embedding_cache_key k = key(3, 1);
    assert_int_equal(embedding_cache_begin(f.g, &k, &c), -ENOMEM);
    embedding_cache_unref(f.g, a);
    c = add(&f, 3, 1);
    assert_false(has(&f, 1));
    embedding_cache_unref(f.g, b);
    embedding_cache_unref(f.g, c);
    close_embedding_cache(&f);
}

TEST(the_table_has_an_end)
{
    struct fixture f;
    uint32_t index[EMBEDDING_CACHE_ENTRIES_MAX], more;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, (uint64_t)1 << 40, (uint64_t)1 << 40);
    for (uint32_t i = 0; i < EMBEDDING_CACHE_ENTRIES_MAX; i++) {
        struct embedding_cache_key k = key(1, 1);
        k.sha256[0] = (uint8_t)i;
        k.sha256[1] = (uint8_t)(i >> 8);
        assert_int_equal(embedding_cache_begin(f.g, &k, &index[i]), 0);
    }
    struct embedding_cache_key k = key(2, 1);
    assert_int_equal(embedding_cache_begin(f.g, &k, &more), -EAGAIN);
    for (uint32_t i = 0; i < EMBEDDING_CACHE_ENTRIES_MAX; i++)
        embedding_cache_abandon(f.g, index[i]);
    close_embedding_cache(&f);
}

/* Any order of all calls: each entry keeps its content while it is referenced. */
PROPERTY(any_traffic_keeps_what_is_referenced, seed)
{
    struct fixture f;
    struct rng rng = {seed, 0};
    uint32_t held[64], count = 0;
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 40 * 4096, rng_below(&rng, 40) * 4096);
    for (int i = 0; i < 4000; i++) {
        uint8_t look = (uint8_t)rng_below(&rng, 60);
        struct embedding_cache_key k = key(look, 1 + look % 3);
        uint32_t index = embedding_cache_find(f.g, &k);
        if (rng_below(&rng, 2) && count > 0) {
            uint32_t at = (uint32_t)rng_below(&rng, count);
            embedding_cache_unref(f.g, held[at]);
            held[at] = held[--count];
        } else if (index != NONE && count < COUNT_OF(held)) {
            embedding_cache_ref(f.g, index);
            held[count++] = index;
            const uint8_t *bytes = (const uint8_t *)dev_host(embedding_cache_features(f.g, index));
            for (size_t b = 0; b < k.rows * (size_t)16 * TOKEN_BYTES; b += 1000)
                assert_int_equal(bytes[b], look);
        } else if (index == NONE && count < COUNT_OF(held)) {
            int r = embedding_cache_begin(f.g, &k, &index);
            if (r == 0) {
                embedding_cache_abandon(f.g, index);
                held[count++] = add(&f, look, 1 + look % 3);
            }
        }
        if (rng_below(&rng, 50) == 0)
            embedding_cache_evict(f.g);
        if (i % 64 == 0)
            embedding_cache_check(f.g);
    }
    while (count > 0)
        embedding_cache_unref(f.g, held[--count]);
    close_embedding_cache(&f);
}

TEST(two_entries_of_one_key_are_found)
{
    struct fixture f;
    uint32_t entries[2];
    struct embedding_cache_key k = key(1, 1);
    open_embedding_cache(&f, ACCOUNT_NO_LIMIT, 1 << 20, 1 << 20);
    assert_int_equal(embedding_cache_begin(f.g, &k, &entries[0]), 0);
    assert_int_equal(embedding_cache_begin(f.g, &k, &entries[1]), 0);
    for (uint32_t i = 0; i < 2; i++) {
        while (embedding_cache_commit(f.g, entries[i]) > 0)
            ;
        embedding_cache_check(f.g);
        if (i == 0)
            embedding_cache_finish(f.g, entries[i]);
    }
    embedding_cache_finish(f.g, entries[1]);
    assert_stops_saying(embedding_cache_check(f.g), "image entries 0 and 1: one key");
    embedding_cache_unref(f.g, entries[0]);
    embedding_cache_unref(f.g, entries[1]);
    embedding_cache_done(f.g);
    arena_free(f.arena);
}

TEST_MAIN()
