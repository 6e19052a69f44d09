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

#endif
