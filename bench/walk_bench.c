/* Cost of the walk over an idle engine's pages (engine/invariants.h): a pool of 10,000 pages, all cached, in
 * prefixes of 100 pages with a snapshot each. Prints the median and the worst of 200 walks of each part, in
 * microseconds. */
#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "base/walk.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "memory/ledger.h"
#include "memory/ledger_state.h"
#include "sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES = 10000, CHAIN = 100, STATES = 200, WALKS = 200 };

struct scene {
    struct ledger *ledger;
    struct arena *arena;
    struct page_pool *pages;
    struct block_pool *states;
    struct prefix_index *index;
    struct sched *sched;
};

static void must(int r)
{
    if (r == 0)
        return;
    fprintf(stderr, "error %d\n", -r);
    exit(1);
}

static void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct scene *)arg)->index, 0, page);
}

static void open_scene(struct scene *c)
{
    must(ledger_create(ACCOUNT_NO_LIMIT, &c->ledger));
    must(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &c->arena));
    struct account *root = ledger_root(c->ledger);
    struct page_pool_opts pages = {
        .pages_max = PAGES, .page_bytes = 4096, .kv = root, .evict = on_evict, .arg = c};
    struct block_pool_opts states = {.blocks_max = STATES, .block_bytes = 4096, .account = root};
    must(page_pool_create(c->arena, &pages, &c->pages));
    must(block_pool_create(c->arena, &states, &c->states));
    struct prefix_index_opts index = {.groups = {{.pages = c->pages, .page_bytes = 4096}},
                                      .group_count = 1,
                                      .states = c->states,
                                      .state_bytes = 4096,
                                      .bytes_max = UINT64_MAX};
    must(prefix_index_create(c->arena, &index, &c->index));
    struct sched_opts sched = {.seqs_max = 16,
                               .queue_max = 64,
                               .tokens_max = 256,
                               .logits_max = 16,
                               .logits_chunk_max = 1,
                               .groups = {index.groups[0]},
                               .group_count = 1,
                               .states = c->states,
                               .prefix = c->index};
    must(sched_create(c->arena, &sched, &c->sched));
}

/* A sequence has computed a chain of pages and ends: they stay, for the snapshot at their end. */
static void add_chain(struct scene *c, uint32_t number)
{
    uint32_t pages[CHAIN], node = NONE, state;
    struct prefix_key key = prefix_key_root(&(struct slice){(char *)&number, sizeof(number)}, 1);
    uint32_t tokens[PAGE_TOKENS] = {number};
    for (uint32_t i = 0; i < CHAIN; i++) {
        key = prefix_key_next(&key, tokens, NULL, 0);
        must(page_pool_take(c->pages, &pages[i]));
        node = prefix_index_add(c->index, 0, node, &key, NULL, &pages[i]);
    }
    must(block_pool_take(c->states, &state));
    ASSERT(prefix_index_snapshot(c->index, node, state));
    for (uint32_t i = CHAIN; i-- > 0;)
        page_pool_unref(c->pages, pages[i]);
    prefix_index_released(c->index, node);
}

typedef bool part_fn(const struct scene *c, struct walk *w);

static bool walk_pages(const struct scene *c, struct walk *w)
{
    return page_pool_walk(c->pages, w);
}

static bool walk_index(const struct scene *c, struct walk *w)
{
    return prefix_index_walk(c->index, w);
}

static bool walk_sched(const struct scene *c, struct walk *w)
{
    return sched_walk(c->sched, w);
}

static bool walk_ledger(const struct scene *c, struct walk *w)
{
    ledger_check(c->ledger);
    return walk_on(w);
}

static bool walk_all(const struct scene *c, struct walk *w)
{
    return walk_pages(c, w) && block_pool_walk(c->states, w) && walk_index(c, w) && walk_sched(c, w) &&
           walk_ledger(c, w);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct scene *c, const char *name, part_fn *part)
{
    double us[WALKS];
    struct walk w;
    for (uint32_t i = 0; i < WALKS; i++) {
        uint64_t began_ns = clock_now_ns();
        w = (struct walk){0};
        ASSERT(part(c, &w));
        us[i] = (double)(clock_now_ns() - began_ns) / 1000;
    }
    qsort(us, WALKS, sizeof(us[0]), compare);
    printf("%-8s median %7.1f us  worst %7.1f us  things %llu\n", name, us[WALKS / 2], us[WALKS - 1],
           (unsigned long long)w.looked);
}

int main(void)
{
    struct scene c = {0};
    open_scene(&c);
    for (uint32_t i = 0; i < PAGES / CHAIN; i++)
        add_chain(&c, i);
    ASSERT(page_pool_cached(c.pages) == PAGES);
    measure(&c, "pages", walk_pages);
    measure(&c, "index", walk_index);
    measure(&c, "sched", walk_sched);
    measure(&c, "ledger", walk_ledger);
    measure(&c, "all", walk_all);
    prefix_index_done(c.index);
    page_pool_done(c.pages);
    block_pool_done(c.states);
    arena_free(c.arena);
    ledger_free(c.ledger);
    return 0;
}
