/* test_blocks.h - the bytes of a pool's blocks, where its memory is the machine's. */
#ifndef PLATEAU_TESTS_TEST_BLOCKS_H
#define PLATEAU_TESTS_TEST_BLOCKS_H

#include "cache/page_pool.h"

static inline char *test_blocks(const struct block_pool *p)
{
    struct pool_numbers n;
    block_pool_numbers(p, &n);
    return dev_host(n.base);
}

static inline char *test_pages(const struct page_pool *p)
{
    return test_blocks(page_pool_blocks(p));
}

#endif
