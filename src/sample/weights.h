/* weights.h - how much candidates weigh together. Private to sample/. Any thread. */
#ifndef PLATEAU_SAMPLE_WEIGHTS_H
#define PLATEAU_SAMPLE_WEIGHTS_H

#include <stdint.h>

struct candidate;

/* The weight of list[0] to list[count - 1] together. Sum i of eight has every eighth candidate from list[i]
 * on; weight_add() adds them. */
typedef double weights_sum_fn(const struct candidate *list, uint32_t count);
weights_sum_fn weights_sum;                         /* by the faster of: */
weights_sum_fn weights_sum_plain, weights_sum_avx2; /* equal bits; the second needs AVX2 */

#endif
