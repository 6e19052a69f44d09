/* kern_v16_avx2.h - sixteen f32 lanes in two registers. Same names and same results as kern_v16_avx512.h. */
#ifndef PLATEAU_KERNEL_KERN_V16_AVX2_H
#define PLATEAU_KERNEL_KERN_V16_AVX2_H

#include "kernel/kern_shape.h"

#include <immintrin.h>
#include <stdint.h>

typedef struct {
    __m256 low, high;
} v16;

/* All ones in the first n lanes of the half that starts at lane `first`. */
V16_FN __m256i v16_mask(uint32_t n, int first)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - first), lanes);
}

V16_FN v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

V16_FN v16 v16_set(float f)
{
    return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}

V16_FN v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

V16_FN void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
}

/* The first n lanes, n <= 16; the others read as 0 and are not touched. */
V16_FN v16 v16_load_n(const float *p, uint32_t n)
{
    if (n == 16)
        return v16_load(p);
    if (n <= 8)
        return (v16){_mm256_maskload_ps(p, v16_mask(n, 0)), _mm256_setzero_ps()};
    return (v16){_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, v16_mask(n, 8))};
}

V16_FN void v16_store_n(float *p, v16 v, uint32_t n)
{
    if (n == 16) {
        v16_store(p, v);
    } else if (n <= 8) {
        _mm256_maskstore_ps(p, v16_mask(n, 0), v.low);
    } else {
        _mm256_storeu_ps(p, v.low);
        _mm256_maskstore_ps(p + 8, v16_mask(n, 8), v.high);
    }
}

/* The first n lanes of v, then lanes of `rest`. */
V16_FN v16 v16_first_n(v16 v, v16 rest, uint32_t n)
{
    return (v16){_mm256_blendv_ps(rest.low, v.low, _mm256_castsi256_ps(v16_mask(n, 0))),
                 _mm256_blendv_ps(rest.high, v.high, _mm256_castsi256_ps(v16_mask(n, 8)))};
}

V16_FN v16 v16_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

V16_FN v16 v16_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

V16_FN v16 v16_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

V16_FN v16 v16_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

/* a * b + c, rounded once. */
V16_FN v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

/* b where a lane is NaN. */
V16_FN v16 v16_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

V16_FN v16 v16_min(v16 a, v16 b)
{
    return (v16){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

/* To the nearest whole number, to even. */
V16_FN v16 v16_round(v16 a)
{
    return (v16){_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

V16_FN __m256 v16_half_power2(__m256 a)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

/* 2^a for whole a in [-126, 127]. */
V16_FN v16 v16_power2(v16 a)
{
    return (v16){v16_half_power2(a.low), v16_half_power2(a.high)};
}

V16_FN void v16_halves(v16 a, __m256 *low, __m256 *high)
{
    *low = a.low;
    *high = a.high;
}

V16_FN __m256 v16_half_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

V16_FN v16 v16_bf16(const uint16_t *p)
{
    return (v16){v16_half_bf16(p), v16_half_bf16(p + 8)};
}

/* Eight as words. */
V16_FN __m256i v16_half_to_bf16(__m256 v)
{
    __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
}

/* To the nearest BF16, to even; a NaN stays one. */
V16_FN void v16_store_bf16(uint16_t *p, v16 v)
{
    __m256i words = _mm256_packus_epi32(v16_half_to_bf16(v.low), v16_half_to_bf16(v.high));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(words, 0xd8));
}

/* Sixteen pairs of BF16. */
typedef struct {
    __m256i low, high;
} v16_words;

V16_FN v16_words v16_words_load(const void *p)
{
    const __m256i *at = p;
    return (v16_words){_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

V16_FN v16_words v16_words_set(uint32_t pair)
{
    return (v16_words){_mm256_set1_epi32((int)pair), _mm256_set1_epi32((int)pair)};
}

/* The first of each pair, and the second. */
V16_FN v16 v16_words_even(v16_words w)
{
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(w.low, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(w.high, 16))};
}

V16_FN v16 v16_words_odd(v16_words w)
{
    __m256i mask = _mm256_set1_epi32((int)0xffff0000);
    return (v16){_mm256_castsi256_ps(_mm256_and_si256(w.low, mask)),
                 _mm256_castsi256_ps(_mm256_and_si256(w.high, mask))};
}

V16_FN v16 v16_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

/* Sixteen signed bytes. */
V16_FN v16 v16_i8(__m128i bytes)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

/* Sixteen bytes without a sign. */
V16_FN v16 v16_u8(__m128i bytes)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                 _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

V16_FN __m256 v16_half_e8m0(__m128i bytes)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    return _mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(0x400000)));
}

/* Sixteen powers of two of a byte each: 2^(b - 127). */
V16_FN v16 v16_e8m0(__m128i bytes)
{
    return (v16){v16_half_e8m0(bytes), v16_half_e8m0(_mm_srli_si128(bytes, 8))};
}

/* Sixteen floats of 1, 4 and 3 bits, over 256: a half has one exponent bit more, eight powers lower. Its
 * highest is clear: above it and in its place is the sign. */
V16_FN v16 v16_e4m3(__m128i bytes)
{
    __m256i halves =
        _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                 _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

/* table[f] for the field f of four bits at bit `shift` of each byte. */
V16_FN v16 v16_table(__m128i bytes, int shift, const int8_t *table)
{
    __m128i index = _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8(15));
    return v16_i8(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)table), index));
}

/* Four rows of four values, `from_stride` floats apart, become columns. */
V16_FN void v16_turn4(float *to, size_t to_stride, const float *from, size_t from_stride)
{
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_stride);
    __m128 c = _mm_loadu_ps(from + 2 * from_stride), d = _mm_loadu_ps(from + 3 * from_stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_stride, b);
    _mm_storeu_ps(to + 2 * to_stride, c);
    _mm_storeu_ps(to + 3 * to_stride, d);
}

#endif
