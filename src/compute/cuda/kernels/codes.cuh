/* codes.cuh - keys and values of 8 bits in a page (tensor/kv_form.h), and how tensor cores take them.
 *
 * A head's keys in a page are codes, then the tokens' scales; its values likewise. Codes lie as operands of
 * mma do: lane l has the 16 bytes l of two operands, of 32 numbers of 16 keys, or of 16 numbers of 32 values.
 * A half word has numbers d and d + 8 of a token, so a word becomes two pairs of bf16 by few instructions.
 *
 * int8: two magnitudes of 7 bits, whose signs lie in the bits of bf16's sign. The magnitudes are denormals of
 * bf16, which a product with 2^127 makes code / 64. fp8: the first number's sign and magnitude lie where bf16
 * has its sign, the low bits of its exponent and the high ones of its fraction; a product with 2^114 makes
 * value / 64. The other number has the bits that are left. */
#ifndef PLATEAU_CUDA_CODES_CUH
#define PLATEAU_CUDA_CODES_CUH

#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/fragment.cuh"

#define CODE_UNIT 64.0f /* an operand is code / CODE_UNIT */

/* Bytes of codes, and of codes with scales. */
#define CODES_BYTES(d) ((d)*CUDA_PAGE_TOKENS)
#define CODED_BYTES(d) (CODES_BYTES(d) + 4 * CUDA_PAGE_TOKENS)

DEVICE bool is_coded(const cuda_kv &kv)
{
    return kv.form == CUDA_KV_INT8 || kv.form == CUDA_KV_FP8;
}

/* Where a page has numbers d and d + 8 (d % 16 < 8) of the key of its token `at`, in half words. */
DEVICE uint32_t key_codes_at(uint32_t d, uint32_t at)
{
    uint32_t lane = at % 8 * 4 + d % 8 / 2, word = d / 16 % 2 * 2 + at % 16 / 8;
    return ((d / 32 * 2 + at / 16) * 128 + lane * 4 + word) * 2 + d % 2;
}
/* As `key_codes_at()`, but of the value. */
DEVICE uint32_t value_codes_at(uint32_t d, uint32_t at)
{
    uint32_t lane = d % 8 * 4 + at % 8 / 2, word = at / 16 * 2 + at % 16 / 8;
    return (d / 16 * 128 + lane * 4 + word) * 2 + at % 2;
}

/* ---- a token's values become codes ---- */

/* A scale, and what its values are multiplied by. */
struct code_scale {
    float scale, back;
};

/* largest: magnitude among a token's values of a head; NaN where one is not finite. */
DEVICE code_scale code_scale_of(uint32_t form, float largest)
{
    float max = largest < 0x1p-100f ? 0 : largest, most = form == CUDA_KV_INT8 ? 127 : 448;
    return {max / most, max > 0 ? most / max : 0};
}
/* The larger of two magnitudes, NaN if one is not finite. */
DEVICE float larger_magnitude(float max, float x)
{
    float a = fabsf(x);
    return max != max || !(a < INFINITY) ? NAN : fmaxf(max, a);
}
/* See e4m3_from_f32(). */
DEVICE uint32_t float_code(float x)
{
    float size = fminf(fabsf(x), 448.0f);
    uint32_t bits = __float_as_uint(size), sign = __float_as_uint(x) >> 31 << 7;
    if (size < 0x1p-6f)
        return sign | (uint32_t)rintf(size * 0x1p9f);
    return sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3));
}
/* Returns a sign in bit 7 and a magnitude below it. */
DEVICE uint32_t code_of(uint32_t form, float x, float back)
{
    if (form == CUDA_KV_FP8)
        return float_code(x * back);
    int32_t q = (int32_t)fminf(fmaxf(rintf(x * back), -127.0f), 127.0f);
    return q < 0 ? 0x80 | (uint32_t)-q : (uint32_t)q;
}
/* The half word of numbers d and d + 8. */
DEVICE uint32_t codes_of(uint32_t form, uint32_t first, uint32_t second)
{
    if (form == CUDA_KV_FP8)
        return (first & 0x80) << 8 | (first & 0x7f) << 4 | (second & 0x80) << 4 | (second & 0x70) << 8 |
               (second & 0x0f);
    return (first & 0x80) << 8 | (second & 0x7f) << 8 | (second & 0x80) | (first & 0x7f);
}

/* A warp's values of a token's head: lane l has values l + 32 j. */
template <uint32_t D> struct coded_lanes {
    code_scale by;
    uint32_t codes[D / 32]; /* lanes with l % 16 < 8: of l + 32 j and 8 more */

    __device__ __forceinline__ void take(uint32_t form, const float x[D / 32])
    {
        float largest = 0;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            largest = larger_magnitude(largest, x[j]);
#pragma unroll
        for (uint32_t d = 16; d > 0; d /= 2)
            largest = larger_magnitude(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        by = code_scale_of(form, largest);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t mine = code_of(form, x[j], by.back);
            codes[j] = codes_of(form, mine, __shfl_xor_sync(0xffffffffu, mine, 8));
        }
    }
    /* Puts codes and scale to a page's keys or values at an address of shared memory. */
    __device__ __forceinline__ void put(uint32_t half, uint32_t at, bool is_key) const
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t d = lane + 32 * j;
            if (d % 16 < 8)
                put_half_word(half + 2 * (is_key ? key_codes_at(d, at) : value_codes_at(d, at)),
                              (uint16_t)codes[j]);
        }
        if (lane == 0)
            put_word(half + CODES_BYTES(D) + at * 4, __float_as_uint(by.scale));
    }
    /* Puts codes and scale to a page's keys or values, in memory of any kind. */
    __device__ __forceinline__ void put(uint16_t *half, uint32_t at, bool is_key) const
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t d = lane + 32 * j;
            if (d % 16 < 8)
                half[is_key ? key_codes_at(d, at) : value_codes_at(d, at)] = (uint16_t)codes[j];
        }
        if (lane == 0)
            ((float *)half)[CODES_BYTES(D) / 4 + at] = by.scale;
    }
};

/* ---- codes become values ---- */

/* Returns the code of number d of a half word. */
DEVICE uint32_t code_at(uint32_t form, uint32_t codes, uint32_t d)
{
    bool first = d % 16 < 8;
    if (form == CUDA_KV_FP8)
        return first ? (codes >> 8 & 0x80) | (codes >> 4 & 0x7f)
                     : (codes >> 4 & 0x80) | (codes >> 8 & 0x70) | (codes & 0x0f);
    return first ? (codes >> 8 & 0x80) | (codes & 0x7f) : (codes & 0x80) | (codes >> 8 & 0x7f);
}
/* Returns the value of number d of the page's token `at`, as the plain kernel reads it. */
DEVICE float coded_value(uint32_t form, const float *half, uint32_t width, uint32_t at, uint32_t d,
                         bool is_key)
{
    uint32_t low = d / 16 * 16 + d % 8;
    uint32_t codes = ((const uint16_t *)half)[is_key ? key_codes_at(low, at) : value_codes_at(low, at)];
    uint32_t code = code_at(form, codes, d), magnitude = code & 0x7f;
    float size = form == CUDA_KV_FP8 ? __uint_as_float(magnitude << 20) * 0x1p120f : (float)magnitude;
    return (code & 0x80 ? -size : size) * half[CODES_BYTES(width) / 4 + at];
}

/* Numbers d of a word's pair of half words, and numbers d + 8, as operands. */
template <uint32_t FORM> DEVICE uint32_t first_codes(uint32_t word)
{
    if (FORM == CUDA_KV_FP8)
        return bits_of(__hmul2(pair_of(word & 0x87f087f0u), pair_of(0x78807880u)));
    return bits_of(__hmul2(pair_of(word & 0x807f807fu), pair_of(0x7f007f00u)));
}
template <uint32_t FORM> DEVICE uint32_t second_codes(uint32_t word)
{
    if (FORM == CUDA_KV_FP8)
        return first_codes<FORM>((word << 4 & 0x80f080f0u) | (word >> 4 & 0x07000700u));
    return first_codes<FORM>(__byte_perm(word, 0, 0x2301));
}

#endif
