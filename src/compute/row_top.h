/* row_top.h - the best tokens of a row of logits: a token's alternatives.
 *
 * Read by C and by CUDA C++. */
#ifndef PLATEAU_COMPUTE_ROW_TOP_H
#define PLATEAU_COMPUTE_ROW_TOP_H

#include "base/candidate.h"

#include <stdint.h>

#define ROW_TOP_MAX 32u

struct row_top {
    uint32_t count;
    /* The best tokens of the row: logit down, id up. They may be fewer than were wanted. Ids that are not
     * valid, NaN and -infinity are left out. */
    struct candidate list[ROW_TOP_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif
/* The best `want` tokens, at most ROW_TOP_MAX, in the plainest form. valid: bit per id; NULL: all. Any
 * thread. */
void row_top_of(const float *logits, uint32_t vocab, const uint64_t *valid, uint32_t want,
                struct row_top *ret);
#ifdef __cplusplus
}
#endif

#endif
