/* Leases: what survives pressure, when it ends, where it moves, and who pays. */
#define TEST_SEEDS 6 /* two accounts each, and the ledger of a test has 16 */
#include "test_rng.h"
#include "test_chains.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

enum { LEASES_MAX = 32 };

/* A tier below with room for `room` entries. It stores one when the test says so. */
struct tier {
    struct tier_lease_of {
        bool open;
        uint32_t promised, held, stored;
        struct prefix_key key;
    } leases[64];
    uint32_t room, error;
};

static struct tier tier;
static struct tier_io tier_io;

static uint32_t tier_used(const struct tier *t, uint32_t *count)
{
    uint32_t used = 0;
    *count = 0;
    for (size_t i = 0; i < COUNT_OF(t->leases); i++) {
        used += t->leases[i].promised + t->leases[i].held;
        *count += t->leases[i].open;
    }
    return used;
}

static int tier_grow(void *arg, uint32_t lease, const uint32_t counts[TIER_KINDS], struct lease_refusal *why)
{
    struct tier *t = arg;
    uint32_t count;
    if (t->error)
        return -(int)t->error;
    *why = (struct lease_refusal){.wanted_bytes = counts[TIER_PAGE], .held_bytes = tier_used(t, &count)};
    if (tier_used(t, &count) + counts[TIER_PAGE] > t->room)
        return -ENOSPC;
    t->leases[lease].promised += counts[TIER_PAGE];
    return 0;
}

static int tier_open(void *arg, uint32_t share, const uint32_t counts[TIER_KINDS], uint32_t *ret,
                     struct lease_refusal *why)
{
    struct tier *t = arg;
    uint32_t i = 0;
    assert_true(share < 256);
    while (t->leases[i].open)
        assert_true(++i < COUNT_OF(t->leases));
    t->leases[i] = (struct tier_lease_of){.open = true};
    int r = tier_grow(t, i, counts, why);
    t->leases[i].open = r == 0;
    *ret = r == 0 ? i : *ret;
    return r;
}

static int tier_hold(void *arg, uint32_t lease, const struct prefix_key *keys, uint32_t count,
                     const uint32_t first[TIER_KINDS], uint64_t *bytes)
{
    struct tier *t = arg;
    struct tier_lease_of *x = &t->leases[lease];
    assert_true(x->open && first[TIER_PAGE] == 0 && first[TIER_SNAPSHOT] + 1 >= count);
    x->promised = 0;
    if (count > t->room)
        return -ENOSPC;
    *bytes = count;
    x->held = count;
    x->stored = MIN_OF(x->stored, count);
    x->key = keys[count - 1];
    return 0;
}

static enum tier_lease_state tier_look(void *arg, uint32_t lease, struct tier_lease *ret)
{
    struct tier_lease_of *x = &((struct tier *)arg)->leases[lease];
    assert_true(x->open);
    *ret = (struct tier_lease){x->held, x->stored, TIER_PAGE, &x->key};
    return x->stored == x->held ? TIER_LEASE_WHOLE : TIER_LEASE_LACKS;
}

static void tier_end(void *arg, uint32_t lease)
{
    struct tier *t = arg;
    assert_true(t->leases[lease].open);
    t->leases[lease] = (struct tier_lease_of){.open = false};
}

/* `pages`: the limit of sessions, in pages of bytes. */
static void open_leases(struct fixture *f, uint32_t pages_max, uint32_t states_max, uint32_t pages)
{
    open_chains(f, pages_max, states_max);
    tier = (struct tier){.room = 1000};
    tier_io = (struct tier_io){.arg = &tier,
                               .lease_open = tier_open,
                               .lease_grow = tier_grow,
                               .lease_hold = tier_hold,
                               .lease_look = tier_look,
                               .lease_end = tier_end};
    struct leases_opts leases = {.index = f->index,
                                 .count_max = LEASES_MAX,
                                 .bytes_max = pages * (uint64_t)PAGE_BYTES,
                                 .pages_max = pages_max - CHAIN_MAX,
                                 .states_max = states_max ? states_max - 1 : 0,
                                 .tier = &tier_io};
    assert_int_equal(leases_create(f->arena, &leases, &f->leases), 0);
}

static void close_leases(struct fixture *f)
{
    uint32_t count;
    close_chains(f);
    assert_true(tier_used(&tier, &count) == 0 && count == 0);
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

static int open_below(struct fixture *f, uint32_t number, uint64_t tenant, uint32_t pages,
                      uint64_t deadline_ns)
{
    struct lease_refusal why;
    struct lease_open open = {.id = id_of(number),
                              .tenant = tenant,
                              .deadline_ns = deadline_ns,
                              .follows = true,
                              .below = true,
                              .counts = {[TIER_PAGE] = pages}};
    return leases_open(f->leases, &open, &why);
}

/* Holds the text in a session that is open. */
static int hold_open(struct fixture *f, uint32_t number, uint64_t tenant, const char *text)
{
    struct seq s;
    int r;
    assert_true(begin(f, &s, tenant, text));
    struct lease_id id = id_of(number);
    r = leases_hold(f->leases, &id, s.node, s.keys);
    end(f, &s);
    check(f);
    return r;
}

/* Opens a session of the text. */
static int hold(struct fixture *f, uint32_t number, uint64_t tenant, const char *text, uint64_t deadline_ns)
{
    int r = open_session(f, number, tenant, (uint32_t)strlen(text), deadline_ns);
    return r < 0 ? r : hold_open(f, number, tenant, text);
}

static int hold_below(struct fixture *f, uint32_t number, uint64_t tenant, const char *text,
                      uint64_t deadline_ns)
{
    int r = open_below(f, number, tenant, (uint32_t)strlen(text), deadline_ns);
    return r < 0 ? r : hold_open(f, number, tenant, text);
}

/* The tier gets one entry more of what it lacks first. False: it lacks nothing. */
static bool store_below(struct fixture *f)
{
    struct lease_lack lack;
    enum tier_lease_state state = leases_next_lack(f->leases, &lack);
    for (size_t i = 0; state == TIER_LEASE_LACKS && i < COUNT_OF(tier.leases); i++) {
        struct tier_lease_of *x = &tier.leases[i];
        x->stored += x->open && x->stored < x->held && prefix_key_eq(&x->key, lack.key);
    }
    return state != TIER_LEASE_WHOLE;
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
    close_leases(&f);
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
    close_leases(&f);
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
    close_leases(&f);
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
    leases_follow(f.leases, 7, s.node, s.keys);
    end(&f, &s);
    assert_int_equal(leases_each(f.leases, copy_info, &info), 1);
    assert_int_equal(info.tokens, 4 * PAGE_TOKENS);
    assert_int_equal(info.bytes, 4 * PAGE_BYTES + STATE_BYTES);
    assert_int_equal(prefix_index_leased_bytes(f.index), 4 * PAGE_BYTES + STATE_BYTES);
    /* A request of the same head and another end changes nothing. */
    assert_true(begin(&f, &s, 7, "abx"));
    leases_follow(f.leases, 7, s.node, s.keys);
    end(&f, &s);
    assert_int_equal(prefix_index_leased_bytes(f.index), 4 * PAGE_BYTES + STATE_BYTES);
    assert_int_equal(wish(&f, 7, "xyz", 90), 3 * PAGE_TOKENS);
    assert_int_equal(numbers(&f).wishes, 1);
    assert_int_equal(prefix_index_wished_bytes(f.index), 3 * PAGE_BYTES + STATE_BYTES);
    /* A shorter wish does not bring the deadline forward. */
    assert_int_equal(leases_due_ns(f.leases), 100);
    check(&f);
    close_leases(&f);
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
    close_leases(&f);
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
    assert_int_equal(leases_grow(f.leases, &more.id, 8, PAGE_BYTES, NULL, &why), -ENOSPC);
    assert_int_equal(leases_grow(f.leases, &more.id, 7, 0, NULL, &why), -ENOENT);
    assert_true(leases_end(f.leases, &more.id, 8));
    assert_int_equal(numbers(&f).promised_bytes, 0);
    close_leases(&f);
}

TEST(a_session_that_would_leave_no_room_for_a_sequence_stays_where_it_was)
{
    struct fixture f;
    struct seq s;
    struct lease_id id = id_of(1);
    open_leases(&f, CHAIN_MAX + 3, 0, 1000);
    assert_int_equal(hold(&f, 1, 7, "abc", 100), 0);
    assert_true(begin(&f, &s, 7, "abcd"));
    assert_int_equal(leases_hold(f.leases, &id, s.node, s.keys), -ENOSPC);
    end(&f, &s);
    assert_int_equal(prefix_index_leased_bytes(f.index), 3 * PAGE_BYTES);
    assert_true(begin(&f, &s, 9, "zyxwvutsrqpo"));
    end(&f, &s);
    close_leases(&f);
}

static struct lease_info info_of(const struct fixture *f, uint32_t number)
{
    struct lease_id id = id_of(number);
    struct lease_info info = {0};
    assert_true(leases_info(f->leases, &id, &info));
    return info;
}

static void below_moves(uint32_t states)
{
    struct fixture f;
    open_leases(&f, 40, states, 40);
    assert_int_equal(hold_below(&f, 1, 7, "abcd", 100), 0);
    assert_true(info_of(&f, 1).below && info_of(&f, 1).tokens == 4 * PAGE_TOKENS);
    /* The pools keep it until the tier has it. */
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcd"), 4);
    assert_true(numbers(&f).writing == 1 && prefix_index_leased_bytes(f.index) > 0);
    while (store_below(&f))
        ;
    assert_true(info_of(&f, 1).stored_bytes == info_of(&f, 1).bytes && numbers(&f).writing == 0);
    assert_int_equal(prefix_index_leased_bytes(f.index), 0);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcd"), 0);
    /* It is known by its end, and moves from there; another tenant's request moves nothing. */
    struct seq s;
    for (uint64_t tenant = 8; tenant > 6; tenant--) {
        assert_int_equal(info_of(&f, 1).tokens, 4 * PAGE_TOKENS);
        assert_true(begin(&f, &s, tenant, "abcdef"));
        leases_follow(f.leases, tenant, s.node, s.keys);
        end(&f, &s);
        check(&f);
    }
    assert_true(info_of(&f, 1).tokens == 6 * PAGE_TOKENS && numbers(&f).writing == 1);
    assert_true(leases_expire(f.leases, 100));
    close_leases(&f);
}

TEST(a_session_below_leaves_the_pools_when_the_tier_has_it)
{
    below_moves(0);
    below_moves(30);
}

TEST(a_session_below_needs_no_room_in_the_pools)
{
    struct fixture f;
    struct lease_refusal why;
    struct lease_id id = id_of(1);
    open_leases(&f, 40, 0, 4);
    tier.room = 8;
    assert_int_equal(hold(&f, 1, 7, "abcd", 100), -ENOSPC);
    assert_int_equal(hold_below(&f, 1, 7, "abcd", 100), 0);
    assert_true(numbers(&f).writing == 1 && prefix_index_leased_bytes(f.index) == 0);
    assert_int_equal(open_below(&f, 2, 7, 5, 100), -ENOSPC);
    assert_int_equal(leases_grow(f.leases, &id, 7, 0, (uint32_t[TIER_KINDS]){5}, &why), -ENOSPC);
    assert_int_equal(leases_grow(f.leases, &id, 7, 0, (uint32_t[TIER_KINDS]){4}, &why), 0);
    assert_int_equal(hold_open(&f, 1, 7, "abcdefghij"), -ENOSPC);
    assert_int_equal(info_of(&f, 1).tokens, 4 * PAGE_TOKENS);
    tier.error = EIO;
    assert_int_equal(open_below(&f, 2, 7, 1, 100), -EIO);
    /* The tier's client closes first, and ends its leases. */
    struct tier_io io = tier_io;
    tier_io.arg = NULL;
    assert_int_equal(open_below(&f, 2, 7, 1, 100), -ENODEV);
    assert_true(leases_end(f.leases, &id, 7));
    io.lease_end(io.arg, 0);
    close_leases(&f);
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
    close_leases(&f);
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
    if (rng_below(rng, 3) == 0) {
        (void)hold_below(f, number, tenant, text, deadline_ns);
    } else if (rng_below(rng, 2) == 0) {
        (void)hold(f, number, tenant, text, deadline_ns);
    } else if (begin(f, &s, tenant, text)) {
        struct lease_wish two[] = {{prefix_index_node(f->index, &s.keys[count / 2]), deadline_ns},
                                   {s.node, deadline_ns}};
        leases_follow(f->leases, tenant, s.node, s.keys);
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
    if (rng_below(rng, 2))
        (void)store_below(f);
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
    close_leases(&f);
}

TEST_MAIN()
