/* test_engine_orders.h - orders to an engine: what the list of holders sends it. */
#ifndef PLATEAU_TESTS_TEST_ENGINE_ORDERS_H
#define PLATEAU_TESTS_TEST_ENGINE_ORDERS_H

#include "engine/engine_state.h"

struct test_cleared {
    uint32_t entries;         /* dropped pages of cached prefixes, and image embeddings */
    uint64_t bytes_reclaimed; /* decrease of the bytes that pools and image embeddings hold */
};

/* Waits for the answer. 0, -EAGAIN (too many callers wait for the same), or -EPIPE (closing). */
static inline int test_order(struct engine *en, enum holder_ask_kind kind, struct test_cleared *ret)
{
    struct holder_ask *ask = holder_ask_create(kind, 0, 0);
    struct engine_message m = {.order = ask};
    struct holder_answer answer;
    int r = mailbox_put(en->inbox, &m);
    if (r < 0) {
        holder_ask_drop(ask);
        return r;
    }
    r = holder_ask_wait(ask, UINT64_MAX, &answer);
    ASSERT(r == 0);
    *ret = (struct test_cleared){answer.entries, answer.bytes};
    return 0;
}

/* Drops all cached prefixes and image embeddings that no request uses and gives their memory back. */
static inline int test_clear(struct engine *en, struct test_cleared *ret)
{
    return test_order(en, HOLDER_CLEAR, ret);
}

/* Gives back every byte that no request and no prefix needs. */
static inline int test_trim(struct engine *en, struct test_cleared *ret)
{
    return test_order(en, HOLDER_TRIM, ret);
}

#endif
