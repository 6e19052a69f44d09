/* page_pool.h - the pool of KV pages of one attention group.
 *
 * Owns every page from load to unload; only this module frees one. A page is free, referenced (refs > 0) or
 * cached (refs == 0, with a prefix that a later request may reuse). Only cached pages are ever evicted or
 * moved. share_list.h says in which order; a page that was unused for half an hour is stale. Cached pages
 * with a wish (cache/leases.h) go after all others.
 *
 * A page's units are committed before it is handed out, so a step neither faults nor runs out of memory.
 * Bound of the tables: 28 bytes a page, 36 a share, and block_pool's. Called by the engine thread only, so
 * there are no locks inside. */
#ifndef PLATEAU_CACHE_PAGE_POOL_H
#define PLATEAU_CACHE_PAGE_POOL_H

#include "cache/block_pool.h"

#define PAGE_STALE_MS (30 * 60 * 1000) /* a page that is cached for longer is stale */

struct page_pool;

struct page_pool_opts {
    uint32_t pages_max; /* how many may exist, ever */
    size_t page_bytes;  /* 32 tokens of K and V of all layers of the group; of several shards, of the first */
    struct account *kv; /* reserved from before a unit is committed */
    struct block_shard beside[SHARDS_MAX - 1]; /* block_pool_opts.beside */
    /* Called before a cached page is reused for another purpose; may be NULL if no page is ever kept. */
    void (*evict)(void *arg, uint32_t page);
    /* Moves a cached page: its bytes and all references by its index must have changed on return. NULL: pages
     * do not move. */
    void (*move)(void *arg, uint32_t from, uint32_t to);
    /* See block_pool_opts.reclaim. */
    bool (*reclaim)(void *arg, bool cached);
    void *arg; /* for the functions above */
    /* For page_pool_prepare(); NULL: it does nothing. */
    const struct units_crew *crew;
    /* The counter of pages that become cached. Pools that share it have one common order of last use. NULL:
     * the pool's own. */
    uint32_t *uses;
};

/* Bytes of arena that page_pool_create takes at most. */
size_t page_pool_arena_bytes(const struct page_pool_opts *opts);
/* Builds the pool's tables in `a`. Nothing is committed yet.
 * 0, -EINVAL (an option is zero), -ENOMEM (the arena or the address space is too small). */
int page_pool_create(struct arena *a, const struct page_pool_opts *opts, struct page_pool **ret);
/* As `block_pool_done()`, but of its pages. */
struct units *page_pool_done(struct page_pool *p);

/* References one page: the lowest free one, else the cached one that is to be evicted. When the account
 * refuses, it tries free memory of other pools, then a cached page of its own, then cached entries of other
 * pools. 0, -ENOSPC (all are referenced), or -ENOMEM (account or system refused, and nothing could be
 * reclaimed; nothing has changed). It never waits: the scheduler decides which sequence to preempt. */
int page_pool_take(struct page_pool *p, uint32_t *ret);
/* `pages` more pages will be taken soon: commits their units at once, until account or system refuses,
 * without reclaiming from other pools. */
void page_pool_prepare(struct page_pool *p, uint32_t pages);
/* Adds a reference to a page that is referenced or cached. */
void page_pool_ref(struct page_pool *p, uint32_t page);
/* Releases a reference. The last release frees the page, or caches it if it is kept. */
void page_pool_unref(struct page_pool *p, uint32_t page);
/* The page has a prefix of this share: its last release will cache it. The page is referenced. */
void page_pool_keep(struct page_pool *p, uint32_t page, uint32_t share);
/* As `page_pool_ref()` and `page_pool_unref()`, but for a lease: the page is kept, and counts as leased. */
void page_pool_lease(struct page_pool *p, uint32_t page);
void page_pool_unlease(struct page_pool *p, uint32_t page);
/* As `page_pool_lease()` and `page_pool_unlease()`, but for an agent's place (cache/agents.h): the page does
 * not count as leased. */
void page_pool_hold(struct page_pool *p, uint32_t page);
void page_pool_unhold(struct page_pool *p, uint32_t page);
/* Adds a wish to a kept page: while it has one, other cached pages are evicted first. At most UINT16_MAX. */
void page_pool_wish(struct page_pool *p, uint32_t page);
/* Takes one back, if the page has any: a page that was dropped has lost them. */
void page_pool_unwish(struct page_pool *p, uint32_t page);
/* Frees the cached page that is to be evicted, after calling `evict`. False: no page is cached. */
bool page_pool_evict(struct page_pool *p);
/* The prefix is no longer useful: frees the page now, or with its last reference. */
void page_pool_drop(struct page_pool *p, uint32_t page);

uint32_t page_pool_refs(const struct page_pool *p, uint32_t page);
uint32_t page_pool_leases(const struct page_pool *p, uint32_t page);
uint32_t page_pool_holds(const struct page_pool *p, uint32_t page);
uint32_t page_pool_wishes(const struct page_pool *p, uint32_t page);
/* Kept pages without a reference. */
uint32_t page_pool_cached(const struct page_pool *p);
/* Age of the cached page that is to be evicted, in `uses`; with a wish 1; 0: no page is cached. */
uint32_t page_pool_age(const struct page_pool *p);
/* When it became cached, by the pool's clock, to a millisecond; with a wish the time now; 0: no page is
 * cached. */
uint64_t page_pool_oldest_ns(const struct page_pool *p);
/* True for a page that has been cached for PAGE_STALE_MS. */
bool page_pool_stale(const struct page_pool *p, uint32_t page);
/* How many pages page_pool_take could hand out by the pool's size: free and cached ones. */
uint32_t page_pool_available(const struct page_pool *p);
/* Returns how many available pages need no commit: all that can be taken while the account refuses. */
uint32_t page_pool_ready(const struct page_pool *p);
uint32_t page_pool_pages_max(const struct page_pool *p);
/* No page from this index on is referenced or cached. */
uint32_t page_pool_end(const struct page_pool *p);
/* See block_pool_clock(). */
void page_pool_clock(struct page_pool *p, uint64_t now_ns);
/* The pages as blocks, for trimming, compaction and copies: block i is page i, taken while it is referenced
 * or cached. Cached pages move. Only this pool takes and gives them. */
struct block_pool *page_pool_blocks(const struct page_pool *p);

struct page_pool_numbers {
    struct pool_numbers blocks; /* taken: referenced or cached */
    uint32_t referenced, kept;  /* kept: cached now */
    uint32_t leased, wished;    /* pages with a lease; with a wish */
    uint64_t lease_refs;        /* references of all leases */
    uint64_t hold_refs;         /* and of the places of agents */
};
void page_pool_numbers(const struct page_pool *p, struct page_pool_numbers *ret);
/* Leased pages of one share. */
uint32_t page_pool_leased_of(const struct page_pool *p, uint32_t share);

/* Asserts every invariant; tests call it after every step. */
void page_pool_check(const struct page_pool *p);
/* As `page_pool_check()`, but until `w` stops it: about two checks per block. False: stopped early. */
bool page_pool_walk(const struct page_pool *p, struct walk *w);

#endif
