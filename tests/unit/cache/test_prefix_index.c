/* Prefixes: hits, the owner of each page, and evictions when the pools need room. */
#define TEST_SEEDS 8 /* two accounts each, and the ledger of a test has 16 */
#include "test_rng.h"
#include "test_blocks.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/prefix_index.h"

#include <errno.h>
#include <string.h>

enum { PAGE_BYTES = 4096, STATE_BYTES = 4096, CHAIN_MAX = 12 };

struct fixture {
    struct arena *arena;
    struct account *kv, *state;
    struct page_pool *pages;
    struct block_pool *states;
    struct prefix_index_opts index_opts;
    struct prefix_index *index;
};

static void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct fixture *)arg)->index, 0, page);
}

static struct fixture *open_index(struct fixture *f, uint32_t pages_max, uint32_t states_max)
{
    *f = (struct fixture){.kv = test_account(ACCOUNT_NO_LIMIT), .state = test_account(ACCOUNT_NO_LIMIT)};
    struct page_pool_opts pages = {
        .pages_max = pages_max, .page_bytes = PAGE_BYTES, .kv = f->kv, .evict = on_evict, .arg = f};
    struct block_pool_opts states = {
        .blocks_max = states_max, .block_bytes = STATE_BYTES, .account = f->state};
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &pages, &f->pages), 0);
    if (states_max)
        assert_int_equal(block_pool_create(f->arena, &states, &f->states), 0);
    f->index_opts = (struct prefix_index_opts){.groups = {{.pages = f->pages, .page_bytes = 4096}},
                                               .group_count = 1,
                                               .states = f->states,
                                               .state_bytes = 4096,
                                               .bytes_max = UINT64_MAX,
                                               .shown = true};
    assert_int_equal(prefix_index_create(f->arena, &f->index_opts, &f->index), 0);
    return f;
}

/* With other options, before anything is in it. */
static void reopen_index(struct fixture *f)
{
    prefix_index_done(f->index);
    assert_int_equal(prefix_index_create(f->arena, &f->index_opts, &f->index), 0);
}

static void close_index(struct fixture *f)
{
    prefix_index_check(f->index);
    prefix_index_done(f->index);
    page_pool_check(f->pages);
    page_pool_done(f->pages);
    if (f->states)
        block_pool_check(f->states);
    block_pool_done(f->states);
    arena_free(f->arena);
    assert_int_equal(account_numbers(f->kv).reserved, 0);
    assert_int_equal(account_numbers(f->state).reserved, 0);
}

/* A text is a letter per page of tokens. */
static uint32_t keys_of(const char *text, struct prefix_key *ret)
{
    struct prefix_key parent = prefix_key_root(&SLICE("model"), 1);
    uint32_t count = 0;
    for (; text[count]; count++) {
        uint32_t tokens[PAGE_TOKENS];
        for (uint32_t i = 0; i < PAGE_TOKENS; i++)
            tokens[i] = (uint32_t)(uint8_t)text[count] * 100 + i;
        parent = ret[count] = prefix_key_next(&parent, tokens, NULL, 0);
    }
    return count;
}

/* A row: its keys, its pages, where its chain in the index ends. */
struct row {
    struct prefix_key keys[CHAIN_MAX];
    uint32_t key_count, page_count, table[CHAIN_MAX], node;
    uint64_t tenant;
    bool live;
};

static struct prefix_hit begin(struct fixture *f, struct row *r, const char *text)
{
    struct prefix_hit hit;
    *r = (struct row){.node = NONE, .live = true};
    r->key_count = keys_of(text, r->keys);
    prefix_index_find(f->index, r->keys, r->key_count, &hit);
    prefix_index_take(f->index, &hit, &(uint32_t *){r->table});
    if (hit.state != NONE)
        prefix_index_unpin(f->index, hit.node);
    r->page_count = hit.pages;
    r->node = hit.node;
    return hit;
}

/* Computes the next page. False: the pool is full of referenced pages. */
static bool compute(struct fixture *f, struct row *r)
{
    uint32_t page;
    if (page_pool_take(f->pages, &page) < 0)
        return false;
    memcpy(test_pages(f->pages) + (size_t)page * PAGE_BYTES, &r->keys[r->page_count],
           sizeof(struct prefix_key));
    r->node = prefix_index_add(f->index, r->tenant, r->node, &r->keys[r->page_count], NULL, &page);
    r->table[r->page_count] = page;
    r->page_count++;
    return true;
}

static bool snapshot(struct fixture *f, struct row *r)
{
    uint32_t state;
    int got = block_pool_take(f->states, &state);
    if (got < 0 && prefix_index_evict_snapshot(f->index))
        got = block_pool_take(f->states, &state);
    if (got < 0)
        return false;
    memcpy(test_blocks(f->states) + (size_t)state * STATE_BYTES, &r->keys[r->page_count - 1],
           sizeof(struct prefix_key));
    if (!prefix_index_snapshot(f->index, r->node, state))
        block_pool_give(f->states, state);
    return true;
}

static void end(struct fixture *f, struct row *r)
{
    for (uint32_t i = r->page_count; i > 0; i--)
        page_pool_unref(f->pages, r->table[i - 1]);
    prefix_index_released(f->index, r->node);
    r->live = false;
    prefix_index_check(f->index);
}

static void pass_as(struct fixture *f, uint64_t tenant, const char *text)
{
    struct row r;
    begin(f, &r, text);
    r.tenant = tenant;
    while (r.page_count < r.key_count)
        assert_true(compute(f, &r));
    if (f->states)
        assert_true(snapshot(f, &r));
    end(f, &r);
}

static void pass(struct fixture *f, const char *text)
{
    pass_as(f, 0, text);
}

static uint32_t found(struct fixture *f, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    struct prefix_hit hit;
    prefix_index_find(f->index, keys, keys_of(text, keys), &hit);
    return hit.pages;
}

static struct prefix_numbers numbers(const struct fixture *f)
{
    struct prefix_numbers n;
    prefix_index_numbers(f->index, &n);
    return n;
}

TEST(a_key_depends_on_all_that_came_before)
{
    struct fixture f;
    struct prefix_key ab[2], bb[2], again[2];
    open_index(&f, 4, 0);
    keys_of("ab", ab);
    keys_of("bb", bb);
    keys_of("ab", again);
    assert_false(prefix_key_eq(&ab[1], &bb[1]));
    assert_memory_equal(ab, again, sizeof(ab));
    struct prefix_key one = prefix_key_root((struct slice[]){SLICE("m"), SLICE("salt")}, 2);
    struct prefix_key two = prefix_key_root((struct slice[]){SLICE("ms"), SLICE("alt")}, 2);
    assert_false(prefix_key_eq(&one, &two));
    close_index(&f);
}

TEST(the_longest_prefix_is_found_again)
{
    struct fixture f;
    open_index(&f, 16, 0);
    pass(&f, "abcd");
    assert_int_equal(found(&f, "abcd"), 4);
    assert_int_equal(found(&f, "abcdef"), 4);
    assert_int_equal(found(&f, "abxd"), 2);
    assert_int_equal(found(&f, "bcd"), 0);
    pass(&f, "abxy");
    assert_int_equal(found(&f, "abxyz"), 4);
    assert_int_equal(numbers(&f).nodes, 6);
    close_index(&f);
}

TEST(the_same_page_computed_twice_is_held_once)
{
    struct fixture f;
    struct row one, two;
    open_index(&f, 8, 0);
    begin(&f, &one, "ab");
    begin(&f, &two, "ab");
    for (int i = 0; i < 2; i++)
        assert_true(compute(&f, &one) && compute(&f, &two));
    assert_memory_equal(one.table, two.table, 2 * sizeof(one.table[0]));
    assert_int_equal(page_pool_refs(f.pages, one.table[1]), 2);
    assert_int_equal(page_pool_available(f.pages), 6);
    end(&f, &one);
    end(&f, &two);
    close_index(&f);
}

TEST(pages_are_evicted_from_the_tail_of_what_was_used_longest_ago)
{
    struct fixture f;
    struct row r;
    open_index(&f, 6, 0);
    pass(&f, "abc");
    pass(&f, "xyz");
    begin(&f, &r, "1");
    assert_true(compute(&f, &r));
    assert_int_equal(found(&f, "abc"), 2);
    assert_int_equal(found(&f, "xyz"), 3);
    end(&f, &r);
    close_index(&f);
}

TEST(with_recurrence_only_snapshots_are_hits)
{
    struct fixture f;
    struct row r;
    open_index(&f, 16, 4);
    begin(&f, &r, "abcd");
    assert_true(compute(&f, &r) && compute(&f, &r) && snapshot(&f, &r));
    assert_true(compute(&f, &r) && compute(&f, &r));
    assert_int_equal(found(&f, "abcd"), 2);
    end(&f, &r);
    /* Nodes after the last snapshot are useless: they went with the sequence. */
    assert_int_equal(numbers(&f).nodes, 2);
    pass(&f, "abcd");
    assert_int_equal(found(&f, "abcd"), 4);
    assert_int_equal(numbers(&f).snapshots, 2);
    close_index(&f);
}

TEST(the_snapshot_that_saves_least_goes_first)
{
    struct fixture f;
    open_index(&f, 24, 3);
    pass(&f, "abcdef");
    pass(&f, "x");
    pass(&f, "mno");
    assert_int_equal(found(&f, "x"), 1);
    assert_true(prefix_index_evict_snapshot(f.index));
    assert_int_equal(found(&f, "x"), 0);
    assert_int_equal(found(&f, "abcdef"), 6);
    assert_true(prefix_index_evict_snapshot(f.index));
    assert_int_equal(found(&f, "mno"), 0);
    /* Entries that are never used again age: in time small new ones outlive them. */
    for (char c = '0'; c <= '9'; c++)
        pass(&f, (char[]){c, c, 0});
    assert_int_equal(found(&f, "abcdef"), 0);
    close_index(&f);
}

TEST(a_tenants_snapshots_evict_none_of_a_smaller_tenant)
{
    struct fixture f;
    open_index(&f, 24, 4);
    pass_as(&f, 1, "x");
    for (char c = '0'; c <= '9'; c++)
        pass_as(&f, 2, (char[]){c, c, c, 0});
    assert_int_equal(found(&f, "x"), 1);
    assert_int_equal(numbers(&f).snapshots, 4);
    close_index(&f);
}

TEST(stale_snapshots_go_first)
{
    struct fixture f;
    open_index(&f, 24, 4);
    pass_as(&f, 1, "xyz");
    page_pool_clock(f.pages, PAGE_STALE_MS * 1000000ull);
    for (char c = '0'; c <= '3'; c++)
        pass_as(&f, 2, (char[]){c, c, 0});
    assert_int_equal(found(&f, "xyz"), 0);
    for (char c = '0'; c <= '3'; c++)
        assert_int_equal(found(&f, (char[]){c, c, 0}), 2);
    close_index(&f);
}

TEST(a_tenants_pages_evict_none_of_a_smaller_tenant)
{
    struct fixture f;
    open_index(&f, 12, 0);
    f.index_opts.bytes_max = 8 * PAGE_BYTES;
    reopen_index(&f);
    pass_as(&f, 1, "abc");
    for (char c = '0'; c <= '9'; c++)
        pass_as(&f, 2, (char[]){c, c, c, c, c, 0});
    assert_int_equal(found(&f, "abc"), 3);
    assert_int_equal(numbers(&f).bytes, 8 * PAGE_BYTES);
    /* With as many pages as the others have, the tail of the longest unused prefix goes. */
    pass_as(&f, 1, "defgh");
    assert_true(found(&f, "99999") >= 3);
    close_index(&f);
}

TEST(a_pinned_snapshot_stays)
{
    struct fixture f;
    struct row r = {0};
    struct prefix_hit hit;
    open_index(&f, 8, 1);
    pass(&f, "ab");
    r.key_count = keys_of("ab", r.keys);
    prefix_index_find(f.index, r.keys, 2, &hit);
    assert_int_equal(hit.pages, 2);
    prefix_index_take(f.index, &hit, &(uint32_t *){r.table});
    assert_false(prefix_index_evict_snapshot(f.index));
    prefix_index_check(f.index);
    prefix_index_unpin(f.index, hit.node);
    assert_true(prefix_index_evict_snapshot(f.index));
    r.page_count = 2;
    r.node = hit.node;
    end(&f, &r);
    assert_int_equal(numbers(&f).nodes, 0);
    close_index(&f);
}

TEST(unreferenced_entries_stay_below_their_bound)
{
    struct fixture f;
    open_index(&f, 16, 0);
    f.index_opts.bytes_max = 3 * PAGE_BYTES;
    reopen_index(&f);
    pass(&f, "abcde");
    assert_int_equal(numbers(&f).bytes, 3 * PAGE_BYTES);
    assert_int_equal(found(&f, "abcde"), 3);
    pass(&f, "xy");
    assert_int_equal(found(&f, "xy"), 2);
    assert_int_equal(found(&f, "abcde"), 1);
    close_index(&f);
}

static struct prefix_loss loss_of(struct fixture *f, const char *text, uint32_t from)
{
    struct prefix_key keys[CHAIN_MAX];
    uint32_t count = keys_of(text, keys);
    return prefix_index_loss(f->index, keys + from, count - from);
}

TEST(an_eviction_leaves_a_record)
{
    struct fixture f;
    open_index(&f, 4, 0);
    pass(&f, "abcd");
    assert_int_equal(loss_of(&f, "abcd", 0).cause, PREFIX_LOSS_NONE);
    prefix_index_clock(f.index, 70);
    prefix_index_blame(f.index, PREFIX_LOSS_PAGES, 5);
    pass_as(&f, 5, "xy");
    assert_int_equal(found(&f, "abcd"), 2);
    struct prefix_loss lost = loss_of(&f, "abcd", 2);
    assert_int_equal(lost.cause, PREFIX_LOSS_PAGES);
    assert_int_equal(lost.whom, 5);
    assert_int_equal(lost.at_ns, 70);
    /* Nothing of it was ever there, and its place has no record. */
    assert_int_equal(loss_of(&f, "klm", 0).cause, PREFIX_LOSS_NONE);
    prefix_index_clock(f.index, 80);
    assert_int_equal(prefix_index_clear(f.index), 4);
    assert_int_equal(loss_of(&f, "abcd", 0).cause, PREFIX_LOSS_CLEARED);
    assert_int_equal(loss_of(&f, "abcd", 0).at_ns, 80);
    assert_int_equal(loss_of(&f, "abcd", 2).cause, PREFIX_LOSS_PAGES);
    close_index(&f);
}

TEST(a_snapshot_leaves_a_record_too)
{
    struct fixture f;
    open_index(&f, 8, 2);
    f.index_opts.bytes_max = 3 * PAGE_BYTES + STATE_BYTES;
    reopen_index(&f);
    pass(&f, "abc");
    prefix_index_blame(f.index, PREFIX_LOSS_PAGES, 9);
    pass(&f, "xyz");
    assert_int_equal(found(&f, "abc"), 0);
    assert_int_equal(loss_of(&f, "abc", 0).cause, PREFIX_LOSS_LIMIT);
    assert_int_equal(loss_of(&f, "abc", 0).whom, 9);
    close_index(&f);
}

TEST(clearing_leaves_what_is_in_use)
{
    struct fixture f;
    struct row r;
    open_index(&f, 16, 4);
    pass(&f, "abc");
    pass(&f, "abxy");
    begin(&f, &r, "abc");
    assert_int_equal(prefix_index_clear(f.index), 2);
    assert_int_equal(found(&f, "abc"), 3);
    assert_int_equal(found(&f, "abxy"), 0);
    end(&f, &r);
    assert_int_equal(prefix_index_clear(f.index), 3);
    close_index(&f);
}

/* A hit's pages and snapshot have the content written for exactly these keys, whatever was evicted since. */
static void check_hit(struct fixture *f, const struct row *r, const struct prefix_hit *hit)
{
    for (uint32_t i = 0; i < hit->pages; i++)
        assert_memory_equal(test_pages(f->pages) + (size_t)r->table[i] * PAGE_BYTES, &r->keys[i],
                            sizeof(struct prefix_key));
    assert_int_equal(hit->state == NONE, !f->states || hit->pages == 0);
    if (hit->state != NONE)
        assert_memory_equal(test_blocks(f->states) + (size_t)hit->state * STATE_BYTES,
                            &r->keys[hit->pages - 1], sizeof(struct prefix_key));
}

static void do_something(struct fixture *f, struct rng *rng, struct row *r)
{
    if (!r->live) {
        char text[CHAIN_MAX + 1] = {0};
        uint64_t len = 1 + rng_below(rng, CHAIN_MAX);
        for (uint64_t i = 0; i < len; i++)
            text[i] = (char)('a' + rng_below(rng, 2));
        struct prefix_hit hit = begin(f, r, text);
        check_hit(f, r, &hit);
    } else if (r->page_count == r->key_count || rng_below(rng, 12) == 0 || !compute(f, r)) {
        end(f, r);
    } else if (f->states && rng_below(rng, 3) == 0) {
        snapshot(f, r);
    }
}

PROPERTY(hits_hold_what_was_computed, seed)
{
    struct rng rng = {seed, 0};
    struct fixture f;
    struct row rows[4] = {0};
    open_index(&f, 20 + (uint32_t)rng_below(&rng, 60), seed % 2 ? 2 + (uint32_t)rng_below(&rng, 8) : 0);
    for (int step = 0; step < 4000; step++) {
        do_something(&f, &rng, &rows[rng_below(&rng, COUNT_OF(rows))]);
        if (rng_below(&rng, 200) == 0)
            prefix_index_clear(f.index);
        prefix_index_check(f.index);
        page_pool_check(f.pages);
    }
    for (uint32_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].live)
            end(&f, &rows[i]);
    close_index(&f);
}

TEST_MAIN()
