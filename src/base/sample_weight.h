/* sample_weight.h - how much a candidate of a sample weighs. Read by C and by CUDA C++: a device has the
 * bits of the host. Any thread. */
#ifndef PLATEAU_BASE_SAMPLE_WEIGHT_H
#define PLATEAU_BASE_SAMPLE_WEIGHT_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define WEIGHT_INLINE static __device__ __forceinline__
#else
#define WEIGHT_INLINE static inline
#endif

/* Adding this to a double of at most 2^31 leaves the nearest whole number in the sum's low bits. */
#define WEIGHT_ROUND    0x1.8p52
#define WEIGHT_PER_LN2  0x1.71547652b82fep0 /* 1 / ln 2 */
#define WEIGHT_LN2_HIGH 0x1.62e42fefap-1 /* ln 2, its upper 34 bits: times a whole number below 2^18 exact */
#define WEIGHT_LN2_LOW  0x1.cf79abc9e3b3ap-40
#define WEIGHT_TERMS    12
/* 1/12! ... 1/1!, 1: the series of exp, within 2^-52 of it for |r| <= ln 2 / 2. */
#define WEIGHT_SERIES                                                                                        \
    {                                                                                                        \
        1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, \
            1. / 24, 1. / 6, 1. / 2, 1, 1                                                                    \
    }

/* exp(below), within three units of the last place; `below` in [-512, 0]. Plain operations in a fixed order,
 * so that several at a time have the same bits. */
WEIGHT_INLINE double weight_of(float below)
{
    const double series[WEIGHT_TERMS + 1] = WEIGHT_SERIES;
    double x = (double)below, t = x * WEIGHT_PER_LN2 + WEIGHT_ROUND, n = t - WEIGHT_ROUND;
    double r = (x - n * WEIGHT_LN2_HIGH) - n * WEIGHT_LN2_LOW, y = series[0];
    uint64_t bits, power;
    for (int i = 1; i <= WEIGHT_TERMS; i++)
        y = y * r + series[i];
    memcpy(&power, &t, sizeof power);
    memcpy(&bits, &y, sizeof bits);
    bits += power << 52; /* times 2^n */
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Eight sums together, in a fixed order. */
WEIGHT_INLINE double weight_add(const double s[8])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

#endif
