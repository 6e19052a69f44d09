/* weight.h - packed weights as block operations take them. Constant once bound; the bytes lie in the memory
 * of the device. */
#ifndef PLATEAU_COMPUTE_WEIGHT_H
#define PLATEAU_COMPUTE_WEIGHT_H

#include "memory/dev.h"
#include "kernel/matrix.h"

/* Group sizes whose sums a CPU product needs of its input. */
enum { SUMS_32 = 1, SUMS_64 = 2, SUMS_128 = 4 };

/* Matrices that read the same input, their outputs one after the other: y = [part 0 | part 1 | ...]. Parts
 * with the same form, bits and group are packed as one. A stack of experts is a projection with one part. */
#define PROJECTION_PARTS_MAX 5
struct projection {
    uint32_t in, out;
    uint32_t part_count;
    unsigned sums; /* SUMS_*; 0 when all parts are dense */
    struct matrix parts[PROJECTION_PARTS_MAX];
};

#endif
