/* The best tokens of rows of logits, against a sort of all. */
#include "test.h"
#include "test_rng.h"

#include "base/check.h"
#include "compute/row_top.h"

#include <math.h>
#include <string.h>

#define VOCAB_MAX 3000

static float row[VOCAB_MAX];
static uint64_t valid[VOCAB_MAX / 64 + 1];
static struct candidate sorted[VOCAB_MAX];

static int order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* With equals, and with values that are not numbers. */
static void fill(struct rng *r, uint32_t vocab)
{
    static const float odd[] = {NAN, -INFINITY, 0.f, -0.f, -1e30f};
    memset(valid, 0, sizeof(valid));
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t n = (uint32_t)rng_below(r, 100);
        row[i] = n < COUNT_OF(odd) ? odd[n] : (float)rng_below(r, 500) / 16 - 20;
        valid[i / 64] |= (uint64_t)(rng_below(r, 10) > 0) << i % 64;
    }
}

PROPERTY(the_best_tokens_are_the_first_of_all_sorted, seed)
{
    struct rng r = {seed, 0};
    for (int round = 0; round < 3; round++) {
        uint32_t vocab = 1 + (uint32_t)rng_below(&r, VOCAB_MAX), count = 0;
        const uint32_t want = (uint32_t)rng_below(&r, ROW_TOP_MAX) + 1;
        const uint64_t *ids = round % 3 ? valid : NULL;
        struct row_top top;
        fill(&r, vocab);
        for (uint32_t i = 0; i < vocab; i++)
            if (row[i] > -INFINITY && (!ids || (ids[i / 64] >> i % 64 & 1)))
                sorted[count++] = (struct candidate){row[i], i};
        qsort(sorted, count, sizeof(sorted[0]), order);
        row_top_of(row, vocab, ids, want, &top);
        assert_int_equal(top.count, MIN_OF(count, want));
        for (uint32_t i = 0; i < top.count; i++) {
            assert_int_equal(top.list[i].id, sorted[i].id);
            assert_true(top.list[i].logit == sorted[i].logit);
        }
    }
}

TEST(a_row_without_numbers_has_no_best_token)
{
    struct row_top top;
    for (uint32_t i = 0; i < 100; i++)
        row[i] = i % 2 ? NAN : -INFINITY;
    row_top_of(row, 100, NULL, 5, &top);
    assert_int_equal(top.count, 0);
}

TEST_MAIN()
