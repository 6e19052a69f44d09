/* device.h - what computes: the CPU with its kernels and the process's pool of workers, or another backend's.
 *
 * A process opens each one once. Models are loaded for it, and their engines take turns by step: two never
 * compute at once, longest waiting first. Between begin and end of a turn an engine computes a step with its
 * drafts, or pieces of an image. Any thread, except where stated. */
#ifndef PLATEAU_COMPUTE_DEVICE_H
#define PLATEAU_COMPUTE_DEVICE_H

#include "memory/units.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct device;

struct device_ops {
    /* No thread may have a turn or wait for one. */
    void (*close)(struct device *d);
    void (*turn_begin)(struct device *d);
    void (*turn_end)(struct device *d);
    /* Whether an engine has a turn, waits for one, or had one within the last 20 ms: between two steps. Takes
     * no lock. */
    bool (*is_busy)(const struct device *d);
    /* A lost device, of whose memory nothing is committed any more, begins anew. 0, or -EIO and it stays
     * lost. NULL: it is never lost. */
    int (*reopen)(struct device *d);
    /* Host memory that stays where it is until unpin: copies to it take less time. What fails costs that
     * alone. NULL: it makes no difference. */
    void (*pin)(struct device *d, void *at, size_t bytes);
    void (*unpin)(struct device *d, void *at);
};

/* Memory of a device with its own when it was opened, by its driver: all of it, the free part beside the
 * context, and the context. Zeros: not measured. */
struct device_measured {
    uint64_t total_bytes, free_bytes, context_bytes;
};

/* Begins every backend's own struct. Constant once open, but for `lost`. */
struct device {
    const struct device_ops *ops;
    const struct backend *backend;
    const struct domain *domain; /* the memory it computes in: weights, pages, states, features of images */
    struct units_crew crew;      /* threads that populate commit units, unless an engine has its turn */
    uint32_t workers;            /* threads that compute, the calling engine counted */
    const char *tier;            /* tier of the matrix products: "ref", "avx2", "avx512" */
    unsigned flags;              /* properties of the device that a result's bits may depend on: part of every
                                  * cache key */
    struct device_measured measured;
    /* Its steps fail with -ENODEV, and what it held is gone: its models are only to be closed. */
    atomic_bool lost;
    atomic_uint working; /* engines with a step or a part of an image under way, or waiting for its turn */
};

/* The instruction set of the CPU's matrix products here: "ref", "avx2", "avx512". */
const char *device_cpu_tier(void);
/* The machine's workers for this process. */
uint32_t device_default_workers(void);
/* Bytes of the stacks of `workers` workers; the first one is the calling engine. */
uint64_t device_stack_bytes(uint32_t workers);
/* The CPU with `workers` threads, the calling engine counted; their stacks are charged to `stacks` (may be
 * NULL). 0, -EINVAL (0 or more than 256 workers), -ENOMEM, -EAGAIN. */
int device_open_cpu(uint32_t workers, struct account *stacks, struct device **ret);

/* NULL is fine. */
static inline void device_close(struct device *d)
{
    if (d)
        d->ops->close(d);
}

static inline void device_pin(struct device *d, void *at, size_t bytes)
{
    if (d->ops->pin)
        d->ops->pin(d, at, bytes);
}

static inline void device_unpin(struct device *d, void *at)
{
    if (d->ops->unpin)
        d->ops->unpin(d, at);
}

static inline void device_turn_begin(struct device *d)
{
    d->ops->turn_begin(d);
}

static inline void device_turn_end(struct device *d)
{
    d->ops->turn_end(d);
}

/* From before a turn until the work of it is done. */
static inline void device_work_begin(struct device *d)
{
    atomic_fetch_add(&d->working, 1);
}

static inline void device_work_end(struct device *d)
{
    atomic_fetch_sub(&d->working, 1);
}

/* Whether another engine works or waits. The caller is between two steps of its own. */
static inline bool device_is_shared(const struct device *d)
{
    return atomic_load(&d->working) > 0;
}

#endif
