/* page_pool.c - references and an order of last use over a block pool.
 *
 * Cached pages of a share form a list through indices, 8 bytes a page, least recently used first. A page
 * joins the list with the release of its last reference, so the order of joining is the order of last use. A
 * page's number in that order compares it with pages of other pools. */
#include "cache/page_pool.h"

#include "cache/page_state.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>
#include <string.h>

#define NS_PER_MS 1000000ull

/* The list that the cached page is in. */
static struct share_list *list_of(struct page_pool *p, const struct page *at)
{
    ASSERT(at->kept);
    return at->wishes > 0 ? &p->wished[at->share] : &p->shares[at->share];
}

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
    struct share_list *c = list_of(p, at);
    if (at->prev == NONE)
        c->oldest = to;
    else
        p->pages[at->prev].next = to;
    if (at->next == NONE)
        c->newest = to;
    else
        p->pages[at->next].prev = to;
}

static struct block_pool_opts block_opts(const struct page_pool_opts *opts, struct page_pool *p)
{
    struct block_pool_opts ret = {.blocks_max = opts->pages_max,
                                  .block_bytes = opts->page_bytes,
                                  .account = opts->kv,
                                  .is_movable = is_movable,
                                  .move = opts->move ? move : NULL,
                                  .arg = p};
    memcpy(ret.beside, opts->beside, sizeof(ret.beside));
    return ret;
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
    share_list_init(p->shares, CACHE_SHARES);
    share_list_init(p->wished, CACHE_SHARES);
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

/* ---- the cached lists ---- */

static void cached_add(struct page_pool *p, uint32_t page)
{
    struct share_list *c = list_of(p, &p->pages[page]);
    ASSERT((c->oldest == NONE) == (c->newest == NONE));
    p->pages[page].prev = c->newest;
    p->pages[page].next = NONE;
    if (c->newest == NONE)
        c->oldest = page;
    else
        p->pages[c->newest].next = page;
    c->newest = page;
    c->amount++;
    p->pages[page].used = (*p->opts.uses)++;
    p->pages[page].used_ms = (uint32_t)(p->now_ns / NS_PER_MS);
    p->cached++;
}

static void cached_remove(struct page_pool *p, uint32_t page)
{
    struct page *at = &p->pages[page];
    struct share_list *c = list_of(p, at);
    ASSERT(p->cached > 0 && c->amount > 0);
    ASSERT(at->prev == NONE ? c->oldest == page : p->pages[at->prev].next == page);
    ASSERT(at->next == NONE ? c->newest == page : p->pages[at->next].prev == page);
    if (at->prev == NONE)
        c->oldest = at->next;
    else
        p->pages[at->prev].next = at->next;
    if (at->next == NONE)
        c->newest = at->prev;
    else
        p->pages[at->next].prev = at->prev;
    c->amount--;
    p->cached--;
}

static uint32_t age_of(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].kept);
    return *p->opts.uses - p->pages[page].used;
}

static uint32_t unused_ms(const struct page_pool *p, uint32_t page)
{
    ASSERT(p->pages[page].refs == 0 && p->pages[page].kept);
    return (uint32_t)(p->now_ns / NS_PER_MS) - p->pages[page].used_ms;
}

static void share_age(const void *cache, uint32_t page, struct share_claim *ret)
{
    const struct page_pool *p = cache;
    ret->age = age_of(p, page);
    ret->stale = unused_ms(p, page) >= PAGE_STALE_MS;
}

/* The page to evict. NONE: no page is cached. */
static uint32_t victim(const struct page_pool *p)
{
    uint32_t page = p->cached > 0 ? share_list_victim(p->shares, CACHE_SHARES, share_age, p) : NONE;
    if (page == NONE && p->cached > 0)
        page = share_list_victim(p->wished, CACHE_SHARES, share_age, p);
    ASSERT((page == NONE) == (p->cached == 0));
    return page;
}

/* The page holds no prefix any longer, so nothing is wished of it. */
static void forget(struct page_pool *p, uint32_t page)
{
    struct page *at = &p->pages[page];
    ASSERT(at->kept && at->leases == 0 && at->holds == 0);
    ASSERT(p->wished_count >= (at->wishes > 0));
    p->wished_count -= at->wishes > 0;
    at->wishes = 0;
    at->kept = false;
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
        page = victim(p);
        tell_evicted(p, page);
        cached_remove(p, page);
        forget(p, page);
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
    uint32_t page = victim(p);
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
    if (p->pages[page].refs == 0) {
        cached_remove(p, page);
        p->referenced++;
    }
    p->pages[page].refs++;
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

void page_pool_keep(struct page_pool *p, uint32_t page, uint32_t share)
{
    ASSERT(page < p->pages_max && p->pages[page].refs > 0 && share < CACHE_SHARES);
    p->pages[page].kept = true;
    p->pages[page].share = (uint8_t)share;
}

void page_pool_drop(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].kept);
    bool cached = p->pages[page].refs == 0;
    if (cached)
        cached_remove(p, page);
    forget(p, page);
    if (cached)
        block_pool_give(p->blocks, page);
}

void page_pool_lease(struct page_pool *p, uint32_t page)
{
    struct page *at = &p->pages[page];
    page_pool_ref(p, page);
    ASSERT(at->kept && at->leases < UINT16_MAX);
    p->lease_refs++;
    if (at->leases++ > 0)
        return;
    p->leased++;
    p->leased_of[at->share]++;
}

void page_pool_unlease(struct page_pool *p, uint32_t page)
{
    struct page *at = &p->pages[page];
    ASSERT(at->leases > 0 && p->lease_refs > 0);
    p->lease_refs--;
    if (--at->leases == 0) {
        ASSERT(p->leased > 0 && p->leased_of[at->share] > 0);
        p->leased--;
        p->leased_of[at->share]--;
    }
    page_pool_unref(p, page);
}

void page_pool_hold(struct page_pool *p, uint32_t page)
{
    page_pool_ref(p, page);
    ASSERT(p->pages[page].kept && p->pages[page].holds < UINT16_MAX);
    p->pages[page].holds++;
    p->hold_refs++;
}

void page_pool_unhold(struct page_pool *p, uint32_t page)
{
    ASSERT(p->pages[page].holds > 0 && p->hold_refs > 0);
    p->pages[page].holds--;
    p->hold_refs--;
    page_pool_unref(p, page);
}

/* A cached page changes its list. */
static void set_wishes(struct page_pool *p, uint32_t page, uint16_t wishes)
{
    struct page *at = &p->pages[page];
    bool moves = at->refs == 0 && (at->wishes > 0) != (wishes > 0);
    ASSERT(at->kept && p->wished_count <= p->pages_max);
    if (moves)
        cached_remove(p, page);
    p->wished_count += (wishes > 0) - (at->wishes > 0);
    at->wishes = wishes;
    if (moves)
        cached_add(p, page);
}

void page_pool_wish(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max && p->pages[page].kept);
    ASSERT(p->pages[page].wishes < UINT16_MAX);
    set_wishes(p, page, (uint16_t)(p->pages[page].wishes + 1));
}

void page_pool_unwish(struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    if (p->pages[page].wishes > 0)
        set_wishes(p, page, (uint16_t)(p->pages[page].wishes - 1));
}

uint32_t page_pool_refs(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    return p->pages[page].refs;
}

uint32_t page_pool_leases(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    return p->pages[page].leases;
}

uint32_t page_pool_holds(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    return p->pages[page].holds;
}

uint32_t page_pool_wishes(const struct page_pool *p, uint32_t page)
{
    ASSERT(page < p->pages_max);
    return p->pages[page].wishes;
}

uint32_t page_pool_leased_of(const struct page_pool *p, uint32_t share)
{
    ASSERT(share < CACHE_SHARES);
    return p->leased_of[share];
}

uint32_t page_pool_cached(const struct page_pool *p)
{
    return p->cached;
}

uint32_t page_pool_age(const struct page_pool *p)
{
    uint32_t page = victim(p);
    if (page == NONE)
        return 0;
    return p->pages[page].wishes > 0 ? 1 : age_of(p, page);
}

/* The age is right for 49 days. After that it appears young, and still is evicted first. */
uint64_t page_pool_oldest_ns(const struct page_pool *p)
{
    uint32_t page = victim(p);
    if (page == NONE)
        return 0;
    uint64_t now_ms = p->now_ns / NS_PER_MS;
    if (p->pages[page].wishes > 0)
        return MAX_OF(p->now_ns, 1);
    return MAX_OF((now_ms - MIN_OF(unused_ms(p, page), now_ms)) * NS_PER_MS, 1);
}

bool page_pool_stale(const struct page_pool *p, uint32_t page)
{
    const struct page *at = &p->pages[page];
    ASSERT(page < p->pages_max);
    return at->refs == 0 && at->kept && unused_ms(p, page) >= PAGE_STALE_MS;
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
    ret->leased = p->leased;
    ret->wished = p->wished_count;
    ret->lease_refs = p->lease_refs;
    ret->hold_refs = p->hold_refs;
    ASSERT(ret->referenced + ret->kept == ret->blocks.taken);
}

static void check_page(const struct page_pool *p, uint32_t i)
{
    const struct page *at = &p->pages[i];
    bool is_taken = block_pool_is_taken(p->blocks, i);
    ASSERT_OF(is_taken == (at->refs > 0 || at->kept), "page %u: taken %d, %u references, kept %d", i,
              is_taken, at->refs, at->kept);
    ASSERT_OF(at->leases + at->holds <= at->refs &&
                  (at->kept || (at->leases == 0 && at->holds == 0 && at->wishes == 0)),
              "page %u: %u references, %u of leases, %u of agents, %u wishes, kept %d", i, at->refs,
              at->leases, at->holds, at->wishes, at->kept);
    if (at->refs > 0 || !at->kept)
        return;
    const struct share_list *c = at->wishes > 0 ? &p->wished[at->share] : &p->shares[at->share];
    ASSERT_OF(at->prev == NONE ? c->oldest == i : at->prev < p->pages_max && p->pages[at->prev].next == i,
              "page %u: what was used before it is not linked with it", i);
    ASSERT_OF(at->next == NONE ? c->newest == i : at->next < p->pages_max && p->pages[at->next].prev == i,
              "page %u: what was used after it is not linked with it", i);
}

/* Walks the share's cached pages in order of last use. */
static bool walk_share(const struct page_pool *p, const struct share_list *c, bool wished, struct walk *w)
{
    uint32_t prev = NONE, count = 0;
    for (uint32_t i = c->oldest; i != NONE && walk_on(w); prev = i, i = p->pages[i].next, count++) {
        const struct page *at = &p->pages[i];
        ASSERT_OF(at->refs == 0 && at->kept && (at->wishes > 0) == wished,
                  "page %u: listed as cached, with %u references, %u wishes, kept %d", i, at->refs,
                  at->wishes, at->kept);
        ASSERT_OF(count < c->amount && at->prev == prev, "page %u: listed twice", i);
        ASSERT_OF(prev == NONE || at->used - p->pages[prev].used - 1 < UINT32_MAX / 2,
                  "page %u: listed after page %u, which was used later", i, prev);
    }
    ASSERT(w->called_off || (count == c->amount && c->newest == prev));
    return !w->called_off;
}

/* `cached`: the count of all cached pages. */
static bool walk_cached(const struct page_pool *p, uint32_t cached, struct walk *w)
{
    uint32_t listed = 0;
    for (uint32_t i = 0; i < CACHE_SHARES && !w->called_off; i++) {
        listed += (uint32_t)(p->shares[i].amount + p->wished[i].amount);
        walk_share(p, &p->shares[i], false, w);
        walk_share(p, &p->wished[i], true, w);
    }
    ASSERT_OF(w->called_off || listed == cached, "%u pages are cached, shares have %u", cached, listed);
    return !w->called_off;
}

bool page_pool_walk(const struct page_pool *p, struct walk *w)
{
    uint32_t referenced = 0, cached = 0, leased = 0, wished = 0;
    uint64_t lease_refs = 0, hold_refs = 0;
    uint32_t end = walk_end(w, page_pool_end(p), p->pages_max);
    if (!block_pool_walk(p->blocks, w))
        return false;
    for (uint32_t i = 0; i < end && walk_on(w); i++) {
        check_page(p, i);
        referenced += p->pages[i].refs > 0;
        cached += p->pages[i].refs == 0 && p->pages[i].kept;
        leased += p->pages[i].leases > 0;
        wished += p->pages[i].wishes > 0;
        lease_refs += p->pages[i].leases;
        hold_refs += p->pages[i].holds;
    }
    if (w->called_off || !walk_cached(p, cached, w))
        return false;
    ASSERT_OF(referenced == p->referenced, "%u pages are referenced, %u counted", referenced, p->referenced);
    ASSERT_OF(cached == p->cached, "%u pages are cached, %u counted", cached, p->cached);
    ASSERT_OF(leased == p->leased && lease_refs == p->lease_refs, "%u pages are leased, %u counted", leased,
              p->leased);
    ASSERT(hold_refs == p->hold_refs);
    ASSERT_OF(wished == p->wished_count, "%u pages have a wish, %u counted", wished, p->wished_count);
    return true;
}

void page_pool_check(const struct page_pool *p)
{
    page_pool_walk(p, &(struct walk){0});
}
