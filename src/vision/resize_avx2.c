/* resize_avx2.c - both passes with 16-bit pairs: one madd adds two products, and weights come as two halves
 * (resize_taps.h). */
#include "vision/resize_taps.h"

#include "base/check.h"

#include <immintrin.h>
#include <string.h>

static __m256i rounded(__m256i high, __m256i low)
{
    __m256i half = _mm256_set1_epi32(1 << (RESIZE_FRACTION - 1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, RESIZE_LOW), low), half);
    return _mm256_srai_epi32(sum, RESIZE_FRACTION);
}

/* Four weights w0..w3 as pairs: w0 w1 in each of the lower lane's places, w2 w3 in the upper's. */
static __m256i pairs(const int16_t *w)
{
    int64_t four;
    memcpy(&four, w, sizeof(four));
    __m256i places = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    return _mm256_permutevar8x32_epi32(_mm256_set1_epi64x(four), places);
}

/* One pixel from `count` padded to four inputs at p, of which 16 bytes per four are read. */
static void one_across(uint8_t *to, const uint8_t *p, uint32_t count, const int16_t *high, const int16_t *low)
{
    /* Bytes of inputs 0 and 1 side by side for each colour, as 16 bits; of inputs 2 and 3 in the upper
     * lane. */
    const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1,
                                            9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    __m256i sum_high = _mm256_setzero_si256(), sum_low = sum_high;
    for (uint32_t i = 0; i < count; i += 4) {
        __m256i in = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p + (size_t)i * 3)));
        in = _mm256_shuffle_epi8(in, spread);
        sum_high = _mm256_add_epi32(sum_high, _mm256_madd_epi16(in, pairs(high + i)));
        sum_low = _mm256_add_epi32(sum_low, _mm256_madd_epi16(in, pairs(low + i)));
    }
    /* The halves of the sum meet before they are rounded. */
    __m256i swapped_high = _mm256_permute2x128_si256(sum_high, sum_high, 1);
    __m256i swapped_low = _mm256_permute2x128_si256(sum_low, sum_low, 1);
    __m256i all = rounded(_mm256_add_epi32(sum_high, swapped_high), _mm256_add_epi32(sum_low, swapped_low));
    __m128i narrow = _mm256_castsi256_si128(_mm256_packs_epi32(all, all));
    uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(narrow, narrow));
    memcpy(to, &pixel, 4);
}

void resize_across_avx2(uint8_t *to, const uint8_t *from, uint32_t from_width, const struct resize_taps *t)
{
    uint32_t x = 0;
    for (; x < t->outputs; x++) {
        size_t reads = ((size_t)t->first[x] + ROUND_UP(t->count[x], 4u)) * 3 + 4;
        if (reads > (size_t)from_width * 3)
            break;
        size_t at = (size_t)x * t->stride;
        one_across(to + (size_t)x * 3, from + (size_t)t->first[x] * 3, t->count[x], t->high + at,
                   t->low + at);
    }
    resize_across_from(to, from, t, x);
}

static __m256i both(const int16_t *w)
{
    int32_t two;
    memcpy(&two, w, sizeof(two));
    return _mm256_set1_epi32(two);
}

/* 32 bytes of the result from `count` padded to two rows at offset i. */
static void thirty_two_down(uint8_t *to, const uint8_t *const *rows, size_t i, uint32_t count,
                            const int16_t *high, const int16_t *low)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i h[4] = {zero, zero, zero, zero}, l[4] = {zero, zero, zero, zero};
    for (uint32_t k = 0; k < count; k += 2) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(rows[k] + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(rows[k + 1] + i));
        __m256i lower = _mm256_unpacklo_epi8(a, b), upper = _mm256_unpackhi_epi8(a, b);
        __m256i in[4] = {_mm256_unpacklo_epi8(lower, zero), _mm256_unpackhi_epi8(lower, zero),
                         _mm256_unpacklo_epi8(upper, zero), _mm256_unpackhi_epi8(upper, zero)};
        __m256i w_high = both(high + k), w_low = both(low + k);
        for (int j = 0; j < 4; j++) {
            h[j] = _mm256_add_epi32(h[j], _mm256_madd_epi16(in[j], w_high));
            l[j] = _mm256_add_epi32(l[j], _mm256_madd_epi16(in[j], w_low));
        }
    }
    /* Packing goes by lanes as unpacking did, so that bytes are in order again. */
    __m256i first = _mm256_packs_epi32(rounded(h[0], l[0]), rounded(h[1], l[1]));
    __m256i second = _mm256_packs_epi32(rounded(h[2], l[2]), rounded(h[3], l[3]));
    _mm256_storeu_si256((__m256i *)(to + i), _mm256_packus_epi16(first, second));
}

void resize_down_avx2(uint8_t *to, const uint8_t *const *rows, size_t bytes, const struct resize_taps *t,
                      uint32_t y)
{
    size_t at = (size_t)y * t->stride, i = 0;
    for (; i + 32 <= bytes; i += 32)
        thirty_two_down(to, rows, i, t->count[y], t->high + at, t->low + at);
    resize_down_from(to, rows, bytes, t, y, i);
}
