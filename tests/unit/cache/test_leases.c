/* Leases: what survives pressure, when it ends, where it moves, and who pays. */
#define TEST_SEEDS 6 /* two accounts each, and the ledger of a test has 16 */
#include "test_rng.h"
#include "test_chains.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

enum { LEASES_MAX = 32 };

/* `pages`: the limit of sessions, in pages of bytes. */
static void open_leases(struct fixture *f, uint32_t pages_max, uint32_t states_max, uint32_t pages)
{
    open_chains(f, pages_max, states_max);
    struct leases_opts leases = {.index = f->index,
                                 .count_max = LEASES_MAX,
                                 .bytes_max = pages * (uint64_t)PAGE_BYTES,
                                 .pages_max = pages_max - CHAIN_MAX,
                                 .states_max = states_max ? states_max - 1 : 0};
    assert_int_equal(leases_create(f->arena, &leases, &f->leases), 0);
}

/* Moves the snapshot into another block, as a pool does that empties a unit. */
static void move_snapshot(struct fixture *f, uint32_t from)
{
    uint32_t to;
    if (!prefix_index_is_movable_snapshot(f->index, from) || block_pool_take(f->states, &to) < 0)
        return;
    prefix_index_move_snapshot(f->index, from, to);
    block_pool_give(f->states, from);
}

static struct lease_id id_of(uint32_t number)
{
    struct lease_id id = {{0}};
    memcpy(id.bytes, &number, sizeof(number));
    return id;
}

static int open_session(struct fixture *f, uint32_t number, uint64_t tenant, uint32_t pages,
                        uint64_t deadline_ns)
{
    struct lease_refusal why;
    struct lease_open open = {.id = id_of(number),
                              .tenant = tenant,
                              .deadline_ns = deadline_ns,
                              .bytes = pages * (uint64_t)PAGE_BYTES,
                              .follows = true};
    return leases_open(f->leases, &open, &why);
}

/* Opens a session of the text. */
static int hold(struct fixture *f, uint32_t number, uint64_t tenant, const char *text, uint64_t deadline_ns)
{
    struct seq s;
    int r = open_session(f, number, tenant, (uint32_t)strlen(text), deadline_ns);
    if (r < 0)
        return r;
    assert_true(begin(f, &s, tenant, text));
    struct lease_id id = id_of(number);
    r = leases_hold(f->leases, &id, s.node);
    end(f, &s);
    check(f);
    return r;
}

static uint32_t wish(struct fixture *f, uint64_t tenant, const char *text, uint64_t deadline_ns)
{
    struct seq s;
    assert_true(begin(f, &s, tenant, text));
    uint32_t tokens = leases_wish(f->leases, tenant, &(struct lease_wish){s.node, deadline_ns}, 1);
    end(f, &s);
    check(f);
    return tokens;
}

static struct lease_numbers numbers(const struct fixture *f)
{
    struct lease_numbers n;
    leases_numbers(f->leases, &n);
    return n;
}

static void sessions_survive(uint32_t states)
{
    struct fixture f;
    open_leases(&f, 40, states, 40);
    assert_int_equal(hold(&f, 1, 7, "abcd", 100), 0);
    press(&f, 7);
    press(&f, 8);
    prefix_index_clear(f.index);
    assert_int_equal(found(&f, 7, "abcd"), 4);
    assert_false(leases_expire(f.leases, 99));
    assert_int_equal(leases_due_ns(f.leases), 100);
    assert_true(leases_expire(f.leases, 100));
    assert_false(leases_expire(f.leases, 100));
    assert_int_equal(prefix_index_leased_bytes(f.index), 0);
    /* It is cache like any other now. */
    assert_int_equal(found(&f, 7, "abcd"), 4);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcd"), 0);
    close_chains(&f);
}

TEST(a_session_survives_pressure_and_clears_until_its_deadline)
{
    sessions_survive(0);
    sessions_survive(4);
}

static void wishes_go_last(uint32_t states)
{
    struct fixture f;
    struct seq s;
    open_leases(&f, 40, states, 40);
    assert_int_equal(wish(&f, 7, "abcd", 100), 4 * PAGE_TOKENS);
    press(&f, 7);
    press(&f, 8);
    assert_int_equal(found(&f, 7, "abcd"), 4);
    /* Sequences need every page. */
    struct seq all[4];
    for (uint32_t i = 0; i < 4; i++)
        assert_true(
            begin(&f, &all[i], 9, (char[]){(char)('a' + i), 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 0}));
    assert_int_equal(found(&f, 7, "abcd"), 0);
    assert_int_equal(numbers(&f).wishes, 0);
    assert_int_equal(numbers(&f).dropped, 1);
    assert_false(begin(&f, &s, 9, "x"));
    for (uint32_t i = 0; i < 4; i++)
        end(&f, &all[i]);
    close_chains(&f);
}

TEST(wished_entries_are_evicted_after_all_others_and_refuse_no_sequence)
{
    wishes_go_last(0);
    wishes_go_last(4);
}

TEST(a_snapshot_that_moves_takes_its_wish_along)
{
    struct fixture f;
    struct prefix_key keys[CHAIN_MAX];
    struct prefix_hit hit;
    open_leases(&f, 40, 4, 40);
    assert_int_equal(wish(&f, 7, "abcd", 100), 4 * PAGE_TOKENS);
    prefix_index_find(f.index, keys, keys_of(7, "abcd", keys), &hit);
    move_snapshot(&f, hit.state);
    check(&f);
    /* Another snapshot is in the block that it left. */
    pass(&f, 7, "xy");
    check(&f);
    assert_int_equal(prefix_index_wished_bytes(f.index), 4 * PAGE_BYTES + STATE_BYTES);
    assert_true(leases_expire(f.leases, 100));
    assert_int_equal(prefix_index_wished_bytes(f.index), 0);
    close_chains(&f);
}

static void copy_info(void *arg, uint32_t i, const struct lease_info *info)
{
    assert_int_equal(i, 0);
    *(struct lease_info *)arg = *info;
}

TEST(the_end_of_a_chain_takes_its_lease_along)
{
    struct fixture f;
    struct seq s;
    struct lease_info info = {0};
    open_leases(&f, 40, 6, 40);
    assert_int_equal(hold(&f, 1, 7, "ab", 100), 0);
    assert_int_equal(wish(&f, 7, "xy", 100), 2 * PAGE_TOKENS);
    assert_true(begin(&f, &s, 7, "abcd"));
    leases_follow(f.leases, 7, s.node);
    end(&f, &s);
    assert_int_equal(leases_each(f.leases, copy_info, &info), 1);
    assert_int_equal(info.tokens, 4 * PAGE_TOKENS);
    assert_int_equal(info.bytes, 4 * PAGE_BYTES + STATE_BYTES);
    assert_int_equal(prefix_index_leased_bytes(f.index), 4 * PAGE_BYTES + STATE_BYTES);
    /* A request of the same head and another end changes nothing. */
    assert_true(begin(&f, &s, 7, "abx"));
    leases_follow(f.leases, 7, s.node);
    end(&f, &s);
    assert_int_equal(prefix_index_leased_bytes(f.index), 4 * PAGE_BYTES + STATE_BYTES);
    assert_int_equal(wish(&f, 7, "xyz", 90), 3 * PAGE_TOKENS);
    assert_int_equal(numbers(&f).wishes, 1);
    assert_int_equal(prefix_index_wished_bytes(f.index), 3 * PAGE_BYTES + STATE_BYTES);
    /* A shorter wish does not bring the deadline forward. */
    assert_int_equal(leases_due_ns(f.leases), 100);
    check(&f);
    close_chains(&f);
}

TEST(each_breakpoint_of_a_request_has_its_own_wish)
{
    struct fixture f;
    struct seq s;
    open_leases(&f, 40, 0, 40);
    for (int turn = 0; turn < 3; turn++) {
        assert_true(begin(&f, &s, 7, (const char *[]){"hhab", "hhabcd", "hhabcdef"}[turn]));
        struct prefix_key *keys = s.keys;
        struct lease_wish both[] = {{prefix_index_node(f.index, &keys[1]), 1000}, {s.node, 100}};
        assert_int_equal(leases_wish(f.leases, 7, both, 2), s.count * PAGE_TOKENS);
        end(&f, &s);
        check(&f);
        assert_int_equal(numbers(&f).wishes, 2);
    }
    /* Another conversation with this head gets a wish of its own, and leaves the head's. */
    assert_true(begin(&f, &s, 7, "hhxy"));
    struct lease_wish both[] = {{prefix_index_node(f.index, &s.keys[1]), 500}, {s.node, 100}};
    leases_wish(f.leases, 7, both, 2);
    end(&f, &s);
    assert_int_equal(numbers(&f).wishes, 3);
    while (leases_expire(f.leases, 100))
        ;
    assert_int_equal(numbers(&f).wishes, 1);
    assert_int_equal(prefix_index_wished_bytes(f.index), 2 * PAGE_BYTES);
    close_chains(&f);
}

TEST(a_tenant_holds_half_of_what_others_leave)
{
    struct fixture f;
    struct lease_refusal why;
    open_leases(&f, 60, 0, 24);
    assert_int_equal(hold(&f, 1, 7, "abcdefgh", 100), 0);
    struct lease_open more = {.id = id_of(2), .tenant = 7, .deadline_ns = 100, .bytes = 5 * PAGE_BYTES};
    assert_int_equal(leases_open(f.leases, &more, &why), -ENOSPC);
    assert_true(why.by_tenant);
    assert_int_equal(why.wanted_bytes, 5 * PAGE_BYTES);
    assert_int_equal(why.tenant_bytes, 8 * PAGE_BYTES);
    assert_int_equal(why.tenant_limit_bytes, 12 * PAGE_BYTES);
    assert_int_equal(why.limit_bytes, 24 * PAGE_BYTES);
    /* The common part counts once. */
    assert_int_equal(hold(&f, 3, 7, "abcx", 100), 0);
    assert_int_equal(prefix_index_leased_bytes(f.index), 9 * PAGE_BYTES);
    /* Another tenant: half of what is left. */
    more.tenant = 8;
    more.bytes = 8 * PAGE_BYTES;
    assert_int_equal(leases_open(f.leases, &more, &why), -ENOSPC);
    more.bytes = 7 * PAGE_BYTES;
    assert_int_equal(leases_open(f.leases, &more, &why), 0);
    assert_int_equal(leases_open(f.leases, &more, &why), -EEXIST);
    /* A promise counts before anything is held, and not after it is given up. */
    assert_int_equal(leases_grow(f.leases, &more.id, 8, PAGE_BYTES, &why), -ENOSPC);
    assert_int_equal(leases_grow(f.leases, &more.id, 7, 0, &why), -ENOENT);
    assert_true(leases_end(f.leases, &more.id, 8));
    assert_int_equal(numbers(&f).promised_bytes, 0);
    close_chains(&f);
}

TEST(a_session_that_would_leave_no_room_for_a_sequence_stays_where_it_was)
{
    struct fixture f;
    struct seq s;
    struct lease_id id = id_of(1);
    open_leases(&f, CHAIN_MAX + 3, 0, 1000);
    assert_int_equal(hold(&f, 1, 7, "abc", 100), 0);
    assert_true(begin(&f, &s, 7, "abcd"));
    assert_int_equal(leases_hold(f.leases, &id, s.node), -ENOSPC);
    end(&f, &s);
    assert_int_equal(prefix_index_leased_bytes(f.index), 3 * PAGE_BYTES);
    assert_true(begin(&f, &s, 9, "zyxwvutsrqpo"));
    end(&f, &s);
    close_chains(&f);
}

TEST(the_table_has_room_for_sessions_when_wishes_fill_it)
{
    struct fixture f;
    open_leases(&f, 200, 0, 400);
    for (uint32_t i = 0; i < 2 * LEASES_MAX; i++)
        wish(&f, 7, (char[]){(char)('0' + i), 0}, 1000 + i);
    assert_int_equal(numbers(&f).wishes, LEASES_MAX - LEASES_MAX / 4);
    for (uint32_t i = 0; i < LEASES_MAX / 4; i++)
        assert_int_equal(open_session(&f, i, 7, 1, 100), 0);
    assert_int_equal(open_session(&f, 100, 7, 1, 100), -ENFILE);
    close_chains(&f);
}

static void do_something(struct fixture *f, struct rng *rng, uint32_t number, uint64_t now_ns)
{
    char text[CHAIN_MAX] = {0};
    uint32_t count = 1 + (uint32_t)rng_below(rng, CHAIN_MAX - 2);
    for (uint32_t i = 0; i < count; i++)
        text[i] = (char)('a' + rng_below(rng, 2));
    uint64_t tenant = rng_below(rng, 3), deadline_ns = now_ns + rng_below(rng, 20);
    struct lease_id id = id_of((uint32_t)rng_below(rng, number + 1));
    struct seq s;
    if (rng_below(rng, 3) > 0) {
        (void)hold(f, number, tenant, text, deadline_ns);
    } else if (begin(f, &s, tenant, text)) {
        struct lease_wish two[] = {{prefix_index_node(f->index, &s.keys[count / 2]), deadline_ns},
                                   {s.node, deadline_ns}};
        leases_follow(f->leases, tenant, s.node);
        leases_wish(f->leases, tenant, two, 2);
        end(f, &s);
    } else {
        end(f, &s);
    }
    if (rng_below(rng, 8) == 0)
        (void)leases_end(f->leases, &id, tenant);
    if (f->states)
        move_snapshot(f, (uint32_t)rng_below(rng, 4));
    if (rng_below(rng, 50) == 0)
        prefix_index_clear(f->index);
    while (leases_expire(f->leases, now_ns))
        ;
}

/* In each seed: 10,000 in all. */
PROPERTY(thousands_of_leases_end_with_the_ledger_as_it_began, seed)
{
    struct rng rng = {seed, 0};
    struct fixture f;
    open_leases(&f, 30 + (uint32_t)rng_below(&rng, 60), seed % 2 ? 4 + (uint32_t)rng_below(&rng, 8) : 0,
                10 + (uint32_t)rng_below(&rng, 60));
    for (uint32_t number = 0; number < DIV_UP(10000, TEST_SEEDS); number++) {
        do_something(&f, &rng, number, number);
        check(&f);
    }
    while (leases_expire(f.leases, UINT64_MAX))
        ;
    assert_int_equal(numbers(&f).sessions + numbers(&f).wishes, 0);
    assert_int_equal(numbers(&f).promised_bytes, 0);
    close_chains(&f);
}

TEST_MAIN()
