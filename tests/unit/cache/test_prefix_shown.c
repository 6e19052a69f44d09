/* Keys that other threads see: those that are there, with and without snapshots, through additions and
 * removals; and a reader beside the writer. */
#include "test_rng.h"
#include "test.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/prefix_shown.h"

#include <pthread.h>
#include <string.h>

enum { KEYS = 96, NODES = 64, CHANGES = 20000 };

/* Homes of few values, so that runs are long and wrap around. */
static struct prefix_key key_of(uint32_t i)
{
    struct prefix_key ret = {{0}};
    uint64_t bits = (uint64_t)(i % 5 * 31) << 32 | (uint64_t)i << 4;
    memcpy(ret.bytes + 8, &bits, sizeof(bits));
    return ret;
}

static struct arena *open_shown(struct prefix_shown *ret)
{
    struct arena *a;
    struct arena_opts opts = {.bytes_max = prefix_shown_bytes(NODES)};
    assert_int_equal(arena_create(&opts, &a), 0);
    assert_int_equal(prefix_shown_create(a, NODES, ret), 0);
    return a;
}

PROPERTY(what_is_there_is_found, seed)
{
    struct prefix_shown s;
    struct arena *a = open_shown(&s);
    struct rng rng = {seed, 0};
    bool there[KEYS] = {false}, snapshots[KEYS] = {false}, snapshot;
    uint32_t count = 0;
    for (uint32_t change = 0; change < CHANGES / 10; change++) {
        uint32_t i = (uint32_t)rng_below(&rng, KEYS);
        struct prefix_key key = key_of(i);
        if (there[i] && rng_below(&rng, 3) == 0) {
            snapshots[i] = !snapshots[i];
            prefix_shown_snapshot(&s, &key, snapshots[i]);
        } else if (there[i]) {
            prefix_shown_remove(&s, &key);
            there[i] = snapshots[i] = false;
            count--;
        } else if (count < NODES) {
            prefix_shown_add(&s, &key);
            there[i] = true;
            count++;
        }
        for (uint32_t k = 0; k < KEYS; k++) {
            struct prefix_key each = key_of(k);
            assert_int_equal(prefix_shown_find(&s, &each, &snapshot), there[k]);
            assert_int_equal(snapshot, snapshots[k]);
        }
    }
    arena_free(a);
}

TEST(without_a_table_nothing_is_there)
{
    struct prefix_shown none = {0};
    struct prefix_key key = key_of(1);
    bool snapshot = true;
    prefix_shown_add(&none, &key);
    prefix_shown_snapshot(&none, &key, true);
    assert_false(prefix_shown_find(&none, &key, &snapshot));
    assert_false(snapshot);
    prefix_shown_remove(&none, &key);
}

struct reader {
    const struct prefix_shown *shown;
    atomic_bool stop;
    uint64_t found;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    bool snapshot;
    while (!atomic_load(&r->stop)) {
        for (uint32_t i = 0; i < KEYS; i++) {
            struct prefix_key key = key_of(i);
            r->found += prefix_shown_find(r->shown, &key, &snapshot);
        }
    }
    return NULL;
}

TEST(a_reader_beside_the_writer_finds_an_end)
{
    struct prefix_shown s;
    struct arena *a = open_shown(&s);
    struct reader r = {.shown = &s};
    pthread_t thread;
    for (uint32_t i = 0; i < NODES / 2; i++) {
        struct prefix_key key = key_of(i);
        prefix_shown_add(&s, &key);
    }
    assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
    for (uint32_t change = 0; change < CHANGES; change++) {
        struct prefix_key key = key_of(NODES / 2 + change % (NODES / 2));
        prefix_shown_add(&s, &key);
        prefix_shown_snapshot(&s, &key, true);
        prefix_shown_remove(&s, &key);
    }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    arena_free(a);
}

TEST_MAIN()
