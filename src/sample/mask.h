/* mask.h - which ids of a row may be drawn. Private to sample/. Any thread. */
#ifndef PLATEAU_SAMPLE_MASK_H
#define PLATEAU_SAMPLE_MASK_H

#include <stdint.h>

/* logits[i] becomes -infinity where bit i of `valid` or `allowed` is 0 (NULL: all are 1), and where it is NaN
 * (a broken checkpoint), which must not win every comparison by losing none. Returns the largest. */
typedef float mask_ids_fn(float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed);
mask_ids_fn mask_ids;                      /* by the fastest of: */
mask_ids_fn mask_ids_plain, mask_ids_avx2; /* the same results; the second needs AVX2 */

#endif
