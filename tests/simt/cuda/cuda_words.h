/* cuda_words.h - what CUDA adds to C++, as far as the kernels use it (simt.h). */
#ifndef PLATEAU_TESTS_CUDA_WORDS_H
#define PLATEAU_TESTS_CUDA_WORDS_H

#include "simt/simt_block.h"

#include <math.h>

#define __CUDA_ARCH__ 800
#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* All fibers of a block are one thread of the process. */
#define __shared__ thread_local

struct uint3 {
    uint32_t x, y, z;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

/* Indices of the thread that runs. */
extern uint3 threadIdx, blockIdx, blockDim, gridDim;

template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b)
{
    std::common_type_t<A, B> x = a, y = b;
    return y < x ? y : x;
}
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b)
{
    std::common_type_t<A, B> x = a, y = b;
    return x < y ? y : x;
}

/* ---- bits ---- */

template <class To, class From> static inline To simt_cast(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof(y));
    return y;
}
/* Threads run one at a time. */
template <class T> static inline T atomicAdd(T *at, T x)
{
    T was = *at;
    *at = was + x;
    return was;
}
static inline float __uint_as_float(uint32_t x)
{
    return simt_cast<float>(x);
}
static inline uint32_t __float_as_uint(float x)
{
    return simt_cast<uint32_t>(x);
}
/* Four of eight bytes, by numbers of 4 bits. */
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t which)
{
    uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t ret = 0;
    for (uint32_t i = 0; i < 4; i++)
        ret |= (uint32_t)(bytes >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return ret;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}

/* ---- block and warp ---- */

static inline void __syncthreads()
{
    simt::meet_block();
}
static inline void __syncwarp()
{
    simt::meet_warp(NULL, [](void *const *) {});
}

template <class T> struct simt_exchange {
    T value, got;
    uint32_t from;
};
/* `from`: the lane whose value this one gets. */
template <class T> static inline T simt_shuffle(T value, uint32_t from)
{
    simt_exchange<T> mine = {value, value, from};
    simt::meet_warp(&mine, [](void *const *lanes) {
        for (uint32_t i = 0; i < 32; i++) {
            simt_exchange<T> *to = (simt_exchange<T> *)lanes[i];
            to->got = ((const simt_exchange<T> *)lanes[to->from % 32])->value;
        }
    });
    return mine.got;
}
template <class T> static inline T __shfl_sync(uint32_t, T value, uint32_t from)
{
    return simt_shuffle(value, from);
}
template <class T> static inline T __shfl_xor_sync(uint32_t, T value, uint32_t mask)
{
    return simt_shuffle(value, simt::lane() ^ mask);
}
template <class T> static inline T __shfl_up_sync(uint32_t, T value, uint32_t by)
{
    return simt_shuffle(value, simt::lane() >= by ? simt::lane() - by : simt::lane());
}
template <class T> static inline T __shfl_down_sync(uint32_t, T value, uint32_t by)
{
    return simt_shuffle(value, simt::lane() + by < 32 ? simt::lane() + by : simt::lane());
}
static inline bool __all_sync(uint32_t, bool x)
{
    simt::meet_warp(&x, [](void *const *lanes) {
        bool all = true;
        for (uint32_t i = 0; i < 32; i++)
            all &= *(bool *)lanes[i];
        for (uint32_t i = 0; i < 32; i++)
            *(bool *)lanes[i] = all;
    });
    return x;
}
static inline bool __any_sync(uint32_t mask, bool x)
{
    return !__all_sync(mask, !x);
}

#endif
