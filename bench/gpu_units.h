/* gpu_units.h - the cost of a commit unit, alone and beside steps; the memory of recorded steps. */
#ifndef PLATEAU_BENCH_GPU_UNITS_H
#define PLATEAU_BENCH_GPU_UNITS_H

#include "bench_rows.h"

#include "memory/domain.h"

/* Prints medians of a unit's commit and decommit. 0, or what the domain returned. */
int gpu_units_print(const struct domain *d, struct bench_rows *rows);
/* Prints what the driver's memory grows by while steps of 1 to `count` rows, GPU_GRAPH_STEPS of each, are
 * recorded. After a step on this thread. */
#define GPU_GRAPH_STEPS 3u
void gpu_graphs_print(struct bench_rows *rows, uint32_t count);

#endif
