/* workers.h - the one pool of threads that computes, shared by all engines of the process.
 *
 * Workers = min(physical cores, cpuset, ceil of the cgroup quota); the engine that calls is one of them. Work
 * is a function over tiles; workers claim tiles by ticket. At the barrier they spin at most 20 us, then sleep
 * on a futex; an idle pool uses no CPU. Two engines never compute at once: they take turns, longest waiting
 * first. */
#ifndef PLATEAU_KERNEL_WORKERS_H
#define PLATEAU_KERNEL_WORKERS_H

#include "memory/ledger.h"

#include <stdbool.h>

struct workers;

/* Number of workers for this process on this machine. */
uint32_t workers_default_count(void);
/* `count` workers in all, so count - 1 threads with stacks of 256 KiB, mapped by us and charged to `stacks`
 * (may be NULL). 0, -EINVAL (0 or more than 256), -ENOMEM, -EAGAIN. */
int workers_create(uint32_t count, struct account *stacks, struct workers **ret);
#define WORKERS_STACK_BYTES ((size_t)256 << 10)
/* Joins the threads. No thread may have a turn or wait for one. NULL is fine. */
void workers_free(struct workers *w);
uint32_t workers_count(const struct workers *w);

/* A turn: between begin and end the caller has the pool for itself. First come, first served. */
void workers_turn_begin(struct workers *w);
void workers_turn_end(struct workers *w);
/* A turn now, if no other has one or waits for one. False: no turn. */
bool workers_turn_try(struct workers *w);
/* Returns whether a caller has a turn, waits for one, or had one within the last 20 ms: between two steps.
 * Any thread; takes no lock. */
bool workers_busy(const struct workers *w);

/* Calls fn(arg, tile, worker) once for every tile < tiles, on all workers, and returns when all are done.
 * The tiles' writes are then visible to the caller, and to later runs. Inside a turn. worker <
 * workers_count(). */
typedef void workers_fn(void *arg, uint32_t tile, uint32_t worker);
void workers_run(struct workers *w, workers_fn *fn, void *arg, uint32_t tiles);

#endif
