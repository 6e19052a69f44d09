/* cpu_positions.h - entries of a table of learned positions between which a patch lies, and their weights.
 * Pure. */
#ifndef PLATEAU_COMPUTE_CPU_POSITIONS_H
#define PLATEAU_COMPUTE_CPU_POSITIONS_H

#include "compute/encode.h"

/* A row or column of patches on an edge of the table: entries [from, to), of which those beyond the table are
 * its first or last one. */
struct cpu_position_axis {
    bool cubic;
    double center, support, sum; /* sum: of all weights */
    int32_t from, to;
};

/* ENCODE_POSITIONS_CUBIC or _SMOOTH: where patch `index` of `count` falls on an edge of `grid` entries. */
struct cpu_position_axis cpu_position_axis(enum encode_positions kind, uint32_t index, uint32_t count,
                                           uint32_t grid);
double cpu_position_weight(const struct cpu_position_axis *a, int32_t entry);

#endif
