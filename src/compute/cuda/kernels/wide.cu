/* wide.cu - products of many columns with bf16, and of experts' columns: kernels/wide.cuh. */
#include "compute/cuda/kernels/wide.cuh"

WIDE(wide16_1, 16, 1, false)
WIDE(wide16_8, 16, 8, false)
WIDE(wide8_1, 8, 1, false)
WIDE(wide8_8, 8, 8, false)
WIDE(wide4_1, 4, 1, false)
WIDE(wide4_8, 4, 8, false)

#define WALK(bits)                                                                                           \
    extern "C" __global__ void __launch_bounds__(CUDA_WIDE_THREADS, 1)                                       \
        plateau_walk##bits(const __grid_constant__ cuda_tiles a)                                             \
    {                                                                                                        \
        walk<bits>(a);                                                                                       \
    }
WALK(16)
WALK(8)
WALK(4)
