/* test_json_blocks.h - jansson's blocks begin with a head, as in the program: free() of one stops. */
#ifndef PLATEAU_TESTS_TEST_JSON_BLOCKS_H
#define PLATEAU_TESTS_TEST_JSON_BLOCKS_H

#include <jansson.h>
#include <stdlib.h>

#define TEST_JSON_HEAD 16

static inline void *test_json_alloc(size_t bytes)
{
    char *block = malloc(TEST_JSON_HEAD + bytes);
    return block ? block + TEST_JSON_HEAD : NULL;
}

static inline void test_json_free(void *p)
{
    if (p)
        free((char *)p - TEST_JSON_HEAD);
}

__attribute__((constructor)) static inline void test_json_blocks(void)
{
    json_set_alloc_funcs(test_json_alloc, test_json_free);
}

#endif
