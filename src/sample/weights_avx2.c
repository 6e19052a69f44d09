/* weights_avx2.c - sums of weights, eight candidates at a time. Their logits become two vectors of doubles,
 * and each goes through the operations of weight_of(). */
#include "sample/weights.h"

#include "base/candidate.h"
#include "base/sample_weight.h"

#include <immintrin.h>

static inline __m256d four_weights(__m128 below)
{
    static const double series[WEIGHT_TERMS + 1] = WEIGHT_SERIES;
    const __m256d round = _mm256_set1_pd(WEIGHT_ROUND);
    __m256d x = _mm256_cvtps_pd(below);
    __m256d t = _mm256_add_pd(_mm256_mul_pd(x, _mm256_set1_pd(WEIGHT_PER_LN2)), round);
    __m256d n = _mm256_sub_pd(t, round), y = _mm256_set1_pd(series[0]);
    __m256d r = _mm256_sub_pd(x, _mm256_mul_pd(n, _mm256_set1_pd(WEIGHT_LN2_HIGH)));
    r = _mm256_sub_pd(r, _mm256_mul_pd(n, _mm256_set1_pd(WEIGHT_LN2_LOW)));
#pragma GCC unroll 12
    for (int i = 1; i <= WEIGHT_TERMS; i++)
        y = _mm256_add_pd(_mm256_mul_pd(y, r), _mm256_set1_pd(series[i]));
    __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(t), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(y), power));
}

double weights_sum_avx2(const struct candidate *list, uint32_t count)
{
    const uint32_t whole = count / 8 * 8;
    __m256d low = _mm256_setzero_pd(), high = low;
    double s[8];
    for (uint32_t i = 0; i < whole; i += 8) {
        __m256 a = _mm256_loadu_ps(&list[i].logit), b = _mm256_loadu_ps(&list[i + 4].logit);
        __m256d mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
        __m256 logits = _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, _MM_SHUFFLE(3, 1, 2, 0)));
        low = _mm256_add_pd(low, four_weights(_mm256_castps256_ps128(logits)));
        high = _mm256_add_pd(high, four_weights(_mm256_extractf128_ps(logits, 1)));
    }
    _mm256_storeu_pd(s, low);
    _mm256_storeu_pd(s + 4, high);
    for (uint32_t i = whole; i < count; i++)
        s[i % 8] += weight_of(list[i].logit);
    return weight_add(s);
}
