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

#endif
