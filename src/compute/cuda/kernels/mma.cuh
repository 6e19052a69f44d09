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

#endif
