/* page_state.h - what a page pool consists of; for page_pool.c, and for tests that damage one. */
#ifndef PLATEAU_CACHE_PAGE_STATE_H
#define PLATEAU_CACHE_PAGE_STATE_H

#include "cache/page_pool.h"
#include "cache/share_list.h"

struct page {
    uint32_t refs;
    uint32_t next, prev; /* neighbours in the cached list */
    uint32_t used;       /* `uses` when it joined that */
    uint32_t used_ms;    /* and the clock, modulo 2^32 */
    bool kept;           /* holds a prefix */
    uint8_t share;       /* whose; while it is kept */
    uint16_t leases;     /* references of leases, a part of `refs` */
    uint16_t wishes;     /* see page_pool_wish() */
    uint16_t holds;      /* references of the places of agents, a part of `refs` */
};

struct page_pool {
    /* Constant. */
    uint32_t pages_max;
    struct page_pool_opts opts;
    /* Engine thread only. */
    struct block_pool *blocks;
    struct page *pages;                     /* [pages_max] */
    struct share_list shares[CACHE_SHARES]; /* amounts: pages without a wish */
    struct share_list wished[CACHE_SHARES]; /* and those with one */
    uint32_t leased_of[CACHE_SHARES];       /* leased pages of each share */
    uint32_t referenced, cached;
    uint32_t leased, wished_count; /* pages with a lease, with a wish */
    uint64_t lease_refs;           /* references of all leases */
    uint64_t hold_refs;            /* references of the places of agents */
    uint32_t uses;                 /* unless it is shared */
    uint64_t now_ns;
};

#endif
