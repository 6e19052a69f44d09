/* page_tokens.h - the size of a KV page: kernels compute with it, the cache counts with it. */
#ifndef PLATEAU_BASE_PAGE_TOKENS_H
#define PLATEAU_BASE_PAGE_TOKENS_H

#include <stdint.h>

#define PAGE_TOKENS 32

/* Groups of attention layers with pages of their own: full attention, and each width of sliding window. */
#define PAGE_GROUPS_MAX 4

/* The most pages that hold the keys of `tokens` consecutive queries, each of which sees `window` keys. */
static inline uint32_t page_window_most(uint32_t window, uint32_t tokens)
{
    return (uint32_t)(((uint64_t)window + tokens - 2 + PAGE_TOKENS - 1) / PAGE_TOKENS) + 1;
}

#endif
