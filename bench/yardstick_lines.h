/* yardstick_lines.h - what the machine can do, as the first lines of a benchmark. */
#ifndef PLATEAU_BENCH_YARDSTICK_LINES_H
#define PLATEAU_BENCH_YARDSTICK_LINES_H

#include "kernel/workers.h"
#include "kernel/yardsticks.h"

#include <stdio.h>

/* After yardsticks_measure: two to three lines. */
static inline void yardstick_lines(const struct yardsticks *y)
{
    if (y->cached)
        printf("only %zu MiB to stream: part of them may stay in cache\n", y->bytes >> 20);
    printf("reading memory: %.1f GB/s with one worker, %.1f GB/s with %u\n", y->read_one_bytes_s * 1e-9,
           y->read_bytes_s * 1e-9, workers_count(y->workers));
    if (y->peak_flop_s > 0)
        printf("f32 fused multiply-adds: %.1f GFLOP/s\n", y->peak_flop_s * 1e-9);
}

#endif
