/* Weights of candidates: exp within its bound, and the same bits one by one and several at a time. */
#include "test.h"
#include "test_rng.h"

#include "base/candidate.h"
#include "base/sample_weight.h"
#include "sample/weights.h"

#include <float.h>
#include <math.h>

#define LOWEST (-27.631021f) /* window of samples; the function goes further down */

static void near_exp(float below)
{
    long double want = expl((long double)below);
    long double off = fabsl(((long double)weight_of(below) - want) / want);
    if (off > 3 * (long double)DBL_EPSILON)
        fail_msg("%a: off by %.2Lf units", (double)below, off / DBL_EPSILON);
}

TEST(a_weight_is_exp)
{
    assert_true(weight_of(0) == 1 && weight_of(-0.0f) == 1);
    for (uint32_t i = 0; i <= 200000; i++)
        near_exp(LOWEST * (float)i / 200000);
    for (uint32_t n = 0; n <= 512; n++)
        near_exp(-(float)n);
    for (float x = -1; x < 0; x /= 2)
        near_exp(x);
    /* Where the nearest multiple of ln 2 changes. */
    for (int n = 0; n < 40; n++)
        for (int step = -2; step <= 2; step++)
            near_exp(-(float)((n + 0.5) * 0.6931471805599453) * (1 + (float)step * FLT_EPSILON));
}

static void same_sums(const struct candidate *list, uint32_t count)
{
    double plain = weights_sum_plain(list, count), fast = weights_sum(list, count);
    long double want = 0;
    for (uint32_t i = 0; i < count; i++)
        want += expl((long double)list[i].logit);
    assert_memory_equal(&plain, &fast, sizeof plain);
    assert_true(fabsl((long double)plain - want) <= want * (count + 8) * (long double)DBL_EPSILON);
}

PROPERTY(sums_have_the_same_bits, seed)
{
    enum { MOST = 3000 };
    static struct candidate list[MOST];
    struct rng rng = {seed, 0};
    for (uint32_t i = 0; i < MOST; i++)
        list[i] = (struct candidate){LOWEST * (float)rng_below(&rng, 1 << 20) / (1 << 20), i};
    for (uint32_t count = 0; count < 40; count++)
        same_sums(list + rng_below(&rng, 40), count);
    same_sums(list, MOST);
    same_sums(list + 1, MOST - 1 - rng_below(&rng, 100));
}

TEST_MAIN()
