/* mma.cuh - what products and attention on tensor cores use alike. */
#ifndef PLATEAU_CUDA_MMA_CUH
#define PLATEAU_CUDA_MMA_CUH

#include "compute/cuda/kernels/fragment.cuh"

DEVICE uint32_t bf16_pair(float a, float b)
{
    return bits_of(__floats2bfloat162_rn(a, b));
}

/* The first unit of a product's chain (kernels/bf16.cu). */
DEVICE uint32_t chain_begin(uint32_t units, uint32_t chain, uint32_t chains)
{
    return units * chain / chains;
}

/* Returns the row of x, and of y, that a column has. */
DEVICE uint32_t input_row(const cuda_sorted &sorted, uint32_t x_div, uint32_t column)
{
    uint32_t pair = sorted.order ? sorted.order[column] : column;
    return x_div ? pair / x_div : pair;
}
DEVICE uint32_t output_row(const cuda_sorted &sorted, uint32_t column)
{
    return sorted.order ? sorted.order[column] : column;
}

DEVICE void copy16(void *to, const void *from)
{
    copy16(shared_at(to), from);
}

/* ---- mma.m16n8k16, units of a panel after each other ---- */

/* The B operands of a unit for 8 columns: of step j b[2 j] and b[2 j + 1]. `at`: where this lane's row has
 * its piece lane / 8; pieces 4 to 7 are 64 bytes off. */
DEVICE void inputs_of(uint32_t b[8], uint32_t at)
{
    load4(b, at);
    load4(b + 4, at ^ 64);
}
/* Returns the address of the lane's row of 8, whose number is `row`. */
DEVICE uint32_t inputs_at(const uint8_t *row_at, uint32_t row)
{
    return shared_at(row_at) + (threadIdx.x % 32 / 8 ^ row % 8) * 16;
}

/* Where value i of a lane's sums lies: row g or g + 8 of the panel, column 2 t or 2 t + 1. */
DEVICE uint32_t sum_row(uint32_t lane, uint32_t i)
{
    return lane / 4 + (i / 2) * 8;
}
DEVICE uint32_t sum_column(uint32_t lane, uint32_t i)
{
    return lane % 4 * 2 + i % 2;
}

/* A chain's sums of N tiles join those of the chains before it, and begin anew. */
template <uint32_t N> DEVICE void end_chain(float (*sum)[4], float (*c)[4])
{
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++) {
        sum[i / 4][i % 4] += c[i / 4][i % 4];
        c[i / 4][i % 4] = 0;
    }
}

#endif
