/* rope.c - angles of a position, in double. */
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

void rope_tables_at(const struct rope_tables *r, struct rope_position position, float *angles)
{
    for (uint32_t i = 0; i < r->count; i++) {
        float *cosines = angles + rope_tables_offset(r, i);
        rope_at(&r->table[i], position, cosines, cosines + r->table[i].half);
    }
}
