/* cuda_queue.c - the device's queue, and failures in it. */
#include "compute/cuda/cuda_device.h"

#include "base/log.h"

#include <errno.h>

/* Errors that a context does not recover from. Those from 800 on are calls that were not allowed, as of a
 * queue that is being recorded. */
static bool is_lasting(cuda_result r)
{
    return r == 46 || r == 214 ||
           (r >= 700 && r < 800 && r != 701 && r != 704 && r != 705 && r != 712 && r != 713) || r == 999;
}

static void note_failure(struct cuda_device *d, cuda_result r, const char *what, bool lasting)
{
    if (!lasting)
        LOG_ERROR("device_error", "device=%s call=%s error=%s", d->name, what,
                  cuda_driver_error(d->driver, r));
    else if (!atomic_exchange(&d->device.lost, true))
        LOG_ERROR("device_error", "device=%s call=%s error=%s lasting=yes", d->name, what,
                  cuda_driver_error(d->driver, r));
}

bool cuda_ok(struct cuda_device *d, cuda_result r, const char *what)
{
    if (r != 0)
        note_failure(d, r, what, is_lasting(r));
    return r == 0;
}

void cuda_must(struct cuda_device *d, cuda_result r, const char *what)
{
    if (r != 0)
        note_failure(d, r, what, true);
}

/* ---- committed memory that is still to be zeroed ---- */

void cuda_fresh_fill(struct cuda_device *d)
{
    uint32_t count = atomic_load(&d->fresh_count);
    for (uint32_t i = 0; i < count; i++)
        cuda_must(d, d->driver->fill(d->fresh[i].at, 0, d->fresh[i].bytes, d->stream), "zeros");
    atomic_store(&d->fresh_count, 0);
    cuda_queued(d);
}

void cuda_fresh_note(struct cuda_device *d, uint64_t at, uint64_t bytes)
{
    uint32_t count = atomic_load(&d->fresh_count);
    struct cuda_fresh *last = count > 0 ? &d->fresh[count - 1] : NULL;
    if (last && last->at + last->bytes == at) {
        last->bytes += bytes;
        return;
    }
    if (count == CUDA_FRESH_MAX) {
        cuda_fresh_fill(d);
        count = 0;
    }
    d->fresh[count] = (struct cuda_fresh){at, bytes};
    atomic_store(&d->fresh_count, count + 1);
}

bool cuda_fresh_has(const struct cuda_device *d, uint64_t at, uint64_t bytes)
{
    uint32_t count = atomic_load(&d->fresh_count);
    for (uint32_t i = 0; i < count; i++)
        if (d->fresh[i].at < at + bytes && at < d->fresh[i].at + d->fresh[i].bytes)
            return true;
    return false;
}

void cuda_use(struct cuda_device *d)
{
    (void)d->driver->context_set(d->context);
    if (atomic_load(&d->fresh_count) == 0)
        return;
    pthread_mutex_lock(&d->lock);
    cuda_fresh_fill(d);
    pthread_mutex_unlock(&d->lock);
}

void cuda_queued(struct cuda_device *d)
{
    atomic_fetch_add(&d->queued, 1);
}

bool cuda_drain(struct cuda_device *d, const char *what)
{
    uint_least64_t all = atomic_load(&d->queued), passed = atomic_load(&d->passed);
    bool ok = cuda_ok(d, d->driver->stream_wait(d->stream), what);
    while (passed < all && !atomic_compare_exchange_weak(&d->passed, &passed, all))
        ;
    return ok;
}

void cuda_let_pass(struct cuda_device *d)
{
    if (atomic_load(&d->passed) < atomic_load(&d->queued))
        (void)cuda_drain(d, "wait");
}

int cuda_wait(struct cuda_device *d)
{
    cuda_use(d);
    if (d->profile)
        cuda_profile_let(d);
    bool ok = cuda_drain(d, "wait");
    if (d->profile)
        cuda_profile_read(d);
    if (atomic_load(&d->device.lost))
        return -ENODEV;
    return ok ? 0 : -EIO;
}

/* Kernels that wait for those before them by themselves (grid_wait() of common.cuh) may begin before these
 * end. */
static bool waits_itself(enum cuda_kernel k)
{
    static const bool kernels[CUDA_KERNEL_COUNT] = {
#define X(image, name) [CUDA_KERNEL_##name] = CUDA_KERNEL_WAITS_##image,
        CUDA_KERNELS(X)
#undef X
    };
    return kernels[k];
}

cuda_result cuda_launch(struct cuda_device *d, void *stream, enum cuda_kernel kernel, struct cuda_grid g,
                        void **arguments)
{
    struct cuda_launch_attribute early = {.id = CUDA_LAUNCH_PROGRAMMATIC, .value = 1};
    if (g.x == 0 || g.y == 0 || g.z == 0)
        return 0;
    const struct cuda_launch_config config = {.x = g.x,
                                              .y = g.y,
                                              .z = g.z,
                                              .threads_x = g.threads,
                                              .threads_y = 1,
                                              .threads_z = 1,
                                              .shared_bytes = g.shared_bytes,
                                              .stream = stream,
                                              .attributes = &early,
                                              .attribute_count = d->early && waits_itself(kernel)};
    cuda_result r = d->driver->launch(&config, d->functions[kernel], arguments, NULL);
    if (d->profile)
        cuda_profile_mark(d, kernel);
    return r;
}
