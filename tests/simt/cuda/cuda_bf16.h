/* cuda_bf16.h - numbers of bf16, as the kernels use them (simt.h). Results are rounded once, to the nearest,
 * and to even of two. */
#ifndef PLATEAU_TESTS_CUDA_BF16_H
#define PLATEAU_TESTS_CUDA_BF16_H

#include "cuda_words.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float simt_float(__nv_bfloat16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    uint32_t u = __float_as_uint(x);
    if (x != x)
        return {0x7fff};
    return {(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
static inline float __low2float(__nv_bfloat162 p)
{
    return simt_float(p.x);
}
static inline float __high2float(__nv_bfloat162 p)
{
    return simt_float(p.y);
}

/* x + rest by rounding to odd: of two neighbours the odd one, unless the sum is exact. Rounding it once more,
 * to fewer bits, then is right. */
static inline double simt_odd(double x, double rest)
{
    uint64_t u = simt_cast<uint64_t>(x);
    if (rest == 0 || rest != rest || u % 2 == 1)
        return x;
    return simt_cast<double>((rest > 0) == (x > 0) ? u + 1 : u - 1);
}
static inline float simt_odd_float(double x)
{
    float y = (float)x;
    if (y - y != 0 || (double)y == x)
        return y;
    uint32_t u = __float_as_uint(y);
    return __uint_as_float((fabs((double)y) > fabs(x) ? u - 1 : u) | 1);
}
/* a * b + c, rounded once: the product is exact. */
static inline __nv_bfloat16 simt_fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
    double product = (double)simt_float(a) * (double)simt_float(b), add = (double)simt_float(c);
    double sum = product + add, part = sum - product;
    double rest = (product - (sum - part)) + (add - part);
    return __float2bfloat16_rn(simt_odd_float(simt_odd(sum, rest)));
}
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return {simt_fma(a.x, b.x, c.x), simt_fma(a.y, b.y, c.y)};
}
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    const __nv_bfloat16 less_zero = {0x8000};
    return {simt_fma(a.x, b.x, less_zero), simt_fma(a.y, b.y, less_zero)};
}
static inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    const __nv_bfloat16 one = {0x3f80};
    return {simt_fma(a.x, one, {(uint16_t)(b.x.bits ^ 0x8000)}),
            simt_fma(a.y, one, {(uint16_t)(b.y.bits ^ 0x8000)})};
}

#endif
