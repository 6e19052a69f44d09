/* cuda_fp16.h - halves, as the kernels use them (simt.h). */
#ifndef PLATEAU_TESTS_CUDA_FP16_H
#define PLATEAU_TESTS_CUDA_FP16_H

#include <immintrin.h>
#include <stdint.h>

struct __half {
    uint16_t bits;
};

static inline float __half2float(__half x)
{
    return _cvtsh_ss(x.bits);
}
static inline __half __float2half_rn(float x)
{
    return {(uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline __half __ushort_as_half(unsigned short x)
{
    return {x};
}
static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

#endif
