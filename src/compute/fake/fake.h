/* fake.h - a device of plain memory that behaves as a GPU does, for tests and for finding what leaks through
 * the compute contract.
 *
 * Its addresses cannot be followed by host code, and bytes that are not committed cannot be followed by it
 * either. Operations are queued and done at the end of their step; a step whose key was seen before repeats
 * what was recorded then. The batch is copied when a step begins, and the caller's arrays are filled with
 * garbage. Its memory is a domain with a size of its own. Faults come by chance, from a seed: commits that
 * fail, steps that fail or find no memory, a device that is lost.
 *
 * Work is done by the CPU backend, so the bits are its. */
#ifndef PLATEAU_COMPUTE_FAKE_H
#define PLATEAU_COMPUTE_FAKE_H

#include "compute/backend.h"

extern const struct backend backend_fake;

/* How often something fails: one time in so many, by chance; 0: never. */
struct fake_faults {
    uint64_t seed;
    uint32_t commit;      /* -ENOMEM of open or populate */
    uint32_t step;        /* -EIO at the end of a step */
    uint32_t memory;      /* -ENOMEM at the end of a step */
    uint32_t lost;        /* -ENODEV at the end of a step, and from then on everywhere */
    uint32_t context_mib; /* no fault: MiB of its memory that a context takes */
};
/* Parses "seed=1,commit=100,step=1000,lost=0,context=4", at least one part of it. False: anything else. */
bool fake_faults_parse(const char *text, struct fake_faults *ret);

struct fake_opts {
    uint32_t index;   /* N of "fake:N" */
    uint64_t bytes;   /* bytes of its memory, with the context */
    uint32_t workers; /* workers of device_open_cpu() */
    struct account *stacks;
    struct fake_faults faults;
};
/* 0, -EINVAL, -ENOMEM, -EAGAIN. device_close() demands that all its memory was released. */
int fake_device_open(const struct fake_opts *opts, struct device **ret);

/* For tests, on any thread: other programs hold `bytes` of each fake device of the process, or what is free
 * of it if that is less. */
void fake_set_others(uint64_t bytes);
struct fake_numbers {
    uint64_t committed_bytes, steps, replays, faults;
    uint64_t sampled, rows; /* rows that were sampled from; of them those that the host got, too */
};
struct fake_numbers fake_device_numbers(const struct device *d);

#endif
