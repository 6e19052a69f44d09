/* mma.cuh - tensor cores, as products and attention use them alike: copies to shared memory that go on beside
 * the arithmetic, operands, mma, and the chains of a product. */
#ifndef PLATEAU_CUDA_MMA_CUH
#define PLATEAU_CUDA_MMA_CUH

#include "compute/cuda/kernels/fragment.cuh"

DEVICE uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

DEVICE void copies_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <uint32_t LEFT> DEVICE void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

DEVICE uint32_t bf16_pair(float a, float b)
{
    return bits_of(__floats2bfloat162_rn(a, b));
}

DEVICE void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The first unit of a product's chain (kernels/bf16.cu). */
DEVICE uint32_t chain_begin(uint32_t units, uint32_t chain, uint32_t chains)
{
    return units * chain / chains;
}

#endif
