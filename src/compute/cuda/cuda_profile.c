/* cuda_profile.c - the time of each kernel, by events between them.
 *
 * Steps are not recorded meanwhile. The queue is held until the host is some kernels ahead, so that
 * no kernel waits for its launch. A kernel's time has the launch in it. */
#include "compute/cuda/cuda.h"
#include "compute/cuda/cuda_device.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define EVENTS     4096u
#define HOLD_UNTIL 64u

struct cuda_profile {
    void *events[EVENTS + 1];
    enum cuda_kernel kernels[EVENTS];
    uint32_t count;
    atomic_bool go;
    uint64_t launches[CUDA_KERNEL_COUNT];
    double seconds[CUDA_KERNEL_COUNT];
};

static void hold(void *arg)
{
    struct cuda_profile *p = arg;
    while (!atomic_load(&p->go))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
}

int cuda_profile_begin(struct device *device)
{
    struct cuda_device *d = cuda_device_of(device);
    struct cuda_profile *p = calloc(1, sizeof(*p));
    ASSERT(!d->profile);
    if (!p)
        return -ENOMEM;
    (void)d->driver->context_set(d->context);
    for (uint32_t i = 0; i <= EVENTS; i++) {
        if (d->driver->event_create(&p->events[i], 0) != 0) {
            free(p);
            return -EIO;
        }
    }
    d->profile = p;
    return 0;
}

void cuda_profile_mark(struct cuda_device *d, enum cuda_kernel kernel)
{
    struct cuda_profile *p = d->profile;
    if (p->count == EVENTS)
        return;
    if (p->count == 0) {
        atomic_store(&p->go, false);
        (void)d->driver->host_task(d->stream, hold, p);
        (void)d->driver->event_record(p->events[0], d->stream);
    }
    p->kernels[p->count++] = kernel;
    (void)d->driver->event_record(p->events[p->count], d->stream);
    if (p->count == HOLD_UNTIL)
        atomic_store(&p->go, true);
}

void cuda_profile_read(struct cuda_device *d)
{
    struct cuda_profile *p = d->profile;
    for (uint32_t i = 0; i < p->count; i++) {
        float ms = 0;
        (void)d->driver->event_between(&ms, p->events[i], p->events[i + 1]);
        p->launches[p->kernels[i]]++;
        p->seconds[p->kernels[i]] += (double)ms * 1e-3;
    }
    p->count = 0;
}

void cuda_profile_let(struct cuda_device *d)
{
    atomic_store(&d->profile->go, true);
}

uint32_t cuda_profile_end(struct device *device, struct cuda_share ret[CUDA_SHARES_MAX])
{
    static const char *const names[] = {
#define X(image, name) #name,
        CUDA_KERNELS(X)
#undef X
    };
    _Static_assert(CUDA_KERNEL_COUNT <= CUDA_SHARES_MAX, "every kernel has a share");
    struct cuda_device *d = cuda_device_of(device);
    struct cuda_profile *p = d->profile;
    uint32_t count = 0;
    (void)d->driver->context_set(d->context);
    if (p->count > 0 && d->driver->stream_wait(d->stream) == 0)
        cuda_profile_read(d);
    for (uint32_t i = 0; i <= EVENTS; i++)
        (void)d->driver->event_destroy(p->events[i]);
    for (uint32_t k = 0; k < CUDA_KERNEL_COUNT; k++)
        if (p->launches[k] > 0)
            ret[count++] = (struct cuda_share){names[k], p->launches[k], p->seconds[k]};
    d->profile = NULL;
    free(p);
    return count;
}
