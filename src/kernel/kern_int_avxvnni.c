/* kern_int_avxvnni.c - integer products with AVX-VNNI: AVX2's, whose product of words and addition are one
 * instruction. Processors without AVX-512 have it. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include "kernel/kern_code.h"
#include "kernel/kern_v16_avx2.h"

/* Tests on machines with AVX512-VNNI define the same product in its encoding. */
#if !defined(DOT_WORDS)
#define DOT_WORDS _mm256_dpwssd_avx_epi32
#endif

V16_FN __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    return DOT_WORDS(sum, a, b);
}

#define ONE_CHAINS 4
#include "kernel/kern_int_words.inc"

void kern_int_avxvnni_fill(struct kern_ops *ops)
{
    ops->int_tier = "avxvnni";
    ops->quantise = tier_quantise;
    ops->int_matmul = tier_int_matmul;
}
#endif
