/* test_sched_prefix.h - a scheduler over a page pool, perhaps one of a window, a pool of recurrent states and
 * a prefix index, and sequences whose prompts are texts. TEST_SEQS and TEST_PAGES may be defined before it is
 * included. */
#ifndef PLATEAU_TESTS_TEST_SCHED_PREFIX_H
#define PLATEAU_TESTS_TEST_SCHED_PREFIX_H

#include "base/arena.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "sched/sched.h"
#include "test_sched.h"

#include <string.h>

struct page_pool_opts;

#ifndef TEST_SEQS
#define TEST_SEQS 6
#endif
#ifndef TEST_PAGES
#define TEST_PAGES 24
#endif

enum { SEQS = TEST_SEQS, PAGES = TEST_PAGES, PAGE = PAGE_TOKENS, BLOCK = 4096, TABLE = 32 };

struct fixture {
    struct arena *arena;
    struct account *kv, *state;
    struct page_pool *pages, *window_pages; /* NULL: no window */
    uint32_t uses;
    struct block_pool *states;
    struct prefix_index *index;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][TABLE], window_tables[SEQS][TABLE], cuts[SEQS][2];
    struct prefix_key keys[SEQS][TABLE];
};

static inline void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct fixture *)arg)->index, 0, page);
}

static inline void on_evict_window(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct fixture *)arg)->index, 1, page);
}

static inline void open_window(struct fixture *f, struct page_pool_opts pages)
{
    pages.evict = on_evict_window;
    assert_int_equal(page_pool_create(f->arena, &pages, &f->window_pages), 0);
}

/* Opens pools and index; states_max 0: no layer is recurrent; window 0: one group. Returns what open_sched()
 * takes. */
static inline struct sched_opts open_pools_with(struct fixture *f, uint32_t states_max, uint32_t window)
{
    *f = (struct fixture){.kv = test_account(ACCOUNT_NO_LIMIT), .state = test_account(ACCOUNT_NO_LIMIT)};
    f->ev = (struct sched_events){.now_ns = 1, .tokens_shared = 64, .tokens_alone = 64};
    struct page_pool_opts pages = {
        .pages_max = PAGES, .page_bytes = BLOCK, .kv = f->kv, .evict = on_evict, .arg = f, .uses = &f->uses};
    struct block_pool_opts states = {.blocks_max = states_max, .block_bytes = BLOCK, .account = f->state};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)1 << 20}, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &pages, &f->pages), 0);
    if (window > 0)
        open_window(f, pages);
    if (states_max > 0)
        assert_int_equal(block_pool_create(f->arena, &states, &f->states), 0);
    struct prefix_index_opts index = {.groups = {{f->pages, BLOCK, 0}, {f->window_pages, BLOCK, window}},
                                      .group_count = window > 0 ? 2 : 1,
                                      .states = f->states,
                                      .state_bytes = BLOCK,
                                      .bytes_max = UINT64_MAX};
    assert_int_equal(prefix_index_create(f->arena, &index, &f->index), 0);
    return (struct sched_opts){.seqs_max = SEQS,
                               .queue_max = 8,
                               .tokens_max = 256,
                               .logits_max = 20,
                               .logits_chunk_max = 40,
                               .groups = {index.groups[0], index.groups[1]},
                               .group_count = index.group_count,
                               .states = f->states,
                               .prefix = f->index};
}

static inline struct sched_opts open_pools(struct fixture *f, uint32_t states_max)
{
    return open_pools_with(f, states_max, 0);
}

static inline void open_sched(struct fixture *f, const struct sched_opts *opts)
{
    assert_int_equal(sched_create(f->arena, opts, &f->sched), 0);
}

static inline void close_sched(struct fixture *f)
{
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    prefix_index_check(f->index);
    prefix_index_done(f->index);
    assert_int_equal(page_pool_available(f->pages), PAGES);
    if (f->window_pages)
        assert_int_equal(page_pool_available(f->window_pages), PAGES);
    page_pool_done(f->pages);
    page_pool_done(f->window_pages);
    block_pool_done(f->states);
    arena_free(f->arena);
}

/* A text is a letter per page; the prompt has `more` tokens beyond its pages. cut: 0 = none. */
static inline struct sched_seq *add(struct fixture *f, uint32_t i, const char *text, uint32_t more,
                                    uint32_t cut)
{
    uint32_t count = (uint32_t)strlen(text);
    memset(f->keys[i], 0, sizeof(f->keys[i]));
    for (uint32_t k = 0; k < count; k++)
        memcpy(f->keys[i][k].bytes, text, k + 1);
    f->cuts[i][0] = cut;
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i], f->window_tables[i]},
                                    .tokens = count * PAGE + more,
                                    .tokens_limit = count * PAGE + 90,
                                    .arrival_ns = f->ev.now_ns,
                                    .keys = f->keys[i],
                                    .key_count = count,
                                    .cuts = f->cuts[i],
                                    .cut_count = cut > 0};
    assert_int_equal(sched_add(f->sched, &f->seqs[i]), 0);
    return &f->seqs[i];
}

static inline void step(struct fixture *f)
{
    step_of(f->sched, &f->ev, &f->plan, f->index);
}

#endif
