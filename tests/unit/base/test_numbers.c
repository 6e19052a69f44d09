/* Random numbers and hash tables. */
#include "test_rng.h"
#include "test.h"

#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <string.h>

TEST(a_draw_depends_on_seed_and_counter_alone)
{
    struct rng r = {42, 0};
    for (uint64_t i = 0; i < 100; i++)
        assert_true(rng_next(&r) == rng_at(42, i));
    assert_true(rng_at(42, 7) != rng_at(43, 7) && rng_at(42, 7) != rng_at(42, 8));
    for (uint64_t i = 0; i < 100; i++)
        assert_true(rng_uniform_at(3, i) == (double)(rng_at(3, i) >> 11) * 0x1p-53);
}

/* A saved seed must give the same text with every later version. */
TEST(draws_never_change)
{
    assert_true(rng_at(0, 0) == 0x0397AB29740681D9ull);
    assert_true(rng_at(1, 2) == 0xC132DD2B56B2763Cull);
    assert_true(rng_at(UINT64_MAX, UINT64_MAX) == 0x445018E305810B78ull);
}

/* Chi-square over 256 buckets, 2^16 draws: mean 255, standard deviation 22.6; seven of them either way. The
 * seeds are fixed, so this passes always or never. */
static void expect_even(const uint32_t *buckets, uint32_t draws)
{
    double expected = draws / 256.0, chi = 0;
    for (int i = 0; i < 256; i++)
        chi += (buckets[i] - expected) * (buckets[i] - expected) / expected;
    assert_true(chi > 255 - 7 * 22.6 && chi < 255 + 7 * 22.6);
}

TEST(every_byte_of_a_draw_is_even_along_counters_and_along_seeds)
{
    for (unsigned shift = 0; shift < 64; shift += 8) {
        uint32_t along_counter[256] = {0}, along_seed[256] = {0};
        for (uint64_t i = 0; i < 65536; i++) {
            along_counter[rng_at(1234, i) >> shift & 255]++;
            along_seed[rng_at(i, 1234) >> shift & 255]++;
        }
        expect_even(along_counter, 65536);
        expect_even(along_seed, 65536);
    }
}

TEST(one_flipped_bit_of_seed_or_counter_flips_half_of_the_draw)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t flipped_seed = 0, flipped_counter = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t s = rng_at(99, i), c = rng_at(i, 99), b = (uint64_t)1 << bit;
            flipped_seed += (uint64_t)__builtin_popcountll(rng_at(99 ^ b, i) ^ s);
            flipped_counter += (uint64_t)__builtin_popcountll(rng_at(i, 99 ^ b) ^ c);
        }
        /* 64000 fair bits: 32000 with a standard deviation of 126.5. */
        assert_true(flipped_seed > 31100 && flipped_seed < 32900);
        assert_true(flipped_counter > 31100 && flipped_counter < 32900);
    }
}

TEST(uniform_lies_in_its_interval_with_the_right_moments)
{
    double sum = 0, squares = 0, product = 0, previous = 0.5;
    const int draws = 100000;
    struct rng r = {7, 0};
    for (int i = 0; i < draws; i++) {
        double u = rng_uniform(&r);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        product += (u - 0.5) * (previous - 0.5);
        previous = u;
    }
    assert_true(fabs(sum / draws - 0.5) < 5 * sqrt(1.0 / 12 / draws));
    assert_true(fabs(squares / draws - 1.0 / 3) < 5 * sqrt(4.0 / 45 / draws));
    assert_true(fabs(product / draws) < 5 * (1.0 / 12) / sqrt(draws));
}

TEST(below_reaches_every_number_and_none_else)
{
    struct rng r = {11, 0};
    for (uint64_t bound = 1; bound <= 20; bound++) {
        uint32_t seen = 0;
        for (int i = 0; i < 1000; i++) {
            uint64_t v = rng_below(&r, bound);
            assert_true(v < bound);
            seen |= 1u << v;
        }
        assert_int_equal(seen, (1u << bound) - 1);
    }
    assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
    assert_stops(rng_below(&r, 0));
}

TEST(secrets_differ)
{
    char a[64] = {0}, b[64] = {0};
    rng_secret(a, sizeof(a));
    rng_secret(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
}

TEST(a_hash_is_of_the_bytes)
{
    char copy[] = "some text";
    assert_true(hash_bytes("some text", 9) == hash_bytes(copy, 9));
    assert_true(hash_bytes("some text", 9) != hash_bytes("some texu", 9));
    assert_true(hash_bytes(NULL, 0) == hash_bytes("", 0));
}

static struct arena *arena_of(size_t bytes_max)
{
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes_max}, &a), 0);
    return a;
}

PROPERTY(a_table_finds_what_was_added_and_nothing_else, seed)
{
    struct rng rng = {seed, 0};
    uint32_t count = (uint32_t)rng_below(&rng, 3000), value = 0;
    struct arena *a = arena_of(4 << 20);
    struct hash_map m;
    assert_int_equal(hash_map_init(&m, a, count), 0);
    for (uint32_t i = 0; i < count; i++) {
        char key[16];
        int len = snprintf(key, sizeof(key), "%u", i * 7);
        struct slice s = {arena_strndup(a, key, (size_t)len), (size_t)len};
        assert_true(hash_map_add(&m, s, i));
        assert_false(hash_map_add(&m, s, i + 1));
    }
    assert_int_equal(m.count, count);
    for (uint32_t i = 0; i < count * 7; i++) {
        char key[16];
        int len = snprintf(key, sizeof(key), "%u", i);
        value = UINT32_MAX;
        assert_true(hash_map_get(&m, (struct slice){key, (size_t)len}, &value) == (i % 7 == 0));
        assert_true(value == (i % 7 == 0 ? i / 7 : UINT32_MAX));
    }
    arena_free(a);
}

TEST(keys_are_bytes_the_empty_key_included)
{
    struct arena *a = arena_of(1 << 20);
    struct hash_map m;
    uint32_t v = 0;
    assert_int_equal(hash_map_init(&m, a, 3), 0);
    assert_true(hash_map_add(&m, (struct slice){NULL, 0}, 1));
    assert_false(hash_map_add(&m, SLICE(""), 2));
    assert_true(hash_map_add(&m, SLICE("a\0b"), 2));
    assert_true(hash_map_add(&m, SLICE("a\0c"), 3));
    assert_true(hash_map_get(&m, SLICE(""), &v) && v == 1);
    assert_true(hash_map_get(&m, SLICE("a\0b"), &v) && v == 2);
    assert_false(hash_map_get(&m, SLICE("a"), &v));
    arena_free(a);
}

TEST(a_table_without_room_is_refused)
{
    struct arena *a = arena_of(64 * 1024);
    struct hash_map m;
    assert_int_equal(hash_map_init(&m, a, 1 << 20), -ENOMEM);
    assert_int_equal(hash_map_init(&m, a, UINT32_MAX), -ENOMEM);
    arena_free(a);
}

TEST(a_table_never_fills_up)
{
    struct arena *a = arena_of(1 << 20);
    struct hash_map m;
    uint32_t v;
    static char keys[64];
    assert_int_equal(hash_map_init(&m, a, 12), 0);
    uint32_t room = (1u << m.slots_log2) - 1;
    assert_true(room >= 12 && room <= sizeof(keys));
    for (uint32_t i = 0; i < room; i++) {
        keys[i] = (char)('A' + i);
        assert_true(hash_map_add(&m, (struct slice){&keys[i], 1}, i));
    }
    assert_false(hash_map_get(&m, SLICE("~~"), &v));
    assert_stops(hash_map_add(&m, SLICE("~~"), 1));
    arena_free(a);
}

TEST_MAIN()
