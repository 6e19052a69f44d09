/* fake_device.h - the device behind fake.h, as its own files see it. */
#ifndef PLATEAU_COMPUTE_FAKE_DEVICE_H
#define PLATEAU_COMPUTE_FAKE_DEVICE_H

#include "compute/fake/fake.h"

#include "memory/domain.h"

#include <stdatomic.h>

/* Between an address of the device and the memory behind it: no address of a process has this bit. */
#define FAKE_FLIP ((uint64_t)1 << 62)

struct fake_device {
    struct device device; /* first */
    struct domain domain;
    char name[24];
    struct device *cpu; /* that computes */
    atomic_uint_least64_t committed, reserved, steps, replays, faults_seen;
    atomic_uint_least64_t sampled, rows;
    struct fake_faults faults; /* constant */
    atomic_uint_least64_t samples;
};

static inline struct fake_device *fake_of(struct device *d)
{
    return (struct fake_device *)d;
}

/* By chance: the next sample says that this fails. */
enum fake_fault { FAKE_COMMIT, FAKE_STEP, FAKE_MEMORY, FAKE_LOST };
bool fake_sample(struct fake_device *d, enum fake_fault what);
/* Returns the fault of a step's end, apart from its operations: 0, -EIO, -ENOMEM, -ENODEV. */
int fake_step_fault(struct fake_device *d);

/* fake_memory.c */
extern const struct domain_ops fake_domain_ops;

/* fake.c */
struct compute_cost fake_cost(const struct compute_opts *o);
int fake_open(const struct compute_opts *o, struct compute **ret);

#endif
