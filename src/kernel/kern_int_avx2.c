/* kern_int_avx2.c - integer products with AVX2. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_code.h"
#include "kernel/kern_v16_avx2.h"

V16_FN __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* An addition has no latency to hide. */
#define ONE_CHAINS 1
#include "kernel/kern_int_words.inc"

void kern_int_avx2_fill(struct kern_ops *ops)
{
    ops->int_tier = "avx2";
    ops->quantise = tier_quantise;
    ops->int_matmul = tier_int_matmul;
}
#endif
