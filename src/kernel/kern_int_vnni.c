/* kern_int_vnni.c - integer products with AVX512-VNNI: an instruction multiplies 64 unsigned codes by four
 * signed bytes of a column. A value of two bytes is v = 256 high + low, both signed: two such products, whose
 * sums join exactly. The AMX tier takes over its quantised rows, and its products of few columns. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_lines_avx512.h"

#define ONE_CHAINS    4
#define BYTES_DIFFER  1
#define MORE_COLUMNS  8
#define CHUNK_COLUMNS 128
#define MANY_PANELS   2
#define VALUES_QUAD   4
#define CODES_BYTES   64

/* ---- quantised rows ---- */

static uint32_t group_max(const float *x, uint32_t group)
{
    __m512i max = _mm512_setzero_si512(), magnitude = _mm512_set1_epi32(0x7fffffff);
    for (uint32_t i = 0; i < group; i += 16)
        max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    return _mm512_reduce_max_epu32(max);
}

/* Sixteen values from value k of a row on. */
V16_FN void store_values(char *values, uint32_t k, uint32_t bytes, __m512i v)
{
    if (bytes == 1) {
        _mm_storeu_si128((__m128i *)(void *)(values + k), _mm512_cvtepi32_epi8(v));
        return;
    }
    char *at = values + k / BLOCK_VALUES * (2 * BLOCK_VALUES) + k % BLOCK_VALUES;
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)(void *)at, _mm512_cvtepi32_epi8(v));
    _mm_storeu_si128((__m128i *)(void *)(at + BLOCK_VALUES), _mm512_cvtepi32_epi8(high));
}

static void tier_quantise(void *row, const struct quants *q, const float *x, uint32_t from, uint32_t to)
{
    struct quants_group *groups = row;
    char *values = (char *)row + quants_values_at(q);
    ASSERT(from % q->group == 0 && to % q->group == 0 && to <= q->k);
    for (uint32_t k = from; k < to; k += q->group) {
        struct quants_step step = quants_step_of(group_max(x + k, q->group), q->bytes);
        __mmask16 keep = step.kind == QUANTS_VALUES ? 0xffff : 0;
        __m512i sum = _mm512_setzero_si512();
        for (uint32_t i = k; i < k + q->group; i += 16) {
            v16 scaled = v16_mul(v16_load(x + i), v16_set(step.factor));
            __m512i v = _mm512_maskz_cvtps_epi32(keep, scaled);
            sum = _mm512_add_epi32(sum, v);
            store_values(values, i, q->bytes, v);
        }
        groups[k / q->group] =
            (struct quants_group){step.scale, (float)_mm512_reduce_add_epi32(sum) * step.scale};
    }
}

/* ---- products ---- */

typedef __m512i codes;
typedef struct {
    __m512i low, high; /* high: of two bytes alone */
} isum;

V16_FN void codes_store(uint8_t *at, codes v)
{
    _mm512_store_si512((void *)at, v);
}

V16_FN codes codes_load(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

V16_FN isum isum_zero(void)
{
    return (isum){_mm512_setzero_si512(), _mm512_setzero_si512()};
}

V16_FN __m512i four_bytes(const char *at)
{
    int32_t word;
    memcpy(&word, at, 4);
    return _mm512_set1_epi32(word);
}

V16_FN void isum_dot(isum *sum, codes line, const char *x, int bytes)
{
    sum->low = _mm512_dpbusd_epi32(sum->low, line, four_bytes(x));
    if (bytes == 2)
        sum->high = _mm512_dpbusd_epi32(sum->high, line, four_bytes(x + BLOCK_VALUES));
}

V16_FN isum isum_add(isum a, isum b)
{
    return (isum){_mm512_add_epi32(a.low, b.low), _mm512_add_epi32(a.high, b.high)};
}

V16_FN v16 isum_floats(isum a, int bytes)
{
    if (bytes == 2)
        a.low = _mm512_add_epi32(a.low, _mm512_slli_epi32(a.high, 8));
    return _mm512_cvtepi32_ps(a.low);
}

/* With many columns the bytes of a value are passes of their own. */
#define VALUE_HALVES(bytes) ((uint32_t)(bytes))
#define HALF_BYTES          BLOCK_VALUES
typedef __m512i half_sum;

V16_FN half_sum half_sum_zero(void)
{
    return _mm512_setzero_si512();
}

V16_FN void half_sum_dot(half_sum *sum, codes line, const char *x)
{
    *sum = _mm512_dpbusd_epi32(*sum, line, four_bytes(x));
    /* Compilers may not mix the products of several quads: they would move sums from register to register. */
    __asm__("" : "+v"(*sum));
}

V16_FN half_sum half_sum_raise(half_sum a)
{
    return _mm512_slli_epi32(a, 8);
}

V16_FN v16 half_sum_floats(half_sum a)
{
    return _mm512_cvtepi32_ps(a);
}

#include "kernel/kern_qparam.inc"
#include "kernel/kern_int.inc"

void kern_int_vnni_matmul(const struct matrix *w, const struct kern_int_columns *c, uint32_t panel_begin,
                          uint32_t panel_end)
{
    tier_int_matmul(w, c, panel_begin, panel_end);
}

void kern_int_vnni_fill(struct kern_ops *ops)
{
    ops->int_tier = "vnni";
    ops->quantise = tier_quantise;
    ops->int_matmul = tier_int_matmul;
    ops->int_columns_many = CHUNK_COLUMNS;
}
#endif
