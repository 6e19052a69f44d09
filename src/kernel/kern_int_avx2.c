/* kern_int_avx2.c - integer products with AVX2: codes widened to words, multiplied by words and added in
 * pairs to 32 bits, which cannot overflow. (The product of bytes adds pairs in 16 bits and saturates: codes
 * of 8 bits need more.) A value of one byte costs as much as one of two.
 *
 * A quantised row has words in either mode, those of a quad in the order 0, 2, 1, 3. Codes 0 and 2 of a quad
 * are the even bytes of a line, 1 and 3 the odd ones. One mask or one shift widens them in place, and a
 * pair's sum lands in its row's lane. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_v16_avx2.h"

#define MORE_COLUMNS       4
#define MANY_PANELS(bytes) 1u
#define VALUES_QUAD        8
#define CODES_BYTES        128

/* ---- quantised rows ---- */

/* Offset of a unit's values. */
V16_FN size_t values_unit(uint32_t unit, int bytes)
{
    (void)bytes;
    return (size_t)unit * 64;
}

static uint32_t group_max(const float *x, uint32_t group)
{
    __m256i max = _mm256_setzero_si256(), magnitude = _mm256_set1_epi32(0x7fffffff);
    uint32_t lanes[8], most = 0;
    for (uint32_t i = 0; i < group; i += 8)
        max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), magnitude));
    _mm256_storeu_si256((void *)lanes, max);
    for (uint32_t i = 0; i < 8; i++)
        most = MAX_OF(most, lanes[i]);
    return most;
}

V16_FN __m256i eight_values(const float *x, __m256 factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
}

/* Sixteen values as words, a quad's in the order 0, 2, 1, 3. */
V16_FN void store_values(char *at, __m256i low, __m256i high)
{
    __m256i words = _mm256_packs_epi32(_mm256_shuffle_epi32(low, _MM_SHUFFLE(3, 1, 2, 0)),
                                       _mm256_shuffle_epi32(high, _MM_SHUFFLE(3, 1, 2, 0)));
    _mm256_storeu_si256((void *)at, _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0)));
}

static int32_t add_lanes(__m256i v)
{
    int32_t lanes[8], sum = 0;
    _mm256_storeu_si256((void *)lanes, v);
    for (uint32_t i = 0; i < 8; i++)
        sum += lanes[i];
    return sum;
}

static void tier_quantise(void *row, const struct quants *q, const float *x, uint32_t from, uint32_t to)
{
    struct quants_group *groups = row;
    char *values = (char *)row + quants_values_at(q);
    ASSERT(from % q->group == 0 && to % q->group == 0 && to <= q->k);
    for (uint32_t k = from; k < to; k += q->group) {
        struct quants_step step = quants_step_of(group_max(x + k, q->group), q->bytes);
        __m256 factor = _mm256_set1_ps(step.factor);
        __m256i sum = _mm256_setzero_si256();
        if (step.kind != QUANTS_VALUES)
            memset(values + (size_t)k * 2, 0, (size_t)q->group * 2);
        for (uint32_t i = k; step.kind == QUANTS_VALUES && i < k + q->group; i += 16) {
            __m256i low = eight_values(x + i, factor), high = eight_values(x + i + 8, factor);
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
            store_values(values + (size_t)i * 2, low, high);
        }
        groups[k / q->group] = (struct quants_group){step.scale, (float)add_lanes(sum) * step.scale};
    }
}

/* ---- products ---- */

/* Rows 0 to 7 and 8 to 15: the even and the odd bytes as words. */
typedef struct {
    __m256i even[2], odd[2];
} codes;
typedef struct {
    __m256i low, high;
} isum;

V16_FN __m256i half_line(const uint8_t *at)
{
    return _mm256_loadu_si256((const void *)at);
}

V16_FN __m256i move_field(__m256i v, int from, int to)
{
    if (from > to)
        return _mm256_srli_epi32(v, from - to);
    return from < to ? _mm256_slli_epi32(v, to - from) : v;
}

/* One half's bytes of line `quad` of the unit at `at`. */
V16_FN __m256i half_bytes(const uint8_t *at, int bits, int q)
{
    if (bits == 8)
        return half_line(at + q * 64);
    int first = bits >= 4 ? 4 : 2, second = bits - first;
    __m256i v = move_field(half_line(at + q % first * 64), q / first * first, 0);
    v = _mm256_and_si256(v, _mm256_set1_epi8((char)((1 << first) - 1)));
    if (second > 0) {
        __m256i upper = move_field(half_line(at + (first + q % second) * 64), q / second * second, first);
        __m256i field = _mm256_set1_epi8((char)(((1 << second) - 1) << first));
        v = _mm256_or_si256(v, _mm256_and_si256(upper, field));
    }
    return v;
}

V16_FN codes codes_line(const uint8_t *at, int bits, uint32_t quad)
{
    codes c;
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = half_bytes(at + half * 32, bits, (int)quad);
        c.even[half] = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
        c.odd[half] = _mm256_srli_epi16(v, 8);
    }
    return c;
}

V16_FN void codes_store(uint8_t *at, codes c)
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        _mm256_store_si256((void *)(at + half * 64), c.even[half]);
        _mm256_store_si256((void *)(at + half * 64 + 32), c.odd[half]);
    }
}

V16_FN codes codes_load(const uint8_t *at)
{
    return (codes){{half_line(at), half_line(at + 64)}, {half_line(at + 32), half_line(at + 96)}};
}

V16_FN isum isum_zero(void)
{
    return (isum){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

V16_FN __m256i two_words(const char *at)
{
    int32_t words;
    memcpy(&words, at, 4);
    return _mm256_set1_epi32(words);
}

V16_FN void isum_dot(isum *sum, codes line, const char *x, int bytes)
{
    __m256i even = two_words(x), odd = two_words(x + 4);
    (void)bytes;
    sum->low = _mm256_add_epi32(sum->low, _mm256_madd_epi16(line.even[0], even));
    sum->high = _mm256_add_epi32(sum->high, _mm256_madd_epi16(line.even[1], even));
    sum->low = _mm256_add_epi32(sum->low, _mm256_madd_epi16(line.odd[0], odd));
    sum->high = _mm256_add_epi32(sum->high, _mm256_madd_epi16(line.odd[1], odd));
    /* Compilers may not put the products of several quads together first: those do not fit in registers. */
    __asm__("" : "+x"(sum->low), "+x"(sum->high));
}

V16_FN isum isum_add(isum a, isum b)
{
    return (isum){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

V16_FN v16 isum_floats(isum a, int bytes)
{
    (void)bytes;
    return (v16){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

#include "kernel/kern_qparam.inc"
#include "kernel/kern_int.inc"

void kern_int_avx2_fill(struct kern_ops *ops)
{
    ops->int_tier = "avx2";
    ops->quantise = tier_quantise;
    ops->int_matmul = tier_int_matmul;
}
#endif
