/* few_small.cu - inputs become small floats; products of few columns of them with small floats. */
#include "compute/cuda/kernels/few.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL
/* The nearest floats of 1, 4 and 3 bits, of equally near ones the even; at most 448. */
DEVICE uint32_t small_pair(float first, float second)
{
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(second), "f"(first));
    return r;
}

/* Block: a row of bf16 becomes small floats, whose largest is 448, with a scale. Their order is that of
 * weights (kernels/fragment.cuh): of 64 k piece p is step p of two, word w of 8 has t = w % 4, and of 8 k
 * from 8 p on those at 4 (w / 4) + 0, 2, 1, 3. A warp has groups of 128. */
DEVICE void quantise(const cuda_quantise &a)
{
    const uint32_t lane = threadIdx.x % 32, row = a.x.first + blockIdx.x, t = lane % 4;
    const uint32_t pair = lane / 8 % 2 * 4 + lane / 4 % 2 * 2; /* the first of two pieces */
    uint32_t size = 0;
    grid_begin();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < a.units * 16; i += blockDim.x) {
        const uint4 v = *(const uint4 *)(a.x.at + ((uint64_t)(i / 8) * a.x.rows + row) * UNIT + i % 8 * 8);
        const uint32_t two = __vmaxu2(__vmaxu2(v.x & 0x7fff7fff, v.y & 0x7fff7fff),
                                      __vmaxu2(v.z & 0x7fff7fff, v.w & 0x7fff7fff));
        size = max(size, max(two & 0xffff, two >> 16));
    }
    const float most = block_max(fmaxf(__uint_as_float(size << 16), 0x1p-100f)), factor = 448 / most;
#pragma unroll 4
    for (uint32_t u = threadIdx.x / 32; u < a.units; u += blockDim.x / 32) {
        const uint16_t *x = a.x.at + ((uint64_t)(2 * u + lane / 16) * a.x.rows + row) * UNIT + 2 * t;
        const bf16x2 low = pair_of(*(const uint32_t *)(x + (pair ^ row % 8) * 8));
        const bf16x2 high = pair_of(*(const uint32_t *)(x + ((pair + 1) ^ row % 8) * 8));
        uint8_t *to = a.to + ((uint64_t)u * a.rows + blockIdx.x) * CUDA_SMALL_UNIT;
        *(uint32_t *)(to + (lane / 4 ^ blockIdx.x % 8) * 16 + lane % 4 * 4) =
            small_pair(__low2float(low) * factor, __low2float(high) * factor) |
            small_pair(__high2float(low) * factor, __high2float(high) * factor) << 16;
    }
    if (threadIdx.x == 0)
        a.scales[blockIdx.x] = most * (1.0f / 448);
}
#else
DEVICE void quantise(const cuda_quantise &a)
{
}
#endif

KERNEL plateau_quantise(const cuda_quantise a)
{
    quantise(a);
}

FEW(few_small_1, 16, 1, true)
FEW(few_small_8, 16, 8, true)
