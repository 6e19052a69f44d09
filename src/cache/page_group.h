/* page_group.h - attention layers of equal reach, and the pool of their pages.
 *
 * A model's first group sees everything. Where a model has none of these, its widest window stands first and
 * is kept whole: one group at least must say which prefixes there are. The others see a window: the last so
 * many tokens, the token itself included. A page behind it is never read again by that sequence. */
#ifndef PLATEAU_CACHE_PAGE_GROUP_H
#define PLATEAU_CACHE_PAGE_GROUP_H

#include "base/check.h"
#include "cache/page_pool.h"

enum { PAGE_GROUPS_MAX = 4 };

struct page_group {
    struct page_pool *pages;
    size_t page_bytes; /* the pool's */
    uint32_t window;   /* tokens; 0: all */
};

/* The first page that the next token reads, when so many are done. */
static inline uint32_t page_group_first(const struct page_group *g, uint32_t done)
{
    return g->window == 0 || done < g->window ? 0 : (done - g->window + 1) / PAGE_TOKENS;
}

/* Pages that a sequence of `pages` may need at once, to go on page by page. */
static inline uint32_t page_group_needs(const struct page_group *g, uint32_t pages)
{
    return g->window == 0 ? pages : MIN_OF(pages, DIV_UP(g->window - 1, PAGE_TOKENS) + 1);
}

#endif
