/* cpu_device.c - the kernels of this machine, and the process's workers. */
#include "compute/cpu/cpu_device.h"

#include "compute/backend.h"

#include "base/threads/thread_stack.h"
#include "kernel/workers.h"
#include "memory/domain.h"

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

static void close_device(struct device *d)
{
    workers_free(cpu_device_of(d)->workers);
    free(d);
}

/* ---- turns ---- */

static void turn_begin(struct device *d)
{
    workers_turn_begin(cpu_device_of(d)->workers);
}

static void turn_end(struct device *d)
{
    workers_turn_end(cpu_device_of(d)->workers);
}

static bool is_busy(const struct device *d)
{
    return workers_busy(((const struct cpu_device *)d)->workers);
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
    struct cpu_device *d = arg;
    struct crew_work w = {task, task_arg};
    if (!workers_turn_try(d->workers))
        return false;
    workers_run(d->workers, on_tile, &w, count);
    workers_turn_end(d->workers);
    return true;
}

/* ---- the backend ---- */

static const struct device_ops ops = {
    .close = close_device, .turn_begin = turn_begin, .turn_end = turn_end, .is_busy = is_busy};

static bool prefers_bf16(void)
{
    return kern_cpu_flags() & KERN_CPU_AMX_BF16;
}

const struct backend backend_cpu = {.name = "cpu",
                                    .layout = CPU_LAYOUT,
                                    .bf16 = true,
                                    .codebooks = true,
                                    .page_hidden = true,
                                    .integers = true,
                                    .prefers_bf16 = prefers_bf16,
                                    .cost = cpu_cost,
                                    .open = cpu_open,
                                    .weight_bytes = cpu_weight_bytes,
                                    .weight_begin = cpu_weight_begin,
                                    .weight_put = cpu_weight_put,
                                    .all_encoders = true,
                                    .encode_patches = CPU_ENCODE_PATCHES,
                                    .encode_bytes = cpu_encode_bytes,
                                    .encode_rows = cpu_encode_rows};

const char *device_cpu_tier(void)
{
    struct kern_ops kernels;
    kern_ops_init(&kernels, kern_cpu_flags());
    return kernels.tier;
}

int cpu_device_open(uint32_t workers, unsigned flags, struct account *stacks, struct device **ret)
{
    struct cpu_device *d = calloc(1, sizeof(*d));
    int r = d ? workers_create(workers, stacks, &d->workers) : -ENOMEM;
    if (r < 0) {
        free(d);
        return r;
    }
    kern_ops_init(&d->ops, flags);
    d->device = (struct device){.ops = &ops,
                                .backend = &backend_cpu,
                                .domain = domain_machine(),
                                .crew = {run_crew, d},
                                .workers = workers_count(d->workers),
                                .tier = d->ops.tier,
                                .flags = flags};
    *ret = &d->device;
    return 0;
}
