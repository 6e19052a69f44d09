/* mask_avx2.c - the mask, 64 ids at a time. */
#include "sample/mask.h"

#include <immintrin.h>
#include <math.h>

enum { WORD = 64, LANES = 8, RUNS = 2 };

/* Several at a time, so that they need not wait for one another. */
struct most {
    __m256 runs[RUNS];
};

/* Writes nothing unless there is a NaN. */
static void take_all(float *row, struct most *most)
{
    __m256 none = _mm256_set1_ps(-INFINITY), nan = _mm256_setzero_ps();
    for (uint32_t i = 0; i < WORD; i += LANES) {
        __m256 x = _mm256_loadu_ps(row + i), *run = &most->runs[i / LANES % RUNS];
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        *run = _mm256_max_ps(x, *run); /* the second of the two if x is NaN */
    }
    for (uint32_t i = 0; _mm256_movemask_ps(nan) && i < WORD; i += LANES) {
        __m256 x = _mm256_loadu_ps(row + i);
        _mm256_storeu_ps(row + i, _mm256_blendv_ps(x, none, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    }
}

static void take_some(float *row, uint64_t have, struct most *most)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (uint32_t i = 0; i < WORD; i += LANES) {
        __m256i own = _mm256_and_si256(_mm256_set1_epi32((int)(have >> i & 255)), bit);
        __m256 x = _mm256_loadu_ps(row + i), *run = &most->runs[i / LANES % RUNS];
        __m256 stays =
            _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(own, bit)), _mm256_cmp_ps(x, x, _CMP_ORD_Q));
        x = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, stays);
        _mm256_storeu_ps(row + i, x);
        *run = _mm256_max_ps(x, *run);
    }
}

static void take_none(float *row)
{
    for (uint32_t i = 0; i < WORD; i += LANES)
        _mm256_storeu_ps(row + i, _mm256_set1_ps(-INFINITY));
}

static float largest(const struct most *most)
{
    float lanes[LANES], ret = -INFINITY;
    _mm256_storeu_ps(lanes, _mm256_max_ps(most->runs[0], most->runs[1]));
    for (uint32_t i = 0; i < LANES; i++)
        ret = lanes[i] > ret ? lanes[i] : ret;
    return ret;
}

float mask_ids_avx2(float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    const uint32_t words = count / WORD;
    struct most most = {{_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)}};
    for (uint32_t i = 0; i < words; i++) {
        uint64_t have = mask_word(valid, allowed, i);
        float *row = logits + (size_t)i * WORD;
        if (have == ~(uint64_t)0)
            take_all(row, &most);
        else if (have == 0)
            take_none(row);
        else
            take_some(row, have, &most);
    }
    float rest = mask_ids_plain(logits + (size_t)words * WORD, count % WORD, valid ? valid + words : NULL,
                                allowed ? allowed + words : NULL);
    float ret = largest(&most);
    return rest > ret ? rest : ret;
}

/* The second operand of a maximum is the result where the first is NaN. */
static void see_all(const float *row, struct most *most)
{
    for (uint32_t i = 0; i < WORD; i += LANES) {
        __m256 *run = &most->runs[i / LANES % RUNS];
        *run = _mm256_max_ps(_mm256_loadu_ps(row + i), *run);
    }
}

static void see_some(const float *row, uint64_t have, struct most *most)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (uint32_t i = 0; i < WORD; i += LANES) {
        if ((have >> i & 255) == 0)
            continue;
        __m256i own = _mm256_and_si256(_mm256_set1_epi32((int)(have >> i & 255)), bit);
        __m256 stays = _mm256_castsi256_ps(_mm256_cmpeq_epi32(own, bit)),
               *run = &most->runs[i / LANES % RUNS];
        __m256 x = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_loadu_ps(row + i), stays);
        *run = _mm256_max_ps(x, *run);
    }
}

float mask_most_avx2(const float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    const uint32_t words = count / WORD;
    struct most most = {{_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)}};
    for (uint32_t i = 0; i < words; i++) {
        uint64_t have = mask_word(valid, allowed, i);
        if (have == ~(uint64_t)0)
            see_all(logits + (size_t)i * WORD, &most);
        else if (have != 0)
            see_some(logits + (size_t)i * WORD, have, &most);
    }
    float rest = mask_most_plain(logits + (size_t)words * WORD, count % WORD, valid ? valid + words : NULL,
                                 allowed ? allowed + words : NULL);
    float ret = largest(&most);
    return rest > ret ? rest : ret;
}
