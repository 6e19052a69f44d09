/* Prefixes of models with windows: which pages a hit needs, and the remains after some are evicted. */
#define TEST_SEEDS 4 /* four accounts each, and the ledger of a test has 16 */
#include "test_rng.h"
#include "test_blocks.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/prefix_index.h"

#include <errno.h>
#include <string.h>

enum { CHAIN_MAX = 12, GROUPS = 3, NEAR = 1, FAR = 2, PAGES = 40 };

/* At a page boundary NEAR's window has the two pages before it, FAR's four. */
static const uint32_t windows[GROUPS] = {0, 2 * PAGE_TOKENS, 4 * PAGE_TOKENS + 1};

struct fixture {
    struct arena *arena;
    struct account *kv[GROUPS], *state;
    struct page_group groups[GROUPS];
    struct block_pool *states;
    struct prefix_index *index;
    struct of_group {
        struct fixture *f;
        uint32_t group;
    } of[GROUPS];
    uint32_t moves, uses;
    uint32_t announced[TIER_KINDS]; /* announced as evicted, to a tier below */
};

static void *page_at(const struct fixture *f, uint32_t group, uint32_t page)
{
    return test_pages(f->groups[group].pages) + (size_t)page * f->groups[group].page_bytes;
}

static void on_evict(void *arg, uint32_t page)
{
    struct of_group *of = arg;
    prefix_index_evict_page(of->f->index, of->group, page);
    memset(page_at(of->f, of->group, page), 0, sizeof(struct prefix_key));
}

static void on_move(void *arg, uint32_t from, uint32_t to)
{
    struct of_group *of = arg;
    memcpy(page_at(of->f, of->group, to), page_at(of->f, of->group, from), sizeof(struct prefix_key));
    memset(page_at(of->f, of->group, from), 0, sizeof(struct prefix_key));
    prefix_index_move(of->f->index, of->group, from, to);
    of->f->moves++;
}

/* The bytes are still there. */
static void on_evicting(void *arg, const struct tier_offer *o, uint32_t block)
{
    struct fixture *f = arg;
    if (o->kind != TIER_SNAPSHOT)
        assert_memory_equal(page_at(f, tier_group_of(o->kind), block), o->key, sizeof(*o->key));
    f->announced[o->kind]++;
}

static void open_group(struct fixture *f, uint32_t group, size_t page_bytes)
{
    f->kv[group] = test_account(ACCOUNT_NO_LIMIT);
    f->of[group] = (struct of_group){f, group};
    struct page_pool_opts pages = {.pages_max = PAGES,
                                   .page_bytes = page_bytes,
                                   .kv = f->kv[group],
                                   .evict = on_evict,
                                   .move = on_move,
                                   .arg = &f->of[group],
                                   .uses = &f->uses};
    f->groups[group] = (struct page_group){.page_bytes = page_bytes, .window = windows[group]};
    assert_int_equal(page_pool_create(f->arena, &pages, &f->groups[group].pages), 0);
}

static void open_index(struct fixture *f, size_t page_bytes, uint64_t bytes_max, uint32_t states_max)
{
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    *f = (struct fixture){.state = test_account(ACCOUNT_NO_LIMIT)};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    for (uint32_t g = 0; g < GROUPS; g++)
        open_group(f, g, page_bytes);
    struct block_pool_opts states = {.blocks_max = states_max, .block_bytes = 4096, .account = f->state};
    if (states_max)
        assert_int_equal(block_pool_create(f->arena, &states, &f->states), 0);
    struct prefix_index_opts index = {.group_count = GROUPS,
                                      .states = f->states,
                                      .state_bytes = 4096,
                                      .bytes_max = bytes_max,
                                      .evicting = on_evicting,
                                      .arg = f};
    memcpy(index.groups, f->groups, sizeof(f->groups));
    assert_int_equal(prefix_index_create(f->arena, &index, &f->index), 0);
}

static void check(const struct fixture *f)
{
    prefix_index_check(f->index);
    for (uint32_t g = 0; g < GROUPS; g++)
        page_pool_check(f->groups[g].pages);
}

static void close_index(struct fixture *f)
{
    check(f);
    prefix_index_done(f->index);
    for (uint32_t g = 0; g < GROUPS; g++) {
        page_pool_check(f->groups[g].pages);
        page_pool_done(f->groups[g].pages);
        assert_int_equal(account_numbers(f->kv[g]).reserved, 0);
    }
    block_pool_done(f->states);
    arena_free(f->arena);
}

static uint32_t keys_of(const char *text, struct prefix_key *ret)
{
    struct prefix_key parent = prefix_key_root(&SLICE("model"), 1);
    uint32_t count = 0;
    for (; text[count]; count++) {
        uint32_t tokens[PAGE_TOKENS] = {(uint32_t)(uint8_t)text[count]};
        parent = ret[count] = prefix_key_next(&parent, tokens, NULL, 0);
    }
    return count;
}

/* A row as the scheduler keeps it: a table of each group, where its windows begin. */
struct row {
    struct prefix_key keys[CHAIN_MAX];
    uint32_t key_count, page_count, node;
    uint32_t tables[GROUPS][CHAIN_MAX], first[GROUPS];
    bool live;
};

static uint32_t begin(struct fixture *f, struct row *r, const char *text)
{
    struct prefix_hit hit;
    *r = (struct row){.live = true};
    r->key_count = keys_of(text, r->keys);
    prefix_index_find(f->index, r->keys, r->key_count, &hit);
    uint32_t *tables[GROUPS] = {r->tables[0], r->tables[1], r->tables[2]};
    prefix_index_take(f->index, &hit, tables);
    if (hit.state != NONE)
        prefix_index_unpin(f->index, hit.node);
    r->page_count = hit.pages;
    r->node = hit.node;
    for (uint32_t g = 0; g < GROUPS; g++)
        r->first[g] = page_group_first(&f->groups[g], hit.pages * PAGE_TOKENS);
    return hit.pages;
}

static void leave_behind(struct fixture *f, struct row *r)
{
    for (uint32_t g = 1; g < GROUPS; g++)
        for (; r->first[g] < page_group_first(&f->groups[g], r->page_count * PAGE_TOKENS); r->first[g]++)
            page_pool_unref(f->groups[g].pages, r->tables[g][r->first[g]]);
    prefix_index_released(f->index, NONE);
}

/* Computes the next page of each group. */
static void compute(struct fixture *f, struct row *r)
{
    uint32_t pages[GROUPS];
    const struct prefix_key *key = &r->keys[r->page_count];
    for (uint32_t g = 0; g < GROUPS; g++) {
        assert_int_equal(page_pool_take(f->groups[g].pages, &pages[g]), 0);
        memcpy(page_at(f, g, pages[g]), key, sizeof(*key));
    }
    r->node = prefix_index_add(f->index, 0, r->node, key, NULL, pages);
    for (uint32_t g = 0; g < GROUPS; g++)
        r->tables[g][r->page_count] = pages[g];
    r->page_count++;
    leave_behind(f, r);
}

static void end(struct fixture *f, struct row *r)
{
    for (uint32_t g = GROUPS; g-- > 0;)
        for (uint32_t i = r->page_count; i > r->first[g]; i--)
            page_pool_unref(f->groups[g].pages, r->tables[g][i - 1]);
    prefix_index_released(f->index, r->node);
    r->live = false;
    check(f);
}

static void pass(struct fixture *f, const char *text)
{
    struct row r;
    begin(f, &r, text);
    while (r.page_count < r.key_count)
        compute(f, &r);
    uint32_t state;
    if (f->states && block_pool_take(f->states, &state) == 0 &&
        !prefix_index_snapshot(f->index, r.node, state))
        block_pool_give(f->states, state);
    end(f, &r);
}

static uint32_t found(struct fixture *f, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    struct prefix_hit hit;
    prefix_index_find(f->index, keys, keys_of(text, keys), &hit);
    return hit.pages;
}

/* The page of the node at the end of `text`. */
static uint32_t page_of(struct fixture *f, uint32_t group, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    uint32_t count = keys_of(text, keys);
    for (uint32_t i = 0; i < PAGES; i++)
        if (page_pool_cached(f->groups[group].pages) > 0 &&
            memcmp(page_at(f, group, i), &keys[count - 1], sizeof(keys[0])) == 0)
            return i;
    return NONE;
}

static struct prefix_numbers numbers(const struct fixture *f)
{
    struct prefix_numbers n;
    prefix_index_numbers(f->index, &n);
    return n;
}

/* Loses a page as the pool does when it needs this very page. */
static void lose(struct fixture *f, uint32_t group, const char *text)
{
    uint32_t page = page_of(f, group, text);
    assert_int_not_equal(page, NONE);
    on_evict(&f->of[group], page);
    page_pool_drop(f->groups[group].pages, page);
    check(f);
}

TEST(groups_must_be_one_full_one_and_then_windows)
{
    struct fixture f;
    open_index(&f, 4096, UINT64_MAX, 0);
    struct prefix_index *other;
    struct prefix_index_opts o = {.bytes_max = 1};
    assert_int_equal(prefix_index_create(f.arena, &o, &other), -EINVAL);
    o.group_count = 2;
    memcpy(o.groups, f.groups, sizeof(f.groups));
    o.groups[0].window = 64;
    assert_int_equal(prefix_index_create(f.arena, &o, &other), -EINVAL);
    o.groups[0].window = o.groups[1].window = 0;
    assert_int_equal(prefix_index_create(f.arena, &o, &other), -EINVAL);
    o.group_count = PAGE_GROUPS_MAX + 1;
    assert_int_equal(prefix_index_create(f.arena, &o, &other), -EINVAL);
    close_index(&f);
}

TEST(windows_begin_where_their_first_token_lies)
{
    struct page_group g = {.window = 64};
    assert_int_equal(page_group_first(&g, 63), 0);
    assert_int_equal(page_group_first(&g, 94), 0);
    assert_int_equal(page_group_first(&g, 95), 1); /* token 95 sees 32 to 95 */
    assert_int_equal(page_group_needs(&g, 10), 3);
    assert_int_equal(page_group_needs(&g, 2), 2);
    g.window = 1;
    assert_int_equal(page_group_first(&g, 64), 2);
    assert_int_equal(page_group_needs(&g, 10), 1);
    g.window = 0;
    assert_int_equal(page_group_first(&g, 1000), 0);
    assert_int_equal(page_group_needs(&g, 10), 10);
}

TEST(a_hit_references_all_of_the_first_group_and_the_windows_of_the_others)
{
    struct fixture f;
    struct row r;
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    assert_int_equal(begin(&f, &r, "abcdefgh"), 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(page_pool_refs(f.groups[0].pages, r.tables[0][i]), 1);
        assert_int_equal(r.tables[NEAR][i] == NONE, i < 6);
        assert_int_equal(r.tables[FAR][i] == NONE, i < 4);
    }
    assert_int_equal(prefix_index_referenced(f.index, r.node, 0), 8);
    assert_int_equal(prefix_index_referenced(f.index, r.node, NEAR), 2);
    assert_int_equal(prefix_index_referenced(f.index, r.node, FAR), 4);
    end(&f, &r);
    close_index(&f);
}

TEST(without_a_window_a_shorter_prefix_is_found)
{
    struct fixture f;
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    lose(&f, NEAR, "abcdef"); /* read after 6 and 7 pages */
    assert_int_equal(found(&f, "abcdefgh"), 8);
    assert_int_equal(found(&f, "abcdefg"), 5);
    lose(&f, FAR, "abcd"); /* read after 4 to 7 pages */
    assert_int_equal(found(&f, "abcdefg"), 3);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    assert_int_equal(numbers(&f).nodes, 8);
    assert_int_equal(numbers(&f).pages_evicted, 2);
    close_index(&f);
}

TEST(nodes_beyond_the_last_usable_end_go_with_their_window)
{
    struct fixture f;
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    pass(&f, "abcdefxyz");
    assert_int_equal(numbers(&f).nodes, 11);
    lose(&f, FAR, "abcdef"); /* read after 6 to 9 pages: of both */
    assert_int_equal(found(&f, "abcdefgh"), 5);
    assert_int_equal(found(&f, "abcdefxyz"), 5);
    assert_int_equal(numbers(&f).nodes, 5);
    close_index(&f);
}

TEST(a_page_of_the_first_group_takes_its_node_along)
{
    struct fixture f;
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    lose(&f, 0, "abcd");
    assert_int_equal(found(&f, "abcdefgh"), 3);
    for (uint32_t g = 0; g < GROUPS; g++)
        assert_int_equal(page_pool_cached(f.groups[g].pages), 3);
    close_index(&f);
}

TEST(a_lost_page_comes_back_when_it_is_computed_again)
{
    struct fixture f;
    struct row r;
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    lose(&f, NEAR, "abcdef");
    /* A sequence starts before it: it uses the present page of one group, and its own of the other. */
    assert_int_equal(begin(&f, &r, "abcdefg"), 5);
    uint32_t kept = page_of(&f, 0, "abcdef");
    compute(&f, &r);
    assert_int_equal(r.tables[0][5], kept);
    assert_int_equal(page_pool_refs(f.groups[0].pages, kept), 1);
    end(&f, &r);
    assert_int_equal(found(&f, "abcdef"), 6);
    assert_int_equal(found(&f, "abcdefg"), 7);
    close_index(&f);
}

static uint32_t node_of(struct fixture *f, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    uint32_t count = keys_of(text, keys);
    return prefix_index_node(f->index, &keys[count - 1]);
}

/* Stores all that the tier lacks; counts it by kind. */
static void store_all(struct fixture *f, uint32_t *counts)
{
    struct prefix_unstored u;
    uint32_t at = 0;
    memset(counts, 0, TIER_KINDS * sizeof(*counts));
    while (prefix_index_unstored(f->index, &at, PAGES, &u))
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
            if (u.blocks[kind] == NONE)
                continue;
            if (kind != TIER_SNAPSHOT)
                assert_memory_equal(page_at(f, tier_group_of(kind), u.blocks[kind]), &u.key, sizeof(u.key));
            prefix_index_stored(f->index, u.node, kind);
            counts[kind]++;
        }
    check(f);
    assert_int_equal(numbers(f).unstored, 0);
}

static void expect(const uint32_t *counts, uint32_t pages, uint32_t near, uint32_t far)
{
    assert_int_equal(counts[TIER_PAGE], pages);
    assert_int_equal(counts[tier_kind_of(NEAR)], near);
    assert_int_equal(counts[tier_kind_of(FAR)], far);
}

TEST(the_tier_wants_the_windows_before_likely_ends)
{
    struct fixture f;
    struct row r;
    uint32_t counts[TIER_KINDS];
    open_index(&f, 4096, UINT64_MAX, 0);
    pass(&f, "abcdefgh");
    assert_int_equal(numbers(&f).unstored, 8);
    for (int twice = 0; twice < 2; twice++) {
        prefix_index_ends_here(f.index, node_of(&f, "abcdefgh"));
        assert_int_equal(numbers(&f).unstored, 8 + 2 + 4);
        check(&f);
    }
    store_all(&f, counts);
    expect(counts, 8, 2, 4);
    /* Another end wants what it does not share with the first. */
    prefix_index_ends_here(f.index, node_of(&f, "abcdefg"));
    store_all(&f, counts);
    expect(counts, 0, 1, 1);
    /* Pages that windows left on the way are of no use below. */
    lose(&f, NEAR, "a");
    expect(f.announced, 0, 0, 0);
    /* A page that comes back is offered again. */
    lose(&f, FAR, "abcd");
    expect(f.announced, 0, 0, 1);
    assert_int_equal(begin(&f, &r, "abcd"), 3);
    compute(&f, &r);
    end(&f, &r);
    store_all(&f, counts);
    expect(counts, 0, 0, 1);
    /* Without its window the last node ends no prefix: it goes whole. */
    lose(&f, NEAR, "abcdefgh");
    expect(f.announced, 1, 1, 2);
    assert_int_equal(found(&f, "abcdefgh"), 7);
    assert_int_equal(numbers(&f).unstored, 0);
    prefix_index_offer_again(f.index);
    store_all(&f, counts);
    expect(counts, 7, 2, 4);
    close_index(&f);
}

/* In every eight windows, of the widest: its pages are 5 at most. */
TEST(the_tier_wants_windows_at_regular_places)
{
    struct fixture f;
    struct row r = {.live = true, .node = NONE};
    static uint32_t pages[GROUPS];
    uint32_t counts[TIER_KINDS];
    open_index(&f, 4096, UINT64_MAX, 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        struct prefix_key key = {.bytes = {(uint8_t)i, 1}};
        for (uint32_t g = 0; g < GROUPS; g++) {
            assert_int_equal(page_pool_take(f.groups[g].pages, &pages[g]), 0);
            memcpy(page_at(&f, g, pages[g]), &key, sizeof(key));
        }
        r.node = prefix_index_add(f.index, 0, r.node, &key, NULL, pages);
        assert_int_equal(numbers(&f).unstored, i + 1 + (i + 1 == 40 ? 2 + 4 : 0));
    }
    store_all(&f, counts);
    expect(counts, 40, 2, 4);
    for (uint32_t g = GROUPS; g-- > 0;)
        for (uint32_t i = 0; i < PAGES; i++)
            page_pool_unref(f.groups[g].pages, i);
    prefix_index_released(f.index, r.node);
    close_index(&f);
}

TEST(windows_and_recurrence_are_one_rule)
{
    struct fixture f;
    uint32_t counts[TIER_KINDS];
    open_index(&f, 4096, UINT64_MAX, 4);
    pass(&f, "abcd");
    prefix_index_ends_here(f.index, node_of(&f, "abc")); /* it has no snapshot */
    store_all(&f, counts);
    expect(counts, 4, 2, 4);
    assert_int_equal(counts[TIER_SNAPSHOT], 1);
    pass(&f, "abcdefgh");
    store_all(&f, counts);
    expect(counts, 4, 2, 4);
    assert_int_equal(counts[TIER_SNAPSHOT], 1);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    assert_int_equal(found(&f, "abcdefg"), 4);
    lose(&f, NEAR, "abc"); /* the snapshot after "abcd" is useless without it */
    assert_int_equal(found(&f, "abcdefg"), 0);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    lose(&f, NEAR, "abcdefgh");
    assert_int_equal(numbers(&f).nodes, 0);
    assert_int_equal(numbers(&f).snapshots, 0);
    close_index(&f);
}

TEST(what_windows_left_on_the_way_goes_before_the_end)
{
    struct fixture f;
    open_index(&f, 4096, 18 * 4096, 0);
    pass(&f, "abcdefgh");
    assert_int_equal(numbers(&f).bytes, 18 * 4096);
    assert_int_equal(numbers(&f).nodes, 8);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    /* Then the text that was used longest ago: without a window at its end none of it is of use. */
    pass(&f, "xy");
    assert_int_equal(found(&f, "xy"), 2);
    assert_int_equal(numbers(&f).nodes, 2);
    close_index(&f);
}

TEST(clearing_takes_pages_that_windows_have_passed)
{
    struct fixture f;
    struct row r;
    open_index(&f, 4096, UINT64_MAX, 0);
    begin(&f, &r, "abcdefgh");
    while (r.page_count < 8)
        compute(&f, &r);
    assert_int_equal(page_pool_cached(f.groups[NEAR].pages), 6);
    assert_int_equal(prefix_index_clear(f.index), 0);
    for (uint32_t g = 0; g < GROUPS; g++)
        assert_int_equal(page_pool_cached(f.groups[g].pages), 0);
    check(&f);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    end(&f, &r);
    assert_int_equal(found(&f, "abcdefgh"), 8);
    close_index(&f);
}

/* A hit returns the content written for exactly these keys. */
static void check_content(struct fixture *f, const struct row *r)
{
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = r->first[g]; i < r->page_count; i++)
            assert_memory_equal(page_at(f, g, r->tables[g][i]), &r->keys[i], sizeof(r->keys[0]));
}

static void pack(struct fixture *f, uint32_t group)
{
    do
        block_pool_trim(page_pool_blocks(f->groups[group].pages), UINT32_MAX, UINT64_MAX);
    while (block_pool_compact(page_pool_blocks(f->groups[group].pages)));
}

TEST(moved_pages_are_found_where_they_are)
{
    struct fixture f;
    struct row r;
    open_index(&f, UNIT_BYTES / 2, UINT64_MAX, 0);
    pass(&f, "xyz");
    pass(&f, "abcdefgh");
    lose(&f, 0, "x");
    for (uint32_t g = 0; g < GROUPS; g++)
        pack(&f, g);
    check(&f);
    assert_true(f.moves > 0);
    assert_int_equal(begin(&f, &r, "abcdefgh"), 8);
    check_content(&f, &r);
    for (uint32_t g = 0; g < GROUPS; g++)
        assert_int_equal(account_numbers(f.kv[g]).used, 4 * UNIT_BYTES);
    end(&f, &r);
    close_index(&f);
}

static void act(struct fixture *f, struct rng *rng, struct row *r)
{
    uint32_t group = (uint32_t)rng_below(rng, GROUPS);
    uint64_t what = rng_below(rng, 14);
    struct prefix_unstored u;
    uint32_t at = (uint32_t)rng_below(rng, PAGES);
    if (what == 12 && r->live && r->node != NONE) {
        prefix_index_ends_here(f->index, r->node);
    } else if (what == 13 && prefix_index_unstored(f->index, &at, PAGES, &u)) {
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
            if (u.blocks[kind] != NONE)
                prefix_index_stored(f->index, u.node, kind);
    } else if (what == 0) {
        pack(f, group);
    } else if (what == 1) {
        page_pool_evict(f->groups[group].pages);
    } else if (!r->live) {
        char text[CHAIN_MAX + 1] = {0};
        uint64_t len = 1 + rng_below(rng, CHAIN_MAX);
        for (uint64_t i = 0; i < len; i++)
            text[i] = (char)('a' + (rng_below(rng, 4) == 0));
        begin(f, r, text);
        check_content(f, r);
    } else if (r->page_count == r->key_count || rng_below(rng, 16) == 0) {
        check_content(f, r);
        end(f, r);
    } else {
        compute(f, r);
    }
}

PROPERTY(hits_hold_what_was_computed, seed)
{
    struct rng rng = {seed, 0};
    struct fixture f;
    struct row rows[3] = {0};
    /* Pools that three chains cannot fill: no page is ever refused. */
    open_index(&f, UNIT_BYTES / 4, seed % 2 ? UINT64_MAX : 20 * UNIT_BYTES / 4, 0);
    for (int step = 0; step < 4000; step++) {
        act(&f, &rng, &rows[rng_below(&rng, COUNT_OF(rows))]);
        check(&f);
    }
    assert_true(f.moves > 0);
    for (uint32_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].live)
            end(&f, &rows[i]);
    close_index(&f);
}

TEST_MAIN()
