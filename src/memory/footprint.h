/* footprint.h - the system's figures of this process and machine. The cross-check of the ledger, never its
 * source: gauges lag. */
#ifndef PLATEAU_MEMORY_FOOTPRINT_H
#define PLATEAU_MEMORY_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

struct footprint {
    uint64_t rss_anon_bytes, rss_file_bytes, rss_shmem_bytes, swap_bytes; /* /proc/self/status */
    uint64_t cgroup_bytes;       /* use of the cgroup, of either version, less files on disks; 0 = unknown */
    uint64_t cgroup_limit_bytes; /* the least of it and the cgroups above; 0 = none */
    uint64_t cgroup_high_bytes;  /* v2: likewise memory.high; beyond it the kernel slows the process down */
    /* Per cent of the last 10 s in which some, or all, runnable tasks waited for memory (PSI). Of the cgroup
     * where it has the figure, else of the machine. */
    double stalled_some, stalled_full;
    bool stalled_is_own;                     /* the cgroup's */
    uint64_t ram_bytes, ram_available_bytes; /* /proc/meminfo */
    uint64_t heap_bytes;                     /* resident bytes of the general allocator; 0 = unknown */
};

/* Reads /proc and /sys: about 100 us, never from an engine thread. Unknown values are 0. */
void footprint_read(struct footprint *ret);

/* True if RLIMIT_DATA refuses this process so many more bytes: other programs have no part in it. One system
 * call without a limit, else about 10 us: any thread. */
bool footprint_is_limited(uint64_t bytes);

/* Opens all arenas of the general allocator, before other threads exist. jemalloc 5.3.0 ends the process when
 * a thread's first allocation has to open an arena and the system refuses. */
void footprint_open_heap(void);

/* Makes the general allocator return its free memory to the system. 20 to 70 ms: never from an engine's
 * thread, or one that others wait for. */
void footprint_purge_heap(void);

/* Returns the bytes that the ceiling leaves to other processes: max(1 GiB, 5 %), at most half of the RAM. */
uint64_t footprint_reserve(const struct footprint *f);
/* min(wanted_bytes (0 = none), cgroup limit, RAM - reserve). */
uint64_t footprint_ceiling(const struct footprint *f, uint64_t wanted_bytes);

#endif
