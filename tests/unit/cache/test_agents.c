/* Places of agents: refusals, idle times, and the prefixes that a place keeps. */
#define TEST_SEEDS 6 /* two accounts each, and the ledger of a test has 16 */
#include "test_rng.h"
#include "test_chains.h"

#include "base/check.h"
#include "base/page_tokens.h"

#include <errno.h>
#include <stdio.h>

enum { IDLE_NS = 100 };

static void open_agents(struct fixture *f, uint32_t pages_max, uint32_t states_max, uint32_t places,
                        uint32_t pages)
{
    open_chains(f, pages_max, states_max);
    struct agents_opts opts = {
        .index = f->index, .count_max = places, .tokens_max = pages * PAGE_TOKENS, .idle_ns = IDLE_NS};
    assert_int_equal(agents_create(f->arena, &opts, &f->agents), 0);
}

static struct agent_id agent(uint64_t tenant, uint64_t key)
{
    return (struct agent_id){tenant, key};
}

/* A request of the agent. -ENOSPC: it was refused; *free_ns then says until when. */
static int say_until(struct fixture *f, struct agent_id id, const char *text, uint64_t now_ns,
                     uint64_t *free_ns)
{
    struct seq s;
    if (agents_enter(f->agents, &id, now_ns, free_ns) < 0)
        return -ENOSPC;
    assert_true(begin(f, &s, id.tenant, text));
    agents_hold(f->agents, &id, s.node);
    end(f, &s);
    agents_leave(f->agents, &id, now_ns, true);
    check(f);
    return 0;
}

static int say(struct fixture *f, struct agent_id id, const char *text, uint64_t now_ns)
{
    uint64_t free_ns;
    return say_until(f, id, text, now_ns, &free_ns);
}

static struct agents_numbers numbers(const struct fixture *f)
{
    struct agents_numbers n;
    agents_numbers(f->agents, &n);
    return n;
}

TEST(one_agent_too_many_is_refused_until_a_place_is_idle)
{
    struct fixture f;
    uint64_t free_ns = 0;
    open_agents(&f, 60, 0, 8, 4);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(say(&f, agent(1, i), "ab", 10 + i), 0);
    assert_int_equal(say_until(&f, agent(1, 8), "ab", 20, &free_ns), -ENOSPC);
    assert_int_equal(free_ns, 10 + IDLE_NS);
    /* A further request of an agent with a place extends its time. */
    assert_int_equal(say(&f, agent(1, 0), "abc", 20), 0);
    assert_int_equal(say_until(&f, agent(1, 8), "ab", 21, &free_ns), -ENOSPC);
    assert_int_equal(free_ns, 11 + IDLE_NS);
    assert_int_equal(agents_due_ns(f.agents), 11 + IDLE_NS);
    assert_false(agents_expire(f.agents, 10 + IDLE_NS));
    assert_true(agents_expire(f.agents, 11 + IDLE_NS));
    assert_int_equal(say(&f, agent(1, 8), "ab", 30), 0);
    assert_int_equal(numbers(&f).count, 8);
    assert_int_equal(numbers(&f).refused, 2);
    assert_int_equal(numbers(&f).expired, 1);
    close_chains(&f);
}

TEST(tenants_have_agents_of_their_own)
{
    struct fixture f;
    open_agents(&f, 40, 0, 2, 4);
    assert_int_equal(say(&f, agent(1, 5), "ab", 1), 0);
    assert_int_equal(say(&f, agent(2, 5), "ab", 1), 0);
    assert_int_equal(numbers(&f).count, 2);
    assert_false(agents_end(f.agents, &(struct agent_id){3, 5}));
    assert_true(agents_end(f.agents, &(struct agent_id){2, 5}));
    assert_int_equal(numbers(&f).count, 1);
    assert_int_equal(say(&f, agent(1, 5), "abc", 1), 0);
    assert_int_equal(numbers(&f).tokens, 3 * PAGE_TOKENS);
    close_chains(&f);
}

TEST(a_place_with_requests_stays_and_one_without_a_prefix_goes)
{
    struct fixture f;
    struct agent_id id = agent(1, 1), other = agent(1, 2);
    uint64_t free_ns = 0;
    open_agents(&f, 40, 0, 1, 4);
    assert_int_equal(agents_enter(f.agents, &id, 5, &free_ns), 0);
    assert_int_equal(agents_enter(f.agents, &id, 6, &free_ns), 0);
    assert_int_equal(numbers(&f).running, 1);
    assert_false(agents_expire(f.agents, 1000));
    assert_int_equal(agents_due_ns(f.agents), UINT64_MAX);
    assert_int_equal(agents_enter(f.agents, &other, 7, &free_ns), -ENOSPC);
    assert_int_equal(free_ns, 7 + IDLE_NS);
    agents_leave(f.agents, &id, 8, false);
    assert_int_equal(numbers(&f).count, 1);
    agents_leave(f.agents, &id, 8, false);
    assert_int_equal(numbers(&f).count, 0);
    /* agents_end() frees the place after the running request, unless another request comes. */
    for (int again = 0; again < 2; again++) {
        assert_int_equal(agents_enter(f.agents, &id, 9, &free_ns), 0);
        struct seq s;
        assert_true(begin(&f, &s, 1, "ab"));
        agents_hold(f.agents, &id, s.node);
        end(&f, &s);
        assert_true(agents_end(f.agents, &id));
        if (again) {
            assert_int_equal(agents_enter(f.agents, &id, 9, &free_ns), 0);
            agents_leave(f.agents, &id, 9, false);
        }
        assert_int_equal(numbers(&f).count, 1);
        agents_leave(f.agents, &id, 9, false);
        assert_int_equal(numbers(&f).count, again);
    }
    close_chains(&f);
}

static void keeps(uint32_t states)
{
    struct fixture f;
    open_agents(&f, 40, states, 2, 8);
    assert_int_equal(say(&f, agent(7, 1), "abcd", 1), 0);
    press(&f, 7);
    press(&f, 8);
    prefix_index_clear(f.index);
    assert_int_equal(found(&f, 7, "abcd"), 4);
    /* It moves to the end of the next turn, and a second conversation stands beside it. */
    assert_int_equal(say(&f, agent(7, 1), "abcdef", 2), 0);
    assert_int_equal(numbers(&f).tokens, 6 * PAGE_TOKENS);
    assert_int_equal(say(&f, agent(7, 1), "xy", 3), 0);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcdef"), 6);
    assert_int_equal(found(&f, 7, "xy"), 2);
    /* Turns of the helper leave the first one alone; a third conversation replaces it. */
    assert_int_equal(say(&f, agent(7, 1), "xy", 4), 0);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcdef"), 6);
    assert_int_equal(say(&f, agent(7, 1), "mn", 5), 0);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcdef"), 0);
    assert_int_equal(found(&f, 7, "xy"), 2);
    /* With its place, its prefixes become cache like any other. */
    assert_true(agents_expire(f.agents, 5 + IDLE_NS));
    assert_int_equal(found(&f, 7, "mn"), 2);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "mn"), 0);
    close_chains(&f);
}

TEST(a_place_keeps_its_prefixes_under_pressure_and_clears)
{
    keeps(0);
    keeps(8);
}

TEST(a_place_holds_no_more_than_its_share)
{
    struct fixture f;
    open_agents(&f, 40, 0, 2, 4);
    assert_int_equal(say(&f, agent(7, 1), "abcdefgh", 1), 0);
    assert_int_equal(numbers(&f).tokens, 4 * PAGE_TOKENS);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcdefgh"), 4);
    assert_int_equal(say(&f, agent(7, 1), "xyz", 2), 0);
    assert_int_equal(numbers(&f).tokens, 3 * PAGE_TOKENS);
    press(&f, 7);
    assert_int_equal(found(&f, 7, "abcdefgh"), 0);
    close_chains(&f);
}

TEST(a_snapshot_beyond_the_share_is_not_held)
{
    struct fixture f;
    open_agents(&f, 40, 8, 2, 4);
    /* Its only snapshot is at its end. */
    assert_int_equal(say(&f, agent(7, 1), "abcdefgh", 1), 0);
    assert_int_equal(numbers(&f).count, 1);
    assert_int_equal(numbers(&f).tokens, 0);
    assert_int_equal(say(&f, agent(7, 1), "abcd", 1), 0);
    assert_int_equal(say(&f, agent(7, 1), "abcdefgh", 1), 0);
    assert_int_equal(numbers(&f).tokens, 4 * PAGE_TOKENS);
    close_chains(&f);
}

PROPERTY(ten_thousand_agents_come_and_go, seed)
{
    struct fixture f;
    struct rng rng = {.seed = seed};
    uint32_t states = (uint32_t)rng_below(&rng, 2) * 24;
    uint64_t now_ns = 0;
    open_agents(&f, 60, states, 8, 5);
    for (uint32_t i = 0; i < 10000; i++) {
        char text[CHAIN_MAX + 1] = {0};
        struct agent_id id = agent(1 + (uint32_t)rng_below(&rng, 3), i - (uint32_t)rng_below(&rng, 12));
        uint32_t length = 1 + (uint32_t)rng_below(&rng, 8);
        for (uint32_t at = 0; at < length; at++)
            text[at] = (char)('a' + (id.key * 7 + at / 3) % 26);
        now_ns += (uint32_t)rng_below(&rng, IDLE_NS / 4);
        uint64_t free_ns = 0;
        while (agents_expire(f.agents, now_ns))
            ;
        if (i % 7 == 0)
            (void)agents_end(f.agents, &id);
        int r = agents_enter(f.agents, &id, now_ns, &free_ns);
        assert_true(r == 0 || (free_ns > now_ns && free_ns <= now_ns + IDLE_NS));
        if (r == 0) {
            struct seq s;
            assert_true(begin(&f, &s, id.tenant, text));
            agents_hold(f.agents, &id, s.node);
            end(&f, &s);
            agents_leave(f.agents, &id, now_ns, i % 5 > 0);
        }
        if (i % 64 == 0)
            check(&f);
    }
    assert_true(numbers(&f).refused > 0 && numbers(&f).expired > 0 && numbers(&f).taken > 1000);
    close_chains(&f);
}

TEST_MAIN()
