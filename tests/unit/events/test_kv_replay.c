/* The last messages by number, against a list of all. */
#include "test.h"
#include "test_rng.h"

#include "events/kv_replay.h"

#include <stdio.h>

enum { BYTES = 64 << 10, MESSAGES = 5000 };

/* Message n, whose bytes and lengths follow from n. */
static struct slice text_of(uint64_t n, char *ret, size_t bytes)
{
    struct rng rng = {.seed = n + 1};
    size_t len = rng_below(&rng, bytes);
    for (size_t i = 0; i < len; i++)
        ret[i] = (char)rng_next(&rng);
    return (struct slice){ret, len};
}

static void assert_slice(struct slice is, struct slice want)
{
    assert_int_equal(is.len, want.len);
    assert_memory_equal(is.ptr, want.ptr, want.len);
}

static void holds(const struct kv_replay *r, uint64_t n)
{
    static char topic[200], payload[20000];
    struct slice t, p;
    bool there = n >= r->first && n < r->next;
    assert_true(kv_replay_get(r, n, &t, &p) == there);
    if (!there)
        return;
    assert_slice(t, text_of(2 * n, topic, sizeof(topic)));
    assert_slice(p, text_of(2 * n + 1, payload, sizeof(payload)));
}

TEST(the_last_messages_are_there_byte_for_byte)
{
    static char topic[200], payload[20000];
    struct kv_replay r;
    uint64_t kept_most = 0, kept_least = MESSAGES;
    assert_int_equal(kv_replay_init(&r, BYTES), 0);
    holds(&r, 0);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        assert_int_equal(r.next, n);
        kv_replay_add(&r, text_of(2 * n, topic, sizeof(topic)), text_of(2 * n + 1, payload, sizeof(payload)));
        holds(&r, n);
        holds(&r, n + 1);
        holds(&r, r.first);
        holds(&r, r.first - 1);
        holds(&r, (r.first + n) / 2);
        kept_most = n > 20 && n - r.first > kept_most ? n - r.first : kept_most;
        kept_least = n > 20 && n - r.first < kept_least ? n - r.first : kept_least;
    }
    assert_true(kept_least >= 1 && kept_most >= 6);
    kv_replay_done(&r);
}

/* Small messages fill the table before the ring. */
TEST(empty_messages_are_bounded_by_the_table)
{
    struct kv_replay r;
    struct slice t, p;
    assert_int_equal(kv_replay_init(&r, BYTES), 0);
    for (uint64_t n = 0; n < 3 * (uint64_t)r.table_max; n++)
        kv_replay_add(&r, SLICE(""), SLICE("x"));
    assert_int_equal(r.next - r.first, r.table_max);
    assert_true(kv_replay_get(&r, r.first, &t, &p) && slice_eq(p, SLICE("x")) && t.len == 0);
    assert_false(kv_replay_get(&r, r.next, &t, &p));
    kv_replay_done(&r);
}

TEST_MAIN()
