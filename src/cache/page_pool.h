/* page_pool.h - the pool of KV pages of one attention group.
 *
 * Owns every page from load to unload; nobody else frees one. A page is free, referenced (refs > 0) or cached
 * (refs == 0, still holding a prefix a later request may reuse). Only cached pages are ever evicted or moved.
 * A page's units are committed before it is handed out, so a step neither faults nor finds the memory
 * missing. Bound of the tables: 24 bytes a page, and block_pool's. Called by the engine thread only, so there
 * are no locks inside. */
#ifndef PLATEAU_CACHE_PAGE_POOL_H
#define PLATEAU_CACHE_PAGE_POOL_H

#include "base/page_tokens.h"
#include "cache/block_pool.h"

struct page_pool;

struct page_pool_opts {
    uint32_t pages_max; /* how many may exist, ever */
    size_t page_bytes;  /* 32 tokens of K and V of all layers of the group */
    struct account *kv; /* reserved from before a unit is committed */
    /* A cached page is about to be taken for something else; may be NULL if no page is ever kept. */
    void (*evict)(void *arg, uint32_t page);
    /* A cached page is moved: its bytes, and whoever knows it by its number, must follow before this returns.
     * NULL: none moves. */
    void (*move)(void *arg, uint32_t from, uint32_t to);
    /* Account or system said no to a unit: give others' memory back, so that the pool may ask once more.
     * `cached`: take what is cached elsewhere too, not only what is free. False: there is nothing. NULL:
     * nobody can. */
    bool (*reclaim)(void *arg, bool cached);
    void *arg; /* of these */
    /* For page_pool_prepare(); NULL: that does nothing. */
    const struct units_crew *crew;
    /* Counts what becomes cached in all pools that share it, so that they have one order of last use. NULL:
     * the pool's own. */
    uint32_t *uses;
};

/* Bytes of arena that page_pool_create takes at most. */
size_t page_pool_arena_bytes(const struct page_pool_opts *opts);
/* Builds the pool's tables in `a`. Nothing is committed yet.
 * 0, -EINVAL (an option is zero), -ENOMEM (the arena or the address space is too small). */
int page_pool_create(struct arena *a, const struct page_pool_opts *opts, struct page_pool **ret);
/* As block_pool_done. */
struct units *page_pool_done(struct page_pool *p);

/* References one page: a free one, the lowest first, else the least recently used cached one. When the
 * account says no, others' free memory comes first, then a cached page, then what others have cached. 0,
 * -ENOSPC (all are referenced), or -ENOMEM (account or system said no to a unit and nobody has any; nothing
 * has moved). It never waits: the scheduler decides whom to preempt. */
int page_pool_take(struct page_pool *p, uint32_t *ret);
/* So many pages are about to be taken: their units are committed at once, as far as account and system give
 * without asking others. */
void page_pool_prepare(struct page_pool *p, uint32_t pages);
/* One more reference to a page that is referenced or cached. */
void page_pool_ref(struct page_pool *p, uint32_t page);
/* One less. The last one frees the page, or caches it if it is kept. */
void page_pool_unref(struct page_pool *p, uint32_t page);
/* The page holds a prefix: cache it when its last reference goes. The page is referenced. */
void page_pool_keep(struct page_pool *p, uint32_t page);
/* Frees the least recently used cached page, `evict` told. False: none is cached. */
bool page_pool_evict(struct page_pool *p);
/* The prefix is of no use any more: the page is freed now, or with its last reference. */
void page_pool_drop(struct page_pool *p, uint32_t page);

uint32_t page_pool_refs(const struct page_pool *p, uint32_t page);
/* Kept pages that nobody references. */
uint32_t page_pool_cached(const struct page_pool *p);
/* How long ago, in `uses`, the least recently used of them became so; 0: there is none. */
uint32_t page_pool_age(const struct page_pool *p);
/* When that was, by the clock it was told, to a millisecond; 0: there is none. */
uint64_t page_pool_oldest_ns(const struct page_pool *p);
/* How many page_pool_take could hand out as far as the pool's size goes: free and cached ones. */
uint32_t page_pool_available(const struct page_pool *p);
/* Those of them that need no commit: what there is while the account says no. */
uint32_t page_pool_ready(const struct page_pool *p);
uint32_t page_pool_pages_max(const struct page_pool *p);
/* As block_pool_clock, block_pool_trim and block_pool_spare_bytes: a unit with a cached page is not given
 * back. */
void page_pool_clock(struct page_pool *p, uint64_t now_ns);
uint64_t page_pool_trim(struct page_pool *p, uint32_t units_max, uint64_t before_ns);
uint64_t page_pool_spare_bytes(const struct page_pool *p);
/* Moves one cached page down, out of a unit that this empties sooner or later. False: no unit can be
 * emptied. */
bool page_pool_compact(struct page_pool *p);
/* Page i lies at base + i * page_bytes; constant. */
char *page_pool_base(const struct page_pool *p);

struct page_pool_numbers {
    struct pool_numbers blocks; /* taken: referenced or cached */
    uint32_t referenced, kept;  /* kept: cached now */
};
void page_pool_numbers(const struct page_pool *p, struct page_pool_numbers *ret);

/* Asserts every invariant; tests call it after every step. */
void page_pool_check(const struct page_pool *p);
/* The same, as far as `w` goes on: about two things for each block. False: it was called off. */
bool page_pool_walk(const struct page_pool *p, struct walk *w);

#endif
