/* yardsticks.h - what this machine can do: reading memory, and fused multiply-adds. Benchmarks, and the
 * command bench, are given as shares of it.
 *
 * Each of them measures everything anew: a shared machine changes every minute. One thread. */
#ifndef PLATEAU_KERNEL_YARDSTICKS_H
#define PLATEAU_KERNEL_YARDSTICKS_H

#include "kernel/workers.h"

#include <stdbool.h>
#include <stddef.h>

struct yardsticks {
    /* Set by yardsticks_init, then constant. */
    struct workers *workers;
    unsigned cpu_flags;
    char *memory; /* huge pages, all 0x3c */
    size_t bytes;
    bool cached; /* memory was short: part of what is streamed may stay in a cache */
    /* Medians, from yardsticks_measure. */
    double read_one_bytes_s, read_bytes_s; /* with one worker, with all */
    double peak_flop_s;                    /* f32, all workers; 0: no vector unit that we use */
};

/* Median seconds of one call; the first one warms up and does not count. Short calls are repeated inside a
 * sample. */
double yardsticks_seconds(void (*fn)(void *arg), void *arg);

/* Bytes of the last-level cache; 0: unknown. */
size_t yardsticks_cache_bytes(void);

/* Bytes to stream in a benchmark. A command on a user's machine takes less. */
#define YARDSTICK_BYTES       ((size_t)2 << 30)
#define YARDSTICK_BYTES_SMALL ((size_t)256 << 20)
/* Memory to stream: four times the last-level cache and at least `least`, but at most a third of the free
 * memory. 0 or -ENOMEM. */
int yardsticks_init(struct yardsticks *y, struct workers *w, size_t least);
/* Zeroed is fine; zeroes it. */
void yardsticks_done(struct yardsticks *y);

/* The three figures; inside a turn of the workers, as all below. */
void yardsticks_measure(struct yardsticks *y);

/* One pass of all workers, for pairs: both sides are measured at the same time. Seconds. */
double yardsticks_read_once(const struct yardsticks *y);
double yardsticks_fma_once(const struct yardsticks *y);
/* Operations of such a pass; 0: no vector unit that we use. */
double yardsticks_fma_flop(const struct yardsticks *y);

#endif
