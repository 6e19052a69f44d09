/* test_rng.h - a stream of random numbers: rng_at(seed, 0), rng_at(seed, 1), ... */
#ifndef PLATEAU_TESTS_TEST_RNG_H
#define PLATEAU_TESTS_TEST_RNG_H

#include "base/check.h"
#include "base/rng.h"

struct rng {
    uint64_t seed, counter;
};

static inline uint64_t rng_next(struct rng *r)
{
    return rng_at(r->seed, r->counter++);
}

/* In [0, bound), bound > 0. The bias is below bound / 2^64. */
static inline uint64_t rng_below(struct rng *r, uint64_t bound)
{
    ASSERT(bound > 0);
    return (uint64_t)(((unsigned __int128)rng_next(r) * bound) >> 64);
}

static inline double rng_uniform(struct rng *r)
{
    return rng_uniform_at(r->seed, r->counter++);
}

#endif
