/* page_pool.c - references and an order of last use over a block pool.
 *
 * Cached pages form a list through indices, 8 bytes a page, least recently used first. A page joins it with
 * the release of its last reference, so the order of joining is the order of last use. A page's number in
 * that order compares it with pages of other pools. */
#include "cache/page_pool.h"

#include "cache/page_state.h"

#include "base/check.h"

#include <errno.h>

#define NS_PER_MS 1000000ull

static bool is_movable(void *arg, uint32_t page)
{
    const struct page_pool *p = arg;
    return p->pages[page].refs == 0 && p->pages[page].kept;
}

/* The page keeps its position in the order of last use. */
static void move(void *arg, uint32_t from, uint32_t to)
{
    struct page_pool *p = arg;
    p->opts.move(p->opts.arg, from, to);
    ASSERT(p->pages[to].refs == 0 && !p->pages[to].kept);
    ASSERT(p->pages[from].refs == 0 && p->pages[from].kept);
    struct page *at = &p->pages[to];
    *at = p->pages[from];
    p->pages[from] = (struct page){0};
    if (at->prev == NONE)
        p->oldest = to;
    else
        p->pages[at->prev].next = to;
    if (at->next == NONE)
        p->newest = to;
    else
        p->pages[at->next].prev = to;
}

static struct block_pool_opts block_opts(const struct page_pool_opts *opts, struct page_pool *p)
{
    return (struct block_pool_opts){.blocks_max = opts->pages_max,
                                    .block_bytes = opts->page_bytes,
                                    .account = opts->kv,
                                    .is_movable = is_movable,
                                    .move = opts->move ? move : NULL,
                                    .arg = p};
}

size_t page_pool_arena_bytes(const struct page_pool_opts *opts)
{
    struct block_pool_opts b = block_opts(opts, NULL);
    return sizeof(struct page_pool) + opts->pages_max * sizeof(struct page) + block_pool_arena_bytes(&b) +
           256;
}

int page_pool_create(struct arena *a, const struct page_pool_opts *opts, struct page_pool **ret)
{
    struct page_pool *p = ARENA_NEW(a, struct page_pool);
    if (!p)
        return -ENOMEM;
    struct block_pool_opts b = block_opts(opts, p);
    p->pages_max = opts->pages_max;
    p->opts = *opts;
    if (!opts->uses)
        p->opts.uses = &p->uses;
    p->oldest = p->newest = NONE;
    p->pages = ARENA_ARRAY(a, struct page, opts->pages_max);
    if (!p->pages)
        return -ENOMEM;
    int r = block_pool_create(a, &b, &p->blocks);
    if (r == 0)
        *ret = p;
    return r;
}

struct units *page_pool_done(struct page_pool *p)
{
    return p ? block_pool_done(p->blocks) : NULL;
}

/* ---- the cached list ---- */

static void cached_add(struct page_pool *p, uint32_t page)
{
    ASSERT(p->pages[page].refs == 0 && p->pages[page].kept);
    ASSERT((p->oldest == NONE) == (p->newest == NONE));
    p->pages[page].prev = p->newest;
    p->pages[page].next = NONE;
    if (p->newest == NONE)
        p->oldest = page;
    else
        p->pages[p->newest].next = page;
    p->newest = page;
    p->pages[page].used = (*p->opts.uses)++;
    p->pages[page].used_ms = (uint32_t)(p->now_ns / NS_PER_MS);
    p->cached++;
}

static void cached_remove(struct page_pool *p, uint32_t page)
{
    struct page *at = &p->pages[page];
    ASSERT(p->cached > 0);
    ASSERT(at->prev == NONE ? p->oldest == page : p->pages[at->prev].next == page);
    ASSERT(at->next == NONE ? p->newest == page : p->pages[at->next].prev == page);
    if (at->prev == NONE)
        p->oldest = at->next;
    else
        p->pages[at->prev].next = at->next;
    if (at->next == NONE)
        p->newest = at->prev;
    else
        p->pages[at->next].prev = at->prev;
    p->cached--;
}

/* ---- interface ---- */

static void tell_evicted(struct page_pool *p, uint32_t page)
{
    if (p->opts.evict)
        p->opts.evict(p->opts.arg, page);
}

static int take_free(struct page_pool *p, bool cached, uint32_t *ret)
{
    int r = block_pool_take(p->blocks, ret);
    while (r == -ENOMEM && p->opts.reclaim && p->opts.reclaim(p->opts.arg, cached))
        r = block_pool_take(p->blocks, ret);
    return r;
}

void page_pool_prepare(struct page_pool *p, uint32_t pages)
{
    if (p->opts.crew)
        block_pool_prepare(p->blocks, pages, p->opts.crew);
}

int page_pool_take(struct page_pool *p, uint32_t *ret)
{
    uint32_t page;
    int r = take_free(p, false, &page);
    if (r < 0 && p->cached > 0) {
        page = p->oldest;
        tell_evicted(p, page);
        cached_remove(p, page);
        p->pages[page].kept = false;
        r = 0;
    }
    if (r == -ENOMEM)
        r = take_free(p, true, &page);
    if (r < 0)
        return r;
    ASSERT(p->pages[page].refs == 0 && !p->pages[page].kept);
    ASSERT(block_pool_is_taken(p->blocks, page));
    p->pages[page].refs = 1;
    p->referenced++;
    *ret = page;
    return 0;
}

bool page_pool_evict(struct page_pool *p)
{
    uint32_t page = p->oldest;
    if (page == NONE)
        return false;
    ASSERT(p->pages[page].refs == 0 && p->cached > 0);
    tell_evicted(p, page);
    page_pool_drop(p, page);
    return true;
}

void page_pool_ref(struct page_pool *p, uint32_t page)
{
    ASSERT(block_pool_is_taken(p->blocks, page));
    ASSERT(p->pages[page].refs > 0 || p->pages[page].kept);
    ASSERT(p->pages[page].refs < UINT32_MAX);
    if (p->pages[page].refs++ == 0) {
        cached_remove(p, page);
        p->referenced++;
    }
}

void page_pool_unref(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].refs > 0);
    if (--p->pages[page].refs > 0)
        return;
    ASSERT(p->referenced > 0);
    p->referenced--;
    if (p->pages[page].kept)
        cached_add(p, page);
    else
        block_pool_give(p->blocks, page);
}

void page_pool_keep(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].refs > 0);
    p->pages[page].kept = true;
}

void page_pool_drop(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].kept);
    p->pages[page].kept = false;
    if (p->pages[page].refs > 0)
        return;
    cached_remove(p, page);
    block_pool_give(p->blocks, page);
}

uint32_t page_pool_refs(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    return p->pages[page].refs;
}

uint32_t page_pool_cached(const struct page_pool *p)
{
    return p->cached;
}

uint32_t page_pool_age(const struct page_pool *p)
{
    ASSERT(p->oldest == NONE || p->cached > 0);
    return p->oldest == NONE ? 0 : *p->opts.uses - p->pages[p->oldest].used;
}

/* The age is right for 49 days. After that it appears young, and still is the oldest of its pool. */
uint64_t page_pool_oldest_ns(const struct page_pool *p)
{
    if (p->oldest == NONE)
        return 0;
    uint64_t now_ms = p->now_ns / NS_PER_MS;
    uint32_t age_ms = (uint32_t)now_ms - p->pages[p->oldest].used_ms;
    return MAX_OF((now_ms - MIN_OF(age_ms, now_ms)) * NS_PER_MS, 1);
}

uint32_t page_pool_available(const struct page_pool *p)
{
    return p->pages_max - p->referenced;
}

uint32_t page_pool_ready(const struct page_pool *p)
{
    return block_pool_ready_count(p->blocks) + p->cached;
}

uint32_t page_pool_pages_max(const struct page_pool *p)
{
    return p->pages_max;
}

uint32_t page_pool_end(const struct page_pool *p)
{
    ASSERT(p->cached <= p->pages_max && p->referenced <= p->pages_max - p->cached);
    return block_pool_end(p->blocks);
}

/* ---- blocks ---- */

void page_pool_clock(struct page_pool *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
    block_pool_clock(p->blocks, now_ns);
}

struct block_pool *page_pool_blocks(const struct page_pool *p)
{
    return p->blocks;
}

void page_pool_numbers(const struct page_pool *p, struct page_pool_numbers *ret)
{
    block_pool_numbers(p->blocks, &ret->blocks);
    ret->referenced = p->referenced;
    ret->kept = p->cached;
    ASSERT(ret->referenced + ret->kept == ret->blocks.taken);
}

static void check_page(const struct page_pool *p, uint32_t i)
{
    const struct page *at = &p->pages[i];
    bool is_taken = block_pool_is_taken(p->blocks, i);
    ASSERT_OF(is_taken == (at->refs > 0 || at->kept), "page %u: taken %d, %u references, kept %d", i,
              is_taken, at->refs, at->kept);
    if (at->refs > 0 || !at->kept)
        return;
    ASSERT_OF(at->prev == NONE ? p->oldest == i : at->prev < p->pages_max && p->pages[at->prev].next == i,
              "page %u: what was used before it is not linked with it", i);
    ASSERT_OF(at->next == NONE ? p->newest == i : at->next < p->pages_max && p->pages[at->next].prev == i,
              "page %u: what was used after it is not linked with it", i);
}

/* Walks the cached pages in order of last use; `cached`: their count. */
static bool walk_cached(const struct page_pool *p, uint32_t cached, struct walk *w)
{
    uint32_t prev = NONE, count = 0;
    for (uint32_t i = p->oldest; i != NONE && walk_on(w); prev = i, i = p->pages[i].next, count++) {
        const struct page *at = &p->pages[i];
        ASSERT_OF(at->refs == 0 && at->kept, "page %u: listed as cached, with %u references, kept %d", i,
                  at->refs, at->kept);
        ASSERT_OF(count < cached && at->prev == prev, "page %u: listed twice", i);
        ASSERT_OF(prev == NONE || at->used - p->pages[prev].used - 1 < UINT32_MAX / 2,
                  "page %u: listed after page %u, which was used later", i, prev);
    }
    ASSERT(w->called_off || (count == cached && p->newest == prev));
    return !w->called_off;
}

bool page_pool_walk(const struct page_pool *p, struct walk *w)
{
    uint32_t referenced = 0, cached = 0, end = walk_end(w, page_pool_end(p), p->pages_max);
    if (!block_pool_walk(p->blocks, w))
        return false;
    for (uint32_t i = 0; i < end && walk_on(w); i++) {
        check_page(p, i);
        referenced += p->pages[i].refs > 0;
        cached += p->pages[i].refs == 0 && p->pages[i].kept;
    }
    if (w->called_off || !walk_cached(p, cached, w))
        return false;
    ASSERT_OF(referenced == p->referenced, "%u pages are referenced, %u counted", referenced, p->referenced);
    ASSERT_OF(cached == p->cached, "%u pages are cached, %u counted", cached, p->cached);
    return true;
}

void page_pool_check(const struct page_pool *p)
{
    page_pool_walk(p, &(struct walk){0});
}
