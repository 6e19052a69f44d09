/* mask.h - which ids of a row may be sampled. Private to sample/. Any thread. */
#ifndef PLATEAU_SAMPLE_MASK_H
#define PLATEAU_SAMPLE_MASK_H

#include <stdint.h>

/* logits[i] becomes -infinity where bit i of `valid` or `allowed` is 0 (NULL: all are 1), and where it is NaN
 * (a broken checkpoint), which must not win every comparison by losing none. Returns the largest. */
typedef float mask_ids_fn(float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed);
mask_ids_fn mask_ids;                      /* by the fastest of: */
mask_ids_fn mask_ids_plain, mask_ids_avx2; /* equal results; the second needs AVX2 */

/* Returns the result of mask_ids(); writes nothing, and reads no logit whose bit is 0. */
typedef float mask_most_fn(const float *logits, uint32_t count, const uint64_t *valid,
                           const uint64_t *allowed);
mask_most_fn mask_most;
mask_most_fn mask_most_plain, mask_most_avx2;

/* Bits of ids [64 * word, 64 * word + 64) that both masks have; NULL: all of them. */
static inline uint64_t mask_word(const uint64_t *valid, const uint64_t *allowed, uint32_t word)
{
    return (valid ? valid[word] : ~(uint64_t)0) & (allowed ? allowed[word] : ~(uint64_t)0);
}

#endif
