/* kern_lines_avx512.h - lines of codes of a MATRIX_QUADS matrix (matrix.h) in a register, and where their
 * values lie in the quantised rows of the tiers with 512 bits. */
#ifndef PLATEAU_KERNEL_KERN_LINES_AVX512_H
#define PLATEAU_KERNEL_KERN_LINES_AVX512_H

#include "kernel/kern_code.h"
#include "kernel/kern_v16_avx512.h"

#include <stddef.h>

/* A row has its values in blocks of 64: their low bytes, then for two bytes their high bytes. So a block's 64
 * bytes can be a row of an AMX tile. */
enum { BLOCK_VALUES = 64 };

/* Offset of value k, and of the 15 after it; k % 16 == 0. */
V16_FN size_t values_offset(uint32_t k, int bytes)
{
    return bytes == 1 ? (size_t)k : (size_t)(k / BLOCK_VALUES) * (2 * BLOCK_VALUES) + k % BLOCK_VALUES;
}

/* A plane's field, from bit `from` of each byte to bit `to`; other bits are not cleared. */
V16_FN __m512i move_field(__m512i v, int from, int to)
{
    if (from > to)
        return _mm512_srli_epi32(v, (unsigned)(from - to));
    return from < to ? _mm512_slli_epi32(v, (unsigned)(to - from)) : v;
}

/* Line `quad` of the unit at `at`, as it lies. */
V16_FN __m512i plain_line(const uint8_t *at, int bits, uint32_t quad)
{
    if (bits == 8)
        return _mm512_loadu_si512(at + quad * 64);
    int first = bits >= 4 ? 4 : 2, second = bits - first, q = (int)quad;
    __m512i mask = _mm512_set1_epi8((char)((1 << first) - 1));
    __m512i v = move_field(_mm512_loadu_si512(at + q % first * 64), q / first * first, 0);
    v = _mm512_and_si512(v, mask);
    if (second > 0) {
        __m512i upper = _mm512_loadu_si512(at + (first + q % second) * 64);
        __m512i field = _mm512_set1_epi8((char)(((1 << second) - 1) << first));
        /* v | (moved & field), in one instruction. */
        v = _mm512_ternarylogic_epi32(v, move_field(upper, q / second * second, first), field, 0xf8);
    }
    return v;
}

/* Loads a line of codes as the numbers that products multiply. */
SHAPED __m512i codes_line(const uint8_t *at, int code, uint32_t quad)
{
    static const int8_t e2m1[16] = CODES_E2M1_TABLE, iq4[16] = CODES_IQ4_TABLE;
    const __m512i v = plain_line(at, bits_of(code), quad);
    if (map_of(code) == CODES_WHOLE)
        return v;
    const int8_t *numbers = code == CODE_E2M1 ? e2m1 : iq4;
    __m128i table = _mm_add_epi8(_mm_loadu_si128((const __m128i *)(const void *)numbers),
                                 _mm_set1_epi8((char)matrix_centre(map_of(code), 4)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
}

#endif
