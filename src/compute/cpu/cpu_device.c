/* cpu_device.c - the kernels of this machine, and the process's workers. */
#include "compute/cpu/cpu_device.h"

#include "base/thread_stack.h"

#include <errno.h>
#include <stdlib.h>

uint32_t device_default_workers(void)
{
    return workers_default_count();
}

uint64_t device_stack_bytes(uint32_t workers)
{
    return (workers - 1) * (uint64_t)thread_stack_bytes(WORKERS_STACK_BYTES);
}

int device_open_cpu(uint32_t workers, struct account *stacks, struct device **ret)
{
    return cpu_device_open(workers, kern_cpu_flags(), stacks, ret);
}

int cpu_device_open(uint32_t workers, unsigned flags, struct account *stacks, struct device **ret)
{
    struct device *d = calloc(1, sizeof(*d));
    int r = d ? workers_create(workers, stacks, &d->workers) : -ENOMEM;
    if (r < 0) {
        free(d);
        return r;
    }
    d->flags = flags;
    kern_ops_init(&d->ops, flags);
    *ret = d;
    return 0;
}

void device_close(struct device *d)
{
    if (!d)
        return;
    workers_free(d->workers);
    free(d);
}

const struct domain *device_domain(struct device *d)
{
    (void)d;
    return domain_machine();
}

uint32_t device_workers(const struct device *d)
{
    return workers_count(d->workers);
}

const char *device_tier(const struct device *d)
{
    return d->ops.tier;
}

unsigned device_flags(const struct device *d)
{
    return d->flags;
}

/* ---- turns ---- */

void device_turn_begin(struct device *d)
{
    workers_turn_begin(d->workers);
}

void device_turn_end(struct device *d)
{
    workers_turn_end(d->workers);
}

bool device_is_busy(const struct device *d)
{
    return workers_busy(d->workers);
}

/* ---- a crew for commit units ---- */

struct crew_work {
    void (*task)(void *arg, uint32_t i);
    void *arg;
};

static void on_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct crew_work *w = arg;
    (void)worker;
    w->task(w->arg, tile);
}

/* Between two steps the workers have nothing to do, unless another engine has its turn. */
static bool run_crew(void *arg, void (*task)(void *task_arg, uint32_t i), void *task_arg, uint32_t count)
{
    struct device *d = arg;
    struct crew_work w = {task, task_arg};
    if (!workers_turn_try(d->workers))
        return false;
    workers_run(d->workers, on_tile, &w, count);
    workers_turn_end(d->workers);
    return true;
}

struct units_crew device_crew(struct device *d)
{
    return (struct units_crew){run_crew, d};
}
