/* append.cuh - a head of queries, keys or values by one warp: norm and rotation, before attention.
 *
 * It has the bits of a block that takes the head. Lane l has values l + 32 j. */
#ifndef PLATEAU_CUDA_APPEND_CUH
#define PLATEAU_CUDA_APPEND_CUH

#include "compute/cuda/kernels/common.cuh"

/* As `rms_row()` of CUDA_APPEND_THREADS threads, but in one warp: the sums of its four warps are added in
 * order. Two of them go up the tree in each half of this warp, then one in each quarter. Lane l has values l
 * + 32 j. */
template <uint32_t D> DEVICE double square_sum(const float x[D / 32])
{
    uint32_t lane = threadIdx.x % 32;
    double parts[4] = {};
#pragma unroll
    for (uint32_t j = 0; j < D / 32; j++)
        parts[j % 4] += (double)x[j] * x[j];
    bool high = lane & 16, second = lane & 8;
    double a = high ? parts[2] : parts[0], b = high ? parts[3] : parts[1];
    a += __shfl_xor_sync(0xffffffffu, high ? parts[0] : parts[2], 16);
    b += __shfl_xor_sync(0xffffffffu, high ? parts[1] : parts[3], 16);
    double sum = second ? b : a;
    sum += __shfl_xor_sync(0xffffffffu, second ? a : b, 8);
#pragma unroll
    for (uint32_t d = 4; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    double all = __shfl_sync(0xffffffffu, sum, 0);
#pragma unroll
    for (uint32_t part = 1; part < 4; part++)
        all += __shfl_sync(0xffffffffu, sum, part * 8);
    return all;
}

template <uint32_t D> DEVICE void load_lanes(float x[D / 32], const float *from)
{
#pragma unroll
    for (uint32_t j = 0; j < D / 32; j++)
        x[j] = from[threadIdx.x % 32 + 32 * j];
}

/* w: the lane's weights. */
template <uint32_t D> DEVICE void scale_lanes(float x[D / 32], const float w[D / 32], float eps)
{
    float r = (float)(1 / sqrt(square_sum<D>(x) / D + eps));
#pragma unroll
    for (uint32_t j = 0; j < D / 32; j++)
        x[j] = w[j] * (x[j] * r);
}

template <uint32_t D> DEVICE void norm_lanes(float x[D / 32], const float *w, float eps)
{
    float mine[D / 32];
    load_lanes<D>(mine, w);
    scale_lanes<D>(x, mine, eps);
}

/* A token's angles: what a lane's values, and those that they turn with, are multiplied by. */
template <uint32_t D> struct turn {
    float cosine[D / 32], sine[D / 32];
    uint32_t with[D / 32]; /* CUDA_NONE: the value stays */

    __device__ __forceinline__ void begin(const cuda_attention &a, uint32_t t)
    {
        begin(a, row_of(a.angles, t));
    }
    __device__ __forceinline__ void begin(const cuda_attention &a, const float *angles)
    {
        uint32_t half = a.angles.width / 2;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t i = threadIdx.x % 32 + 32 * j, angle = a.adjacent ? i / 2 : i < half ? i : i - half;
            bool second = a.adjacent ? i % 2 : i >= half;
            with[j] = i >= 2 * half ? CUDA_NONE : a.adjacent ? i ^ 1 : second ? i - half : i + half;
            cosine[j] = i < 2 * half ? angles[angle] : 1;
            sine[j] = i < 2 * half ? angles[half + angle] : 0;
            sine[j] = second ? sine[j] : -sine[j];
        }
    }
    /* here: room for D values, the warp's own. */
    __device__ __forceinline__ void rotate(float x[D / 32], float *here) const
    {
        __syncwarp();
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            here[threadIdx.x % 32 + 32 * j] = x[j];
        __syncwarp();
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            if (with[j] != CUDA_NONE)
                x[j] = x[j] * cosine[j] + here[with[j]] * sine[j];
    }
};

template <uint32_t D>
DEVICE void norm_and_turn(const cuda_attention &a, float x[D / 32], const float *w, const turn<D> &by,
                          float *here)
{
    if (w && a.norm_heads && !a.norm_rotated)
        norm_lanes<D>(x, w, a.eps);
    if (a.angles.width > 0)
        by.rotate(x, here);
    if (w && a.norm_rotated)
        norm_lanes<D>(x, w, a.eps);
}

/* Returns the growth of queries at a position. */
template <class operation> DEVICE float growth_at(const operation &a, uint32_t position)
{
    return a.growth == 0 ? 1 : 1 + a.growth * logf((float)(1 + position / a.growth_every));
}

#endif
