/* Expressions: derivatives and normal forms against a plain recogniser. */
#define TEST_SEEDS 400
#include "test.h"
#include "test_rx_reference.h"

#include "base/check.h"
#include "base/rng.h"
#include "rx/rx_store.h"
#include "unicode/utf8.h"

#include <errno.h>

static struct arena *arena;

static struct rx_store *store_new(uint32_t nodes)
{
    struct rx_store *s;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &arena), 0);
    assert_int_equal(rx_store_create(arena, nodes, &s), 0);
    return s;
}

static rx_id byte_set(struct rx_store *s, const char *bytes)
{
    struct rx_bytes set = {{0}};
    for (; *bytes; bytes++)
        set.bits[(uint8_t)*bytes / 64] |= 1ull << (uint8_t)*bytes % 64;
    return rx_bytes(s, &set);
}

/* Nested at most `depth` deep. */
static rx_id random_rx(struct rx_store *s, struct rng *r, int depth)
{
    static const char *const sets[] = {"a", "b", "c", "ab", "bc", "abc"};
    if (depth == 0)
        switch (rng_below(r, 8)) {
        case 0:
            return RX_EMPTY;
        case 1:
            return rng_below(r, 4) ? byte_set(s, "a") : (rx_id)RX_ALL;
        default:
            return byte_set(s, sets[rng_below(r, 6)]);
        }
    rx_id a = random_rx(s, r, (int)rng_below(r, (uint64_t)depth));
    switch (rng_below(r, 8)) {
    case 0:
    case 1:
        return rx_cat(s, a, random_rx(s, r, depth - 1));
    case 2:
    case 3:
        return rx_or(s, a, random_rx(s, r, depth - 1));
    case 4:
        return rx_and(s, a, random_rx(s, r, depth - 1));
    case 5:
        return rx_not(s, a);
    default: {
        uint32_t min = (uint32_t)rng_below(r, 4), more = (uint32_t)rng_below(r, 4);
        return rx_repeat(s, a, min, more == 3 ? RX_UNBOUNDED : min + more);
    }
    }
}

static struct slice random_text(struct rng *r, char *room, size_t most)
{
    size_t len = rng_below(r, most + 1);
    for (size_t i = 0; i < len; i++)
        room[i] = "abc"[rng_below(r, 3)];
    return (struct slice){room, len};
}

/* Constructors in pairs: what a constructor makes against the same set operation on the parts' matches. */
PROPERTY(constructors_keep_the_language, seed)
{
    struct rng r = {seed, 0};
    struct rx_store *s = store_new(200000);
    rx_id a = random_rx(s, &r, 3), b = random_rx(s, &r, 3);
    rx_id cat = rx_cat(s, a, b), either = rx_or(s, a, b), both = rx_and(s, a, b), not_a = rx_not(s, a);
    uint32_t min = (uint32_t)rng_below(&r, 3), max = min + (uint32_t)rng_below(&r, 3);
    rx_id repeat = rx_repeat(s, a, min, max), some = rx_repeat(s, a, min, RX_UNBOUNDED);
    rx_id bare = rx_without_empty(s, a);
    for (int i = 0; i < 40; i++) {
        char room[8];
        struct slice t = random_text(&r, room, 6);
        rx_places ends = rx_ends(s, a, t, 1), all = ends, power = 1, sum = 0;
        assert_int_equal(rx_ends(s, cat, t, 1), rx_ends(s, b, t, ends));
        assert_int_equal(rx_matches(s, either, t), rx_matches(s, a, t) || rx_matches(s, b, t));
        assert_int_equal(rx_matches(s, both, t), rx_matches(s, a, t) && rx_matches(s, b, t));
        assert_int_equal(rx_matches(s, not_a, t), !rx_matches(s, a, t));
        assert_int_equal(rx_matches(s, bare, t), t.len > 0 && rx_matches(s, a, t));
        assert_int_equal(rx_nullable(s, a), rx_matches(s, a, (struct slice){0}));
        for (uint32_t k = 0; k <= 20; k++) {
            if (k >= min && k <= max)
                sum |= power;
            all = k == min ? power : k > min ? all | power : 0;
            power = rx_ends(s, a, t, power);
        }
        assert_int_equal(rx_ends(s, repeat, t, 1), sum);
        assert_int_equal(rx_ends(s, some, t, 1), all);
    }
    assert_false(rx_failed(s));
    arena_free(arena);
}

PROPERTY(derivatives_match_what_is_left, seed)
{
    struct rng r = {seed, 1};
    struct rx_store *s = store_new(200000);
    rx_id x = random_rx(s, &r, 5);
    for (int i = 0; i < 40; i++) {
        char room[12];
        struct slice t = random_text(&r, room, 9);
        rx_id left = x;
        for (size_t k = 0; k < t.len; k++)
            left = rx_derive(s, left, (uint8_t)t.ptr[k]);
        assert_false(rx_failed(s));
        assert_int_equal(rx_nullable(s, left), rx_matches(s, x, t));
    }
    arena_free(arena);
}

/* Whether any text of up to `most` more bytes matches; `room` has the text up to here. */
static bool any_match(const struct rx_store *s, rx_id x, char *room, size_t len, size_t most)
{
    if (rx_matches(s, x, (struct slice){room, len}))
        return true;
    for (int i = 0; i < 3 && most > 0; i++) {
        room[len] = "abc"[i];
        if (any_match(s, x, room, len + 1, most - 1))
            return true;
    }
    return false;
}

PROPERTY(alive_is_decided, seed)
{
    struct rng r = {seed, 2};
    struct rx_store *s = store_new(200000);
    rx_id x = rx_and(s, random_rx(s, &r, 3), rx_and(s, random_rx(s, &r, 3), rx_not(s, random_rx(s, &r, 3))));
    int alive = rx_alive(s, x, 100000);
    char room[32];
    assert_in_range(alive, 0, 1);
    if (any_match(s, x, room, 0, 5))
        assert_int_equal(alive, 1);
    else if (alive) {
        /* A longer one: every step keeps to what is alive, and the derivatives end. */
        rx_id left = x;
        size_t len = 0;
        for (; len < 20 && !rx_nullable(s, left); len++) {
            const char *at = "abcd";
            while (*at && rx_alive(s, rx_derive(s, left, (uint8_t)*at), 100000) != 1)
                at++;
            assert_true(*at);
            room[len] = *at;
            left = rx_derive(s, left, (uint8_t)*at);
        }
        if (rx_nullable(s, left))
            assert_true(rx_matches(s, x, (struct slice){room, len}));
    }
    arena_free(arena);
}

TEST(counters_stay_numbers)
{
    struct rx_store *s = store_new(20000);
    rx_id x = rx_repeat(s, byte_set(s, "abc"), 3, 1000000);
    for (int i = 0; i < 100; i++)
        x = rx_derive(s, x, 'b');
    assert_int_equal(rx_node(s, x).kind, RX_K_REPEAT);
    assert_int_equal(rx_node(s, x).max, 999900);
    assert_true(rx_count(s) < 200);
    /* A body with two lengths does not multiply. */
    rx_id two = rx_or(s, byte_set(s, "a"), rx_literal(s, SLICE("aa")));
    x = rx_repeat(s, two, 0, 1000);
    for (int i = 0; i < 300; i++)
        x = rx_derive(s, x, 'a');
    assert_false(rx_failed(s));
    arena_free(arena);
}

/* `min` to `max` of a, b and c without the mark, between two other bytes. */
static rx_id marked(struct rx_store *s, uint32_t min, uint32_t max, const char *mark)
{
    rx_id has = rx_cat(s, RX_ALL, rx_cat(s, rx_literal(s, slice_of(mark)), RX_ALL));
    rx_id text = rx_and(s, rx_repeat(s, byte_set(s, "abc"), min, RX_UNBOUNDED), rx_not(s, has));
    if (max != RX_UNBOUNDED)
        text = rx_and(s, text, rx_repeat(s, byte_set(s, "abc"), 0, max));
    return rx_cat(s, rx_literal(s, SLICE("<")), rx_cat(s, text, rx_literal(s, SLICE(">"))));
}

TEST(a_long_repetition_without_a_mark_matches_a_text)
{
    struct rx_store *s = store_new(20000);
    assert_int_equal(rx_alive(s, marked(s, 100000, RX_UNBOUNDED, "ab"), 1000), 1);
    assert_int_equal(rx_alive(s, marked(s, 100000, 100000, "ba"), 1000), 1);
    assert_int_equal(rx_alive(s, rx_derive(s, marked(s, 100000, RX_UNBOUNDED, "cc"), '<'), 1000), 1);
    assert_int_not_equal(rx_alive(s, marked(s, 100000, 99999, "ab"), 1000), 1);
    /* No text of one byte: each of the three is a mark. */
    rx_id x = marked(s, 17, RX_UNBOUNDED, "a");
    x = rx_and(s, x, rx_and(s, marked(s, 17, RX_UNBOUNDED, "b"), marked(s, 17, RX_UNBOUNDED, "c")));
    assert_int_equal(rx_alive(s, x, 1000), 0);
    assert_false(rx_failed(s));
    arena_free(arena);
}

TEST(long_literals_and_unions_need_no_recursion)
{
    struct rx_store *s = store_new(400000);
    static char text[100000];
    memset(text, 'x', sizeof(text));
    rx_id x = rx_literal(s, (struct slice){text, sizeof(text)});
    x = rx_cat(s, x, rx_literal(s, SLICE("end")));
    for (size_t i = 0; i < sizeof(text); i++)
        x = rx_derive(s, x, 'x');
    assert_int_equal(x, rx_literal(s, SLICE("end")));
    rx_id any = RX_NONE;
    for (int i = 0; i < 10000; i++) {
        char name[16];
        int len = snprintf(name, sizeof(name), "\"name%d\"", i);
        any = rx_or(s, any, rx_literal(s, (struct slice){name, (size_t)len}));
    }
    assert_false(rx_failed(s));
    for (const char *at = "\"name1234\""; *at; at++)
        any = rx_derive(s, any, (uint8_t)*at);
    assert_int_equal(any, RX_EMPTY);
    arena_free(arena);
}

/* Each level has the level below it twice: 2^60 paths through some hundred nodes. */
enum { SHARED_LEVELS = 60 };

/* The limit of a mask counts steps: a sort of n elements is not n of them. */
TEST(a_sort_counts_its_steps)
{
    struct rx_store *s = store_new(1 << 16);
    struct rng r = {1, 0};
    rx_id ids[2048];
    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = (rx_id)rng_below(&r, UINT32_MAX);
    uint64_t work = 0;
    uint32_t count = rx_sort(ids, COUNT_OF(ids), &work);
    assert_true(work >= 11 * COUNT_OF(ids) / 32);
    for (uint32_t i = 1; i < count; i++)
        assert_true(ids[i - 1] < ids[i]);
    /* A union of more nodes than a short sort takes. */
    rx_id nodes[64];
    for (uint32_t i = 0; i < COUNT_OF(nodes); i++)
        nodes[i] = rx_repeat(s, byte_set(s, "a"), i + 2, i + 2);
    work = s->work;
    rx_any(s, nodes, COUNT_OF(nodes));
    assert_true(s->work - work >= COUNT_OF(nodes) + 6 * COUNT_OF(nodes) / 32);
    arena_free(arena);
}

TEST(shared_parts_are_visited_once)
{
    struct rx_store *s = store_new(10000);
    struct rx_bytes first = {{0}};
    rx_id x = byte_set(s, "a");
    for (int i = 0; i < SHARED_LEVELS; i++)
        x = rx_cat(s, rx_repeat(s, x, 0, 1), x);
    rx_first(s, x, &first);
    for (uint32_t byte = 0; byte < 256; byte++)
        assert_int_equal(rx_has(&first, (uint8_t)byte), byte == 'a');
    assert_false(rx_failed(s));
    arena_free(arena);
}

TEST(the_empty_text_leaves_shared_parts_once)
{
    struct rx_store *s = store_new(10000);
    rx_id x = rx_repeat(s, byte_set(s, "a"), 0, 1);
    for (int i = 0; i < SHARED_LEVELS; i++)
        x = rx_repeat(s, rx_cat(s, x, rx_repeat(s, rx_or(s, x, byte_set(s, "b")), 0, 1)), 0, 1);
    uint64_t before = s->work;
    rx_id made = rx_without_empty(s, x);
    assert_true(rx_failed(s) || !rx_nullable(s, made));
    assert_true(s->work - before < 150000);
    arena_free(arena);
}

TEST(a_full_store_fails_and_stays_so)
{
    struct rx_store *s = store_new(20);
    for (int i = 0; i < 30; i++)
        rx_repeat(s, byte_set(s, "ab"), 2, 3 + (uint32_t)i);
    assert_true(rx_failed(s));
    assert_int_equal(rx_or(s, RX_EMPTY, RX_ALL), RX_NONE);
    arena_free(arena);
}

TEST(nesting_is_bounded)
{
    struct rx_store *s = store_new(100000);
    rx_id x = byte_set(s, "a");
    for (uint32_t i = 0; i < 5000; i++)
        x = rx_repeat(s, rx_cat(s, x, byte_set(s, "b")), 2, 3);
    assert_true(rx_failed(s));
    arena_free(arena);
}

PROPERTY(code_points_are_their_utf8, seed)
{
    struct rng r = {seed, 3};
    struct rx_store *s = store_new(200000);
    static const uint32_t edges[] = {0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
    struct rx_range ranges[6];
    uint32_t count = 0, at = 0;
    while (count < 6 && at < 0x10FFFF) {
        uint32_t first = at + (uint32_t)rng_below(&r, (uint64_t)1 << (4 + rng_below(&r, 17)));
        uint32_t last = first + (uint32_t)rng_below(&r, (uint64_t)1 << rng_below(&r, 16));
        uint32_t edge = edges[rng_below(&r, 9)];
        if (rng_below(&r, 4) == 0)
            last = MAX_OF(first, edge);
        last = MIN_OF(last, 0x10FFFFu);
        bool surrogates = first <= 0xDFFF && last >= 0xD800;
        if (first <= 0x10FFFF && !surrogates)
            ranges[count++] = (struct rx_range){first, last};
        at = last + 2;
    }
    rx_id x = rx_codepoints(s, ranges, count);
    for (int i = 0; i < 300; i++) {
        uint32_t code = (uint32_t)rng_below(&r, 0x110000);
        if (i % 2 && count)
            code = ranges[i % count].first + (uint32_t)(i / 8) - 2;
        if (i % 16 == 0)
            code = edges[i / 16 % 9];
        if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
            continue;
        bool in = false;
        for (uint32_t k = 0; k < count; k++)
            in |= code >= ranges[k].first && code <= ranges[k].last;
        char bytes[4];
        unsigned len = utf8_encode(code, bytes);
        assert_int_equal(rx_matches(s, x, (struct slice){bytes, len}), in);
    }
    char overlong[] = "\xC0\x80", surrogate[] = "\xED\xA0\x80";
    assert_false(rx_matches(s, x, (struct slice){overlong, 2}));
    assert_false(rx_matches(s, x, (struct slice){surrogate, 3}));
    assert_false(rx_failed(s));
    arena_free(arena);
}

/* A store over a base forgets all but some roots, and these keep their language. */
PROPERTY(compacting_keeps_the_roots, seed)
{
    struct rng r = {seed, 4};
    struct rx_store *base = store_new(200000), *s;
    rx_id roots[3] = {random_rx(base, &r, 4), random_rx(base, &r, 4), random_rx(base, &r, 4)}, before[3];
    assert_int_equal(rx_store_over(arena, base, 5000, &s), 0);
    memcpy(before, roots, sizeof(roots));
    for (int i = 0; i < 200 && !rx_failed(s); i++)
        rx_derive(s, random_rx(s, &r, 3), 'a');
    char room[3][8];
    struct slice done[3];
    s->failed = false;
    for (int i = 0; i < 3; i++) {
        done[i] = random_text(&r, room[i], 4);
        for (size_t k = 0; k < done[i].len; k++)
            roots[i] = rx_derive(s, roots[i], (uint8_t)done[i].ptr[k]);
    }
    if (!rx_failed(s)) {
        rx_compact(s, roots, 3);
        for (int i = 0; i < 60; i++) {
            char whole[20];
            struct slice more = random_text(&r, whole + 8, 5), all = {whole, done[i % 3].len + more.len};
            memcpy(whole, done[i % 3].ptr, done[i % 3].len);
            memmove(whole + done[i % 3].len, more.ptr, more.len);
            rx_id left = roots[i % 3];
            for (size_t k = done[i % 3].len; k < all.len; k++)
                left = rx_derive(s, left, (uint8_t)all.ptr[k]);
            assert_int_equal(rx_nullable(s, left), rx_matches(base, before[i % 3], all));
        }
    }
    arena_free(arena);
}

TEST_MAIN()
