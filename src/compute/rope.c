/* rope.c - the angles of one position. */
#include "compute/rope.h"

#include <math.h>

void rope_at(const struct rope *r, struct rope_position position, float *cosines, float *sines)
{
    for (uint32_t j = 0; j < r->half; j++) {
        double angle = (double)position.axis[r->axis[j]] * r->inv_freq[j];
        cosines[j] = (float)(cos(angle) * r->magnitude);
        sines[j] = (float)(sin(angle) * r->magnitude);
    }
}
