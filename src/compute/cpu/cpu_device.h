/* cpu_device.h - what the CPU backend, benchmarks and its own tests take from a device. */
#ifndef PLATEAU_COMPUTE_CPU_DEVICE_H
#define PLATEAU_COMPUTE_CPU_DEVICE_H

#include "compute/device.h"
#include "kernel/kern.h"
#include "kernel/workers.h"

/* Constant once open. */
struct device {
    struct workers *workers;
    struct kern_ops ops;
    unsigned flags; /* KERN_CPU_* */
};

/* As device_open_cpu, with the kernels that `flags` allow. */
int cpu_device_open(uint32_t workers, unsigned flags, struct account *stacks, struct device **ret);

#endif
