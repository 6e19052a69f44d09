/* device.h - what computes: the CPU with its kernels and the process's pool of workers, or another backend's.
 *
 * A process opens it once. Models are loaded for it, and their engines take turns by step: two never compute
 * at once, longest waiting first. Between begin and end of a turn an engine computes a step with its drafts,
 * or pieces of an image. Any thread, except where stated. */
#ifndef PLATEAU_COMPUTE_DEVICE_H
#define PLATEAU_COMPUTE_DEVICE_H

#include "memory/domain.h"
#include "memory/units.h"

struct device;
struct backend;

/* The machine's workers for this process. */
uint32_t device_default_workers(void);
/* Bytes of the stacks of `workers` workers; the first one is the calling engine. */
uint64_t device_stack_bytes(uint32_t workers);
/* The CPU with `workers` threads, the calling engine counted; their stacks are charged to `stacks` (may be
 * NULL). 0, -EINVAL (0 or more than 256 workers), -ENOMEM, -EAGAIN. */
int device_open_cpu(uint32_t workers, struct account *stacks, struct device **ret);
/* No thread may have a turn or wait for one. NULL is fine. */
void device_close(struct device *d);

const struct backend *device_backend(const struct device *d);
/* The memory it computes in: weights, pages, states, features of images. */
const struct domain *device_domain(const struct device *d);
uint32_t device_workers(const struct device *d);
/* Of the matrix products: "ref", "avx2", "avx512". */
const char *device_tier(const struct device *d);
/* What of the device a result's bits may depend on: part of every cache key. */
unsigned device_flags(const struct device *d);

void device_turn_begin(struct device *d);
void device_turn_end(struct device *d);
/* Whether an engine has a turn, waits for one, or had one within the last 20 ms: between two steps. Takes no
 * lock. */
bool device_is_busy(const struct device *d);
/* Its steps fail with -ENODEV, and what it held is gone: its models are only to be closed. */
bool device_is_lost(const struct device *d);
/* A lost device, of whose memory nothing is committed any more, begins anew. 0, or -EIO and it stays lost. */
int device_reopen(struct device *d);
/* Threads that populate commit units, unless an engine has its turn. */
struct units_crew device_crew(struct device *d);

#endif
