/* tile_peak.h - what the units of integer products and of bf16 products can do, for shares of it. */
#ifndef PLATEAU_BENCH_TILE_PEAK_H
#define PLATEAU_BENCH_TILE_PEAK_H

#include "kernel/yardsticks.h"

enum peak_unit { PEAK_NONE, PEAK_VNNI, PEAK_TILES_INT8 };

/* The unit that integer products use here. */
enum peak_unit peak_of_integers(const struct yardsticks *y);
const char *peak_name(enum peak_unit unit);
/* Seconds of one pass of all workers, and a pass's operations: two for a multiply-add. */
double peak_once(const struct yardsticks *y, enum peak_unit unit);
double peak_operations(const struct yardsticks *y, enum peak_unit unit);

#endif
