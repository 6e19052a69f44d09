/* Prefixes in a pool of pages, with what keeps them: for the tests of leases and of agents. */
#ifndef TEST_CHAINS_H
#define TEST_CHAINS_H

#include "test_blocks.h"
#include "test_ledger.h"

#include "base/arena.h"
#include "base/none.h"
#include "cache/agents.h"
#include "cache/leases.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_lease.h"

enum { PAGE_BYTES = 4096, STATE_BYTES = 8192, CHAIN_MAX = 12 };

struct fixture {
    struct arena *arena;
    struct account *kv, *state;
    struct page_pool *pages;
    struct block_pool *states;
    struct prefix_index *index;
    struct leases *leases; /* NULL: none */
    struct agents *agents; /* NULL: none */
};

static void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct fixture *)arg)->index, 0, page);
}

static void on_leaving(void *arg, uint32_t node)
{
    leases_leaving(((struct fixture *)arg)->leases, node);
}

/* `states_max` 0: no recurrent layers. */
static void open_chains(struct fixture *f, uint32_t pages_max, uint32_t states_max)
{
    *f = (struct fixture){.kv = test_account(ACCOUNT_NO_LIMIT), .state = test_account(ACCOUNT_NO_LIMIT)};
    struct page_pool_opts page_opts = {
        .pages_max = pages_max, .page_bytes = PAGE_BYTES, .kv = f->kv, .evict = on_evict, .arg = f};
    struct block_pool_opts states = {
        .blocks_max = states_max, .block_bytes = STATE_BYTES, .account = f->state};
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &page_opts, &f->pages), 0);
    if (states_max)
        assert_int_equal(block_pool_create(f->arena, &states, &f->states), 0);
    struct prefix_index_opts index = {.groups = {{.pages = f->pages, .page_bytes = PAGE_BYTES}},
                                      .group_count = 1,
                                      .states = f->states,
                                      .state_bytes = STATE_BYTES,
                                      .bytes_max = UINT64_MAX,
                                      .leaving = on_leaving,
                                      .leaving_arg = f};
    assert_int_equal(prefix_index_create(f->arena, &index, &f->index), 0);
}

static void check(const struct fixture *f)
{
    if (f->leases)
        leases_check(f->leases);
    if (f->agents)
        agents_check(f->agents);
    prefix_index_check(f->index);
    page_pool_check(f->pages);
}

static void close_chains(struct fixture *f)
{
    check(f);
    leases_done(f->leases);
    agents_done(f->agents);
    prefix_index_check(f->index);
    assert_int_equal(prefix_index_leased_bytes(f->index), 0);
    assert_int_equal(prefix_index_wished_bytes(f->index), 0);
    prefix_index_done(f->index);
    page_pool_check(f->pages);
    page_pool_done(f->pages);
    block_pool_done(f->states);
    arena_free(f->arena);
    assert_int_equal(account_numbers(f->kv).reserved, 0);
    assert_int_equal(account_numbers(f->state).reserved, 0);
}

static void tokens_of(char letter, uint32_t ret[PAGE_TOKENS])
{
    for (uint32_t i = 0; i < PAGE_TOKENS; i++)
        ret[i] = (uint32_t)(uint8_t)letter * 100 + i;
}

/* A text is a letter per page; the tenant's salt is in the keys. */
static uint32_t keys_of(uint64_t tenant, const char *text, struct prefix_key *ret)
{
    struct slice salt = {(const char *)&tenant, sizeof(tenant)};
    struct prefix_key parent = prefix_key_root(&salt, 1);
    uint32_t count = 0;
    for (; text[count]; count++) {
        uint32_t tokens[PAGE_TOKENS];
        tokens_of(text[count], tokens);
        parent = ret[count] = prefix_key_next(&parent, tokens, NULL, 0);
    }
    return count;
}

struct seq {
    struct prefix_key keys[CHAIN_MAX];
    uint32_t count, table[CHAIN_MAX], pages, node;
};

static uint32_t take_state(struct fixture *f)
{
    uint32_t state;
    if (block_pool_take(f->states, &state) == 0)
        return state;
    return prefix_index_evict_snapshot(f->index) && block_pool_take(f->states, &state) == 0 ? state : NONE;
}

/* Computes the text as a sequence does, with a snapshot at its end. False: all pages are in use. */
static bool begin(struct fixture *f, struct seq *s, uint64_t tenant, const char *text)
{
    struct prefix_hit hit;
    *s = (struct seq){.node = NONE};
    s->count = keys_of(tenant, text, s->keys);
    prefix_index_find(f->index, s->keys, s->count, &hit);
    prefix_index_take(f->index, &hit, &(uint32_t *){s->table});
    if (hit.state != NONE)
        prefix_index_unpin(f->index, hit.node);
    s->pages = hit.pages;
    s->node = hit.node;
    for (; s->pages < s->count; s->pages++) {
        if (page_pool_take(f->pages, &s->table[s->pages]) < 0)
            return false;
        uint32_t tokens[PAGE_TOKENS];
        tokens_of(text[s->pages], tokens);
        s->node =
            prefix_index_add(f->index, tenant, s->node, &s->keys[s->pages], tokens, &s->table[s->pages]);
    }
    uint32_t state = f->states ? take_state(f) : NONE;
    if (state != NONE && !prefix_index_snapshot(f->index, s->node, state))
        block_pool_give(f->states, state);
    return true;
}

static void end(struct fixture *f, struct seq *s)
{
    for (uint32_t i = s->pages; i > 0; i--)
        page_pool_unref(f->pages, s->table[i - 1]);
    prefix_index_released(f->index, s->node);
}

static uint32_t found(struct fixture *f, uint64_t tenant, const char *text)
{
    struct prefix_key keys[CHAIN_MAX];
    struct prefix_hit hit;
    prefix_index_find(f->index, keys, keys_of(tenant, text, keys), &hit);
    return hit.pages;
}

static void pass(struct fixture *f, uint64_t tenant, const char *text)
{
    struct seq s;
    assert_true(begin(f, &s, tenant, text));
    end(f, &s);
}

/* Thirty other prompts, each of six pages. */
static inline void press(struct fixture *f, uint64_t tenant)
{
    for (char c = 'A'; c < 'A' + 30; c++)
        pass(f, tenant, (char[]){c, c, c, c, c, c, 0});
}

#endif
