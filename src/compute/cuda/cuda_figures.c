/* cuda_figures.c - the device's memory by the driver's figures, which count all programs.
 *
 * The size of the context is what opening it takes of the free memory. The driver answers in a
 * context only, so one more is made for that time: 0.13 s on an H100. The size was 4 MiB more than NVML's
 * figure of the process there, without NVML's 15 MiB of resident memory. Other programs that take memory
 * meanwhile, or give it back, change the figure: the account alone is wrong then. */
#include "compute/cuda/cuda_device.h"

#include "base/check.h"

#include <errno.h>

/* Reads the memory of the current context's device. False: the driver does not report it. */
static bool read_info(const struct cuda_device *d, size_t *free_bytes, size_t *total)
{
    return d->driver->memory_info(free_bytes, total) == 0;
}

/* A context that is the calling thread's, with the stacks of the device's own. NULL: none can be made. */
static void *make_context(const struct cuda_device *d)
{
    const struct cuda_driver *v = d->driver;
    void *context = NULL;
    sigset_t signals = cuda_driver_hold_signals();
    cuda_result r = v->context_create(&context, CUDA_CONTEXT_BLOCKING, d->handle);
    cuda_driver_let_signals(signals);
    if (r != 0)
        return NULL;
    (void)v->context_limit(CUDA_LIMIT_STACK, CUDA_STACK_BYTES);
    return context;
}

void cuda_measure_begin(struct cuda_device *d, struct cuda_measure *ret)
{
    size_t total;
    *ret = (struct cuda_measure){.other = make_context(d)};
    if (!ret->other || !read_info(d, &ret->before, &total))
        ret->before = 0;
    (void)d->driver->context_set(NULL);
}

void cuda_measure_end(struct cuda_device *d, struct cuda_measure *m, bool opened)
{
    size_t after, total;
    if (opened && m->before > 0 && read_info(d, &after, &total))
        m->bytes = m->before - MIN_OF(after, m->before);
    if (m->other)
        (void)d->driver->context_destroy(m->other);
    m->other = NULL;
}

void cuda_measure_note(struct cuda_device *d, uint64_t context_bytes)
{
    size_t free_bytes, total;
    if (read_info(d, &free_bytes, &total) && free_bytes <= total)
        d->device.measured = (struct device_measured){total, free_bytes, context_bytes};
}

int cuda_figures(void *arg, struct domain_figures *ret)
{
    struct cuda_device *d = arg;
    const struct device_measured *m = &d->device.measured;
    size_t free_bytes, total;
    if (m->total_bytes == 0)
        return -ENODATA;
    if (pthread_rwlock_tryrdlock(&d->context_lock) != 0)
        return -ENODEV; /* it begins anew */
    bool known = !atomic_load(&d->device.lost) && d->driver->context_set(d->context) == 0 &&
                 read_info(d, &free_bytes, &total);
    pthread_rwlock_unlock(&d->context_lock);
    if (!known)
        return -ENODEV;
    int64_t more = (int64_t)m->free_bytes - (int64_t)free_bytes;
    uint64_t taken = total - MIN_OF(free_bytes, total), own = m->context_bytes + atomic_load(&d->committed);
    *ret = (struct domain_figures){.total_bytes = total,
                                   .free_bytes = free_bytes,
                                   .others_bytes = taken - MIN_OF(own, taken),
                                   .unaccounted_bytes = more - (int64_t)atomic_load(&d->committed)};
    return 0;
}
