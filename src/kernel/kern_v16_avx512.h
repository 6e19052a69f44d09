/* kern_v16_avx512.h - sixteen f32 lanes in one register. Same names and same results as kern_v16_avx2.h. */
#ifndef PLATEAU_KERNEL_KERN_V16_AVX512_H
#define PLATEAU_KERNEL_KERN_V16_AVX512_H

#include "kernel/kern_shape.h"

#include <immintrin.h>
#include <stdint.h>

typedef __m512 v16;

V16_FN __mmask16 v16_mask(uint32_t n)
{
    return (__mmask16)((1u << n) - 1);
}

V16_FN v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

V16_FN v16 v16_set(float f)
{
    return _mm512_set1_ps(f);
}

V16_FN v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

V16_FN void v16_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}

/* The first n lanes, n <= 16; the others read as 0 and are not touched. */
V16_FN v16 v16_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}

V16_FN void v16_store_n(float *p, v16 v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, v16_mask(n), v);
}

/* The first n lanes of v, then lanes of `rest`. */
V16_FN v16 v16_first_n(v16 v, v16 rest, uint32_t n)
{
    return _mm512_mask_mov_ps(rest, v16_mask(n), v);
}

V16_FN v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

V16_FN v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

V16_FN v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

V16_FN v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
V16_FN v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* b where a lane is NaN. */
V16_FN v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

V16_FN v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

/* To the nearest whole number, to even. */
V16_FN v16 v16_round(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^a for whole a in [-126, 127]. */
V16_FN v16 v16_power2(v16 a)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

V16_FN void v16_halves(v16 a, __m256 *low, __m256 *high)
{
    *low = _mm512_castps512_ps256(a);
    *high = _mm512_extractf32x8_ps(a, 1);
}

V16_FN v16 v16_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

/* To the nearest BF16, to even; a NaN stays one. */
V16_FN void v16_store_bf16(uint16_t *p, v16 v)
{
    __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(rounded));
}

/* Sixteen pairs of BF16. */
typedef __m512i v16_words;

V16_FN v16_words v16_words_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

V16_FN v16_words v16_words_set(uint32_t pair)
{
    return _mm512_set1_epi32((int)pair);
}

/* The first of each pair, and the second. */
V16_FN v16 v16_words_even(v16_words w)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

V16_FN v16 v16_words_odd(v16_words w)
{
    return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000)));
}

V16_FN v16 v16_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Sixteen signed bytes. */
V16_FN v16 v16_i8(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* Sixteen bytes without a sign. */
V16_FN v16 v16_u8(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

/* Sixteen powers of two of a byte each: 2^(b - 127). */
V16_FN v16 v16_e8m0(__m128i bytes)
{
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(0x400000)));
}

/* Sixteen floats of 1, 4 and 3 bits, over 256: a half has one exponent bit more, eight powers lower. Its
 * highest is clear: above it and in its place is the sign. */
V16_FN v16 v16_e4m3(__m128i bytes)
{
    __m256i halves =
        _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
    return _mm512_cvtph_ps(halves);
}

/* table[f] for the field f of four bits at bit `shift` of each byte. */
V16_FN v16 v16_table(__m128i bytes, int shift, const int8_t *t)
{
    const __m512 table = _mm512_setr_ps(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10],
                                        t[11], t[12], t[13], t[14], t[15]);
    __m512i index = _mm512_srli_epi32(_mm512_cvtepu8_epi32(bytes), (unsigned)shift);
    return _mm512_permutexvar_ps(index, table);
}

/* unit * f + base for the field f of `width` bits (1, 2, 4) at bit `shift` of each byte. One permutation
 * looks it up. It reads the low four bits of an index and ignores the rest: the fields of a half of the byte
 * share a shift, and have a table each. */
#define V16_HAS_FIELD   1
#define V16_FIELD_AT(i) ((float)(((i) >> shift % 4 & ((1 << width) - 1)) * unit + base))
V16_FN v16 v16_field(__m128i bytes, int shift, int width, int unit, int base)
{
    const __m512 table = _mm512_setr_ps(
        V16_FIELD_AT(0), V16_FIELD_AT(1), V16_FIELD_AT(2), V16_FIELD_AT(3), V16_FIELD_AT(4), V16_FIELD_AT(5),
        V16_FIELD_AT(6), V16_FIELD_AT(7), V16_FIELD_AT(8), V16_FIELD_AT(9), V16_FIELD_AT(10),
        V16_FIELD_AT(11), V16_FIELD_AT(12), V16_FIELD_AT(13), V16_FIELD_AT(14), V16_FIELD_AT(15));
    __m512i index = _mm512_srli_epi32(_mm512_cvtepu8_epi32(bytes), (unsigned)shift / 4 * 4);
    return _mm512_permutexvar_ps(index, table);
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
