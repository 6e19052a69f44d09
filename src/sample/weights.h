/* weights.h - how much candidates weigh. Private to sample/. Any thread. */
#ifndef PLATEAU_SAMPLE_WEIGHTS_H
#define PLATEAU_SAMPLE_WEIGHTS_H

#include "sample/sampler.h"

#include <stdint.h>
#include <string.h>

/* Adding this to a double of at most 2^31 leaves the nearest whole number in the sum's low bits. */
#define WEIGHT_ROUND    0x1.8p52
#define WEIGHT_PER_LN2  0x1.71547652b82fep0 /* 1 / ln 2 */
#define WEIGHT_LN2_HIGH 0x1.62e42fefap-1 /* ln 2, its upper 34 bits: times a whole number below 2^18 exact */
#define WEIGHT_LN2_LOW  0x1.cf79abc9e3b3ap-40
#define WEIGHT_TERMS    12
/* 1/12! ... 1/1!, 1: the series of exp, within 2^-52 of it for |r| <= ln 2 / 2. */
static const double weight_series[WEIGHT_TERMS + 1] = {
    1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,
    1. / 120,       1. / 24,       1. / 6,       1. / 2,      1,          1};

/* exp(below), within three units of the last place; `below` in [-512, 0]. Plain operations in a fixed order,
 * so that several at a time have the same bits. */
static inline double weight_of(float below)
{
    double x = (double)below, t = x * WEIGHT_PER_LN2 + WEIGHT_ROUND, n = t - WEIGHT_ROUND;
    double r = (x - n * WEIGHT_LN2_HIGH) - n * WEIGHT_LN2_LOW, y = weight_series[0];
    uint64_t bits, power;
    for (int i = 1; i <= WEIGHT_TERMS; i++)
        y = y * r + weight_series[i];
    memcpy(&power, &t, sizeof power);
    memcpy(&bits, &y, sizeof bits);
    bits += power << 52; /* times 2^n */
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Eight sums together, in a fixed order. */
static inline double weight_add(const double s[8])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* The weight of list[0] to list[count - 1] together. Sum i of eight has every eighth candidate from list[i]
 * on; weight_add() adds them. */
typedef double weights_sum_fn(const struct candidate *list, uint32_t count);
weights_sum_fn weights_sum;                         /* by the faster of: */
weights_sum_fn weights_sum_plain, weights_sum_avx2; /* the same bits; the second needs AVX2 */

#endif
