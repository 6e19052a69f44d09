/* row_top.h - the best tokens of a row of logits, from which most draws can be made.
 *
 * Read by C and by CUDA C++. */
#ifndef PLATEAU_COMPUTE_ROW_TOP_H
#define PLATEAU_COMPUTE_ROW_TOP_H

#include "base/candidate.h"

#include <stdint.h>

#define ROW_TOP_MAX   1024u
#define ROW_TOP_ERROR 1e-6 /* of row_top.mass, relative, at most */

/* The part of a row that the host gets. */
struct row_want {
    uint32_t count;    /* that many of its best tokens, at most ROW_TOP_MAX; 0: all logits */
    float temperature; /* > 0: the mass, too */
};

struct row_top {
    /* Of exp((logit - list[0].logit) / temperature) over the row; the difference and the quotient are rounded
     * to float. */
    double mass;
    uint32_t count;
    /* The best tokens of the row: logit down, id up. They may be fewer than were wanted. Ids that are not
     * valid, NaN and -infinity are left out, here and in the mass. */
    struct candidate list[ROW_TOP_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif
/* The reference, in its plainest form. valid: bit per id; NULL: all. Any thread. */
void row_top_of(const float *logits, uint32_t vocab, const uint64_t *valid, const struct row_want *want,
                struct row_top *ret);
#ifdef __cplusplus
}
#endif

#endif
