/* cuda_queue.c - what goes into the device's queue, and what went wrong there. */
#include "compute/cuda/cuda_device.h"

#include "base/check.h"
#include "base/log.h"

#include <errno.h>

/* Errors that a context does not recover from. */
static bool is_lasting(cuda_result r)
{
    return r == 46 || r == 214 || (r >= 700 && r != 701 && r != 704 && r != 705 && r != 712 && r != 713) ||
           r == 999;
}

bool cuda_ok(struct cuda_device *d, cuda_result r, const char *what)
{
    if (r == 0)
        return true;
    atomic_store(&d->failed, true);
    if (!is_lasting(r))
        LOG_ERROR("device_error", "device=%s call=%s error=%s", d->name, what,
                  cuda_driver_error(d->driver, r));
    else if (!atomic_exchange(&d->device.lost, true))
        LOG_ERROR("device_error", "device=%s call=%s error=%s lasting=yes", d->name, what,
                  cuda_driver_error(d->driver, r));
    return false;
}

void cuda_use(const struct cuda_device *d)
{
    (void)d->driver->context_set(d->context);
}

int cuda_wait(struct cuda_device *d)
{
    cuda_use(d);
    (void)cuda_ok(d, d->driver->stream_wait(d->stream), "wait");
    bool failed = atomic_exchange(&d->failed, false);
    if (atomic_load(&d->device.lost))
        return -ENODEV;
    return failed ? -EIO : 0;
}

void cuda_launch(struct cuda_device *d, enum cuda_kernel kernel, struct cuda_grid g, void **arguments)
{
    if (g.x == 0 || g.y == 0 || g.z == 0)
        return;
    (void)cuda_ok(d,
                  d->driver->launch(d->functions[kernel], g.x, g.y, g.z, g.threads, 1, 1, g.shared_bytes,
                                    d->stream, arguments, NULL),
                  "launch");
}
