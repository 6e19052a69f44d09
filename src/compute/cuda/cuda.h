/* cuda.h - NVIDIA GPUs as devices.
 *
 * The driver is found at run time (libcuda.so.1); without it, or where the program was built without kernels,
 * the functions below say so and nothing else changes. Arithmetic is f32 by the chains of kernel/kern.h:
 * products, convolutions, recurrences and rotations have the bits of the CPU's reference. */
#ifndef PLATEAU_COMPUTE_CUDA_H
#define PLATEAU_COMPUTE_CUDA_H

#include "compute/backend.h"

extern const struct backend backend_cuda;

#define CUDA_DEVICES_MAX 8

/* Whether the program holds kernels. */
bool cuda_is_built(void);
/* Devices that could be opened; 0 without a driver or kernels. */
uint32_t cuda_device_count(void);
/* An estimate of the memory of device `index` < count that a process may take: all of it, less 1 GiB for
 * the context, the driver and other programs. 0: the driver does not say. */
uint64_t cuda_device_usable_bytes(uint32_t index);
/* Whether device `index` < count is new enough for the kernels. */
bool cuda_device_suits(uint32_t index);
/* "cuda:0" */
const char *cuda_device_name(uint32_t index);

/* Measures its memory, too. 0, -ENODEV (no driver, no kernels, no such device), -ENOTSUP (older than sm_80),
 * -ENOSPC (its memory is full), -ENOMEM, -EIO. device_close() demands that all its memory was released. */
int cuda_device_open(uint32_t index, struct device **ret);

/* ---- for measurements, by the thread that computes: the time of each kernel from begin to end ---- */

#define CUDA_SHARES_MAX 160u
struct cuda_share {
    const char *kernel;
    uint64_t launches;
    double seconds;
};
/* 0, -ENOMEM or -EIO. */
int cuda_profile_begin(struct device *d);
/* How many kernels ran. */
uint32_t cuda_profile_end(struct device *d, struct cuda_share ret[CUDA_SHARES_MAX]);

#endif
