/* page_group.h - attention layers of equal reach, and the pool of their pages.
 *
 * A model's first group has full attention. Where a model has no such layers, its pages are empty and stand
 * for their tokens: one group must define which prefixes exist. The other groups have a window: the last
 * `window` tokens, including the token itself. The sequence never reads a page before its window again. */
#ifndef PLATEAU_CACHE_PAGE_GROUP_H
#define PLATEAU_CACHE_PAGE_GROUP_H

#include "base/check.h"
#include "base/page_tokens.h"

#include <stdint.h>

struct page_pool;

struct page_group {
    struct page_pool *pages;
    size_t page_bytes; /* the pool's */
    uint32_t window;   /* tokens; 0: all */
};

/* The first page that the next token reads after `done` tokens. */
static inline uint32_t page_group_first(const struct page_group *g, uint32_t done)
{
    return g->window == 0 || done < g->window ? 0 : (done - g->window + 1) / PAGE_TOKENS;
}

/* The most pages that a sequence of `pages` pages holds at once while it grows page by page. */
static inline uint32_t page_group_needs(const struct page_group *g, uint32_t pages)
{
    return g->window == 0 ? pages : MIN_OF(pages, page_window_most(g->window, 1));
}

#endif
