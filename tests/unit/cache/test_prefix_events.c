/* Events of an index: a mirror that knows nothing else has the pages that a hit can use. */
#define TEST_SEEDS 12 /* two accounts each */
#include "test_rng.h"
#include "test_chains.h"

#include "base/check.h"
#include "cache/prefix_events.h"

#define MIRROR_MAX 4096

struct mirror {
    uint64_t hashes[MIRROR_MAX], parents[MIRROR_MAX];
    uint32_t first_tokens[MIRROR_MAX];
    uint32_t count, room; /* room: events that it takes before it refuses */
    uint32_t cleared;
    bool wants_all;
};

static uint32_t mirror_find(const struct mirror *m, uint64_t hash)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->hashes[i] == hash)
            return i;
    return NONE;
}

static void mirror_add(struct mirror *m, const struct prefix_event *e)
{
    assert_true(e->hash != 0);
    assert_true(e->parent == 0 || mirror_find(m, e->parent) != NONE);
    uint32_t at = mirror_find(m, e->hash);
    if (at != NONE) {
        assert_true(m->parents[at] == e->parent && m->first_tokens[at] == e->tokens[0]);
        return;
    }
    assert_true(m->count < MIRROR_MAX);
    m->hashes[m->count] = e->hash;
    m->parents[m->count] = e->parent;
    m->first_tokens[m->count++] = e->tokens[0];
}

static void mirror_remove(struct mirror *m, uint64_t hash)
{
    uint32_t at = mirror_find(m, hash);
    assert_true(at != NONE);
    for (uint32_t i = 0; i < m->count; i++)
        assert_true(m->parents[i] != hash);
    m->count--;
    m->hashes[at] = m->hashes[m->count];
    m->parents[at] = m->parents[m->count];
    m->first_tokens[at] = m->first_tokens[m->count];
}

static bool put(void *arg, const struct prefix_event *e)
{
    struct mirror *m = arg;
    if (m->room == 0)
        return false;
    m->room--;
    if (e->kind == PREFIX_STORED)
        mirror_add(m, e);
    else if (e->kind == PREFIX_REMOVED)
        mirror_remove(m, e->hash);
    else
        m->count = 0;
    m->cleared += e->kind == PREFIX_CLEARED;
    return true;
}

static bool wants_all(void *arg)
{
    struct mirror *m = arg;
    bool wants = m->wants_all;
    m->wants_all = false;
    return wants;
}

static void open_mirrored(struct fixture *f, struct mirror *m, uint32_t pages, uint32_t states)
{
    open_chains(f, pages, states);
    *m = (struct mirror){.room = UINT32_MAX};
    assert_int_equal(prefix_events_open(f->arena, f->index, &(struct prefix_events_opts){put, wants_all, m}),
                     0);
}

/* Pages of the text that the mirror has. */
static uint32_t mirrored(const struct mirror *m, uint64_t tenant, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    uint32_t count = keys_of(tenant, text, keys), found = 0;
    uint64_t parent = 0;
    for (; found < count; found++) {
        uint32_t at = mirror_find(m, prefix_event_hash(&keys[found]));
        if (at == NONE || m->parents[at] != parent)
            break;
        parent = m->hashes[at];
    }
    return found;
}

static void tell_all(struct fixture *f, struct mirror *m)
{
    m->room = UINT32_MAX;
    while (prefix_events_tend(f->index))
        ;
    prefix_index_check(f->index);
}

static const char *const texts[] = {"a",        "ab", "abc",  "abd",  "abcdefgh",
                                    "abcdxyzw", "b",  "bcde", "bcdf", "zz"};

/* A hit ends at a snapshot: between two of them the mirror has more. */
static void compare(struct fixture *f, const struct mirror *m, uint64_t tenant, const char *text)
{
    uint32_t has = mirrored(m, tenant, text), finds = found(f, tenant, text);
    assert_true(f->states ? has >= finds : has == finds);
}

static void mirror_equals(struct fixture *f, const struct mirror *m)
{
    for (uint32_t tenant = 0; tenant < 2; tenant++)
        for (uint32_t i = 0; i < COUNT_OF(texts); i++)
            compare(f, m, tenant, texts[i]);
}

TEST(a_chain_is_told_as_far_as_a_hit_can_use_it)
{
    struct fixture f;
    struct mirror m;
    struct seq s;
    open_mirrored(&f, &m, 40, 3);
    assert_true(begin(&f, &s, 0, "abcd"));
    assert_int_equal(mirrored(&m, 0, "abcd"), 4);
    end(&f, &s);
    pass(&f, 0, "ab");
    assert_int_equal(m.count, 4);
    assert_true(prefix_index_evict_snapshot(f.index));
    assert_true(prefix_index_evict_snapshot(f.index));
    assert_int_equal(m.count, 0);
    close_chains(&f);
}

TEST(a_chain_that_is_in_use_is_taken_back_with_its_snapshot)
{
    struct fixture f;
    struct mirror m;
    struct seq s;
    open_mirrored(&f, &m, 40, 3);
    pass(&f, 0, "ab");
    assert_true(begin(&f, &s, 0, "abcd"));
    assert_int_equal(m.count, 4);
    while (prefix_index_evict_snapshot(f.index))
        ;
    assert_int_equal(m.count, 0);
    end(&f, &s);
    close_chains(&f);
}

TEST(nobody_hears_of_pages_without_tokens_or_behind_them)
{
    struct fixture f;
    struct mirror m;
    struct prefix_key keys[3];
    uint32_t page, node = NONE, tokens[PAGE_TOKENS], pages[3];
    open_mirrored(&f, &m, 40, 0);
    keys_of(0, "abc", keys);
    for (uint32_t i = 0; i < 3; i++) {
        tokens_of("abc"[i], tokens);
        assert_int_equal(page_pool_take(f.pages, &page), 0);
        node = prefix_index_add(f.index, 0, node, &keys[i], i == 1 ? NULL : tokens, &page);
        pages[i] = page;
    }
    assert_int_equal(m.count, 1);
    for (uint32_t i = 3; i > 0; i--)
        page_pool_unref(f.pages, pages[i - 1]);
    prefix_index_released(f.index, node);
    tell_all(&f, &m);
    assert_int_equal(m.count, 1);
    close_chains(&f);
}

TEST(a_removal_without_room_loses_the_thread_and_all_is_told_again)
{
    struct fixture f;
    struct mirror m;
    open_mirrored(&f, &m, 40, 0);
    pass(&f, 0, "abcdefgh");
    pass(&f, 0, "bcde");
    m.room = 0;
    assert_true(prefix_index_evict(f.index));
    assert_true(prefix_events_tend(f.index)); /* there is no room to say so */
    assert_int_equal(m.cleared, 0);
    tell_all(&f, &m);
    assert_int_equal(m.cleared, 1);
    mirror_equals(&f, &m);
    /* A page that finds no room is told later, and nothing is lost. */
    m.room = 2;
    pass(&f, 0, "zz");
    pass(&f, 0, "bcdf");
    tell_all(&f, &m);
    assert_int_equal(m.cleared, 1);
    mirror_equals(&f, &m);
    m.wants_all = true;
    m.count = 0;
    tell_all(&f, &m);
    mirror_equals(&f, &m);
    close_chains(&f);
}

/* Random texts, ends, evictions and clears, with a taker that is short of room at times. */
static void compare_random(uint32_t states, uint64_t seed)
{
    struct fixture f;
    struct mirror m;
    struct seq open[3];
    bool used[3] = {false};
    struct rng rng = {.seed = seed};
    open_mirrored(&f, &m, 24, states);
    for (uint32_t step = 0; step < 3000; step++) {
        uint32_t i = (uint32_t)rng_below(&rng, 3);
        m.room = rng_below(&rng, 4) == 0 ? (uint32_t)rng_below(&rng, 6) : UINT32_MAX;
        if (used[i]) {
            end(&f, &open[i]);
            used[i] = false;
        } else {
            used[i] = begin(&f, &open[i], rng_below(&rng, 2), texts[rng_below(&rng, COUNT_OF(texts))]);
            if (!used[i])
                end(&f, &open[i]);
        }
        if (rng_below(&rng, 10) == 0)
            (void)prefix_index_evict(f.index);
        if (rng_below(&rng, 100) == 0)
            (void)prefix_index_clear(f.index);
        if (rng_below(&rng, 2) == 0)
            (void)prefix_events_tend(f.index);
        prefix_index_check(f.index);
        if (rng_below(&rng, 20) == 0) {
            tell_all(&f, &m);
            mirror_equals(&f, &m);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        if (used[i])
            end(&f, &open[i]);
    tell_all(&f, &m);
    mirror_equals(&f, &m);
    close_chains(&f);
}

TEST(the_mirror_has_what_the_index_finds)
{
    for (uint64_t seed = 1; seed < 5; seed++) {
        compare_random(0, seed);
        compare_random(6, seed);
    }
}

TEST_MAIN()
