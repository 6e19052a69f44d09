/* few.cu - products of few columns with bf16: kernels/few.cuh. */
#include "compute/cuda/kernels/few.cuh"

FEW(few16_1, 16, 1, false)
FEW(few16_8, 16, 8, false)
FEW(few8_1, 8, 1, false)
FEW(few8_8, 8, 8, false)
FEW(few4_1, 4, 1, false)
FEW(few4_8, 4, 8, false)
