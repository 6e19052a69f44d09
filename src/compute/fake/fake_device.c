/* fake_device.c - the device: a CPU that computes, memory of its own, and faults. */
#include "compute/fake/fake_device.h"

#include "compute/cpu/cpu_device.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the backend: what the CPU's does, with the CPU's device ---- */

static void weight_put(struct device *d, const struct weight *w, uint32_t at,
                       const struct linear_source *rows)
{
    backend_cpu.weight_put(fake_of(d)->cpu, w, at, rows);
}

static void close_device(struct device *device)
{
    struct fake_device *d = fake_of(device);
    ASSERT_OF(atomic_load(&d->committed) == 0 && atomic_load(&d->reserved) == 0,
              "%s: %llu bytes are committed, %llu reserved", d->name, (ull)atomic_load(&d->committed),
              (ull)atomic_load(&d->reserved));
    device_close(d->cpu);
    free(d);
}

/* Engines do not wait for each other to put a step into the queue. The work itself takes a turn of the
 * CPU's. */
static void no_turn(struct device *d)
{
    (void)d;
}

static bool is_busy(const struct device *d)
{
    const struct device *cpu = ((const struct fake_device *)d)->cpu;
    return cpu->ops->is_busy(cpu);
}

/* Its samples begin anew: a seed fails each life of the device at the same step. How many steps the engines
 * tried on the lost device depends on time. */
static int reopen(struct device *device)
{
    struct fake_device *d = fake_of(device);
    ASSERT(atomic_load(&d->committed) == 0);
    atomic_store(&d->samples, 0);
    atomic_store(&device->lost, false);
    return 0;
}

/* Layouts are the CPU's. */
const struct backend backend_fake = {.name = "fake",
                                     .apart = true,
                                     .bf16 = true,
                                     .codebooks = true,
                                     .shards = true,
                                     .page_hidden = true,
                                     .integers = true,
                                     .samples = true,
                                     .cost = fake_cost,
                                     .open = fake_open,
                                     .weight_bytes = cpu_weight_bytes,
                                     .weight_begin = cpu_weight_begin,
                                     .weight_put = weight_put,
                                     .all_encoders = true,
                                     .encode_patches = CPU_ENCODE_PATCHES,
                                     .encode_bytes = cpu_encode_bytes,
                                     .encode_rows = cpu_encode_rows};

static const struct device_ops ops = {
    .close = close_device, .turn_begin = no_turn, .turn_end = no_turn, .is_busy = is_busy, .reopen = reopen};

int fake_device_open(const struct fake_opts *opts, struct device **ret)
{
    uint64_t context = (uint64_t)opts->faults.context_mib << 20;
    if (opts->bytes <= context)
        return -EINVAL;
    struct fake_device *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    int r = device_open_cpu(opts->workers, opts->stacks, &d->cpu);
    if (r < 0) {
        free(d);
        return r;
    }
    cpu_device_of(d->cpu)->flip = FAKE_FLIP;
    snprintf(d->name, sizeof(d->name), "fake:%u", opts->index);
    d->domain = (struct domain){
        .name = d->name, .class = ACCOUNT_DEVICE, .ops = &fake_domain_ops, .arg = d, .resident = true};
    d->device = (struct device){.ops = &ops,
                                .backend = &backend_fake,
                                .domain = &d->domain,
                                .crew = d->cpu->crew,
                                .workers = d->cpu->workers,
                                .tier = d->cpu->tier,
                                .flags = d->cpu->flags,
                                .measured = {opts->bytes, opts->bytes - context, context}};
    d->faults = opts->faults;
    *ret = &d->device;
    return 0;
}
