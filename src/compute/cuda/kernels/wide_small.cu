/* wide_small.cu - products of many columns of small floats with small floats: kernels/wide.cuh. */
#include "compute/cuda/kernels/wide.cuh"

WIDE(wide_small_1, 16, 1, true)
WIDE(wide_small_8, 16, 8, true)
