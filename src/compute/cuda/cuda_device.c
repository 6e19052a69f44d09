/* cuda_device.c - the device: a context with one queue, and the kernels.
 *
 * Steps, copies and packed weights of all models go through the one queue, in the order of the calls. The
 * stack limit of 256 bytes, set before anything is loaded, saves 198 MiB of the context's memory. */
#include "compute/cuda/cuda_device.h"

#include "compute/cuda/cuda.h"
#include "compute/cuda/cuda_args.h"
#include "compute/cuda/cuda_image.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define COMPUTE_LEAST 80u /* sm_80 */
/* Part of the device's memory, where it is not opened to be measured: a context with all kernels (340 MiB on
 * an H100), and memory that the driver takes as it goes. */
#define ESTIMATE_BYTES ((uint64_t)1 << 30)
/* In device.flags: the tier of results' bits. */
#define FLAG_CUDA (1u << 30)

static const char *const names[CUDA_DEVICES_MAX] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3",
                                                    "cuda:4", "cuda:5", "cuda:6", "cuda:7"};

bool cuda_is_built(void)
{
    return cuda_image(CUDA_IMAGE_rows) != NULL;
}

uint32_t cuda_device_count(void)
{
    const struct cuda_driver *v = cuda_is_built() ? cuda_driver() : NULL;
    int count = 0;
    return v && v->device_count(&count) == 0 && count > 0 ? MIN_OF((uint32_t)count, CUDA_DEVICES_MAX) : 0;
}

uint64_t cuda_device_usable_bytes(uint32_t index)
{
    const struct cuda_driver *v = cuda_driver();
    size_t bytes = 0;
    int handle;
    if (!v || v->device_get(&handle, (int)index) != 0 || v->device_memory(&bytes, handle) != 0)
        return 0;
    return bytes > ESTIMATE_BYTES ? bytes - ESTIMATE_BYTES : 0;
}

static unsigned capability_of(const struct cuda_driver *v, int handle)
{
    int major = 0, minor = 0;
    (void)v->device_attribute(&major, CUDA_ATTRIBUTE_MAJOR, handle);
    (void)v->device_attribute(&minor, CUDA_ATTRIBUTE_MINOR, handle);
    return (unsigned)(10 * major + minor);
}

bool cuda_device_suits(uint32_t index)
{
    const struct cuda_driver *v = cuda_driver();
    int handle;
    return v && v->device_get(&handle, (int)index) == 0 && capability_of(v, handle) >= COMPUTE_LEAST;
}

const char *cuda_device_name(uint32_t index)
{
    ASSERT(index < CUDA_DEVICES_MAX);
    return names[index];
}

/* ---- opening ---- */

static const struct {
    enum cuda_image image;
    const char *name;
} kernels[] = {
#define X(image, name) {CUDA_IMAGE_##image, "plateau_" #name},
    CUDA_KERNELS(X)
#undef X
};

/* 0, -ENOSPC or -EIO. */
static int opened(struct cuda_device *d, cuda_result r, const char *what)
{
    if (cuda_ok(d, r, what))
        return 0;
    return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOSPC : -EIO;
}

/* The driver would load a kernel's code with its first launch, when memory for it may lack. */
static int load_kernels(struct cuda_device *d)
{
    const struct cuda_driver *v = d->driver;
    void *modules[CUDA_IMAGE_COUNT];
    int r = 0;
    for (uint32_t i = 0; i < CUDA_IMAGE_COUNT && r == 0; i++)
        r = opened(d, v->module_load(&modules[i], cuda_image((enum cuda_image)i)), "load");
    for (uint32_t k = 0; k < CUDA_KERNEL_COUNT && r == 0; k++) {
        r = opened(d, v->module_function(&d->functions[k], modules[kernels[k].image], kernels[k].name),
                   kernels[k].name);
        if (r == 0)
            r = opened(d, v->function_load(d->functions[k]), kernels[k].name);
    }
    return r;
}

/* Kernels whose blocks take as much shared memory as there is. */
static bool give_shared(struct cuda_device *d, enum cuda_kernel k, uint32_t bytes)
{
    return cuda_ok(d, d->driver->function_set(d->functions[k], CUDA_FUNCTION_SHARED_MAX, (int)bytes),
                   "shared memory") &&
           cuda_ok(d, d->driver->function_set(d->functions[k], CUDA_FUNCTION_CARVEOUT, 100), "shared memory");
}

/* The context holds modules and queue: all of them end with it. */
static int open_context(struct cuda_device *d)
{
    const struct cuda_driver *v = d->driver;
    sigset_t signals = cuda_driver_hold_signals();
    cuda_result created = v->context_create(&d->context, CUDA_CONTEXT_BLOCKING, d->handle);
    cuda_driver_let_signals(signals);
    int r = opened(d, created, "context");
    if (r == 0)
        r = opened(d, v->context_limit(CUDA_LIMIT_STACK, CUDA_STACK_BYTES), "limit");
    if (r == 0)
        r = opened(d, v->stream_create(&d->stream, CUDA_STREAM_NON_BLOCKING), "queue");
    if (r == 0)
        r = load_kernels(d);
    /* Static shared memory counts, too. */
    for (uint32_t k = CUDA_KERNEL_narrow16_1; r == 0 && k <= CUDA_KERNEL_walk4; k++)
        r = give_shared(d, (enum cuda_kernel)k, d->shared_max) ? 0 : -EIO;
    if (r == 0 && d->shared_max >= CUDA_PRODUCT_DEEP_SHARED)
        r = give_shared(d, CUDA_KERNEL_product_deep, CUDA_PRODUCT_DEEP_SHARED) ? 0 : -EIO;
    if (r == 0 && d->shared_max >= CUDA_DELTA_ONE_SHARED)
        r = give_shared(d, CUDA_KERNEL_delta_one, CUDA_DELTA_ONE_SHARED) ? 0 : -EIO;
    for (uint32_t k = CUDA_KERNEL_attend_parts64; r == 0 && k <= CUDA_KERNEL_attend_wide_floats128; k++)
        r = give_shared(d, (enum cuda_kernel)k, d->shared_attend) ? 0 : -EIO;
    for (uint32_t k = CUDA_KERNEL_encode_attend32; r == 0 && k <= CUDA_KERNEL_encode_windows128; k++)
        r = give_shared(d, (enum cuda_kernel)k, d->shared_attend) ? 0 : -EIO;
    if (r == 0)
        r = opened(d, v->take(&d->repacking, CUDA_STAGING_BYTES), "memory");
    if (r == 0)
        cuda_staging_pin(d);
    return r == 0 ? cuda_probe(d) : r;
}

static void close_context(struct cuda_device *d)
{
    if (d->context) {
        (void)d->driver->context_set(d->context);
        cuda_staging_unpin(d);
        (void)d->driver->context_destroy(d->context);
    }
    d->context = d->stream = NULL;
}

/* Where the size of the context is not known, it is in no account, and all else is the same: so on a device
 * that has no room for a second one. */
static int open_measured(struct cuda_device *d)
{
    struct cuda_measure m;
    cuda_measure_begin(d, &m);
    bool alone = !m.other;
    int r = open_context(d);
    cuda_measure_end(d, &m, r == 0);
    if (r == -ENOSPC && !alone) {
        close_context(d);
        r = open_context(d);
    }
    if (r == 0)
        cuda_measure_note(d, m.bytes);
    return r;
}

static int find_device(struct cuda_device *d, uint32_t index)
{
    const struct cuda_driver *v = d->driver;
    if (index >= cuda_device_count() || v->device_get(&d->handle, (int)index) != 0)
        return -ENODEV;
    unsigned capability = capability_of(v, d->handle);
    int units = 0, block = 0, unit = 0;
    (void)v->device_attribute(&units, CUDA_ATTRIBUTE_MULTIPROCESSORS, d->handle);
    (void)v->device_attribute(&block, CUDA_ATTRIBUTE_SHARED_BLOCK, d->handle);
    (void)v->device_attribute(&unit, CUDA_ATTRIBUTE_SHARED_UNIT, d->handle);
    d->units = (uint32_t)units;
    d->shared_max = (uint32_t)block - CUDA_STATIC_SHARED;
    d->shared_attend = (uint32_t)block - CUDA_ATTEND_STATIC;
    d->shared_unit = (uint32_t)unit;
    snprintf(d->tier, sizeof(d->tier), "sm_%u", capability);
    d->early = capability >= 90;
    d->hopper = capability / 10 == 9;
    d->device.flags = FLAG_CUDA | capability;
    return capability < COMPUTE_LEAST ? -ENOTSUP : 0;
}

/* ---- the device ---- */

static void free_device(struct cuda_device *d)
{
    close_context(d);
    cuda_memory_done(d);
    pthread_rwlock_destroy(&d->context_lock);
    free(d);
}

static void close_device(struct device *device)
{
    struct cuda_device *d = cuda_device_of(device);
    ASSERT_OF(atomic_load(&d->committed) == 0, "%s: %llu bytes are committed", d->name,
              (ull)atomic_load(&d->committed));
    free_device(d);
}

/* The queue is the turn: engines do not wait for each other to put a step into it. */
static void no_turn(struct device *d)
{
    (void)d;
}

static bool is_busy(const struct device *d)
{
    (void)d;
    return false;
}

static int reopen(struct device *device)
{
    struct cuda_device *d = cuda_device_of(device);
    ASSERT(atomic_load(&d->committed) == 0);
    pthread_rwlock_wrlock(&d->context_lock);
    close_context(d);
    atomic_store(&device->lost, false);
    int r = open_context(d); /* it takes what the first took: that is not measured again */
    if (r < 0)
        atomic_store(&device->lost, true);
    pthread_rwlock_unlock(&d->context_lock);
    return r < 0 ? -EIO : 0;
}

static void pin(struct device *device, void *at, size_t bytes)
{
    struct cuda_device *d = cuda_device_of(device);
    (void)d->driver->context_set(d->context);
    (void)d->driver->pin(at, bytes, 0);
}

static void unpin(struct device *device, void *at)
{
    struct cuda_device *d = cuda_device_of(device);
    (void)d->driver->context_set(d->context);
    cuda_let_pass(d); /* copies from it or to it */
    (void)d->driver->unpin(at);
}

/* The driver commits on the calling thread. */
static bool run_crew(void *arg, void (*task)(void *task_arg, uint32_t i), void *task_arg, uint32_t count)
{
    (void)arg;
    for (uint32_t i = 0; i < count; i++)
        task(task_arg, i);
    return true;
}

const struct backend backend_cuda = {.name = "cuda",
                                     .apart = true,
                                     .bf16 = true,
                                     .fp8 = true,
                                     .ranges = true,
                                     .shards = true,
                                     .samples = true,
                                     .cost = cuda_cost,
                                     .open = cuda_open,
                                     .weight_bytes = cuda_weight_bytes,
                                     .weight_begin = cuda_weight_begin,
                                     .weight_put = cuda_weight_put,
                                     .encode_patches = CUDA_ENCODE_PATCHES,
                                     .encode_bytes = cuda_encode_bytes,
                                     .encode_rows = cuda_encode_rows};

static const struct device_ops ops = {.close = close_device,
                                      .turn_begin = no_turn,
                                      .turn_end = no_turn,
                                      .is_busy = is_busy,
                                      .reopen = reopen,
                                      .pin = pin,
                                      .unpin = unpin};

int cuda_device_open(uint32_t index, struct device **ret)
{
    const struct cuda_driver *v = cuda_is_built() ? cuda_driver() : NULL;
    if (!v)
        return -ENODEV;
    struct cuda_device *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->driver = v;
    snprintf(d->name, sizeof(d->name), "cuda:%u", index);
    d->domain = (struct domain){.name = d->name, .class = ACCOUNT_DEVICE, .ops = &cuda_domain_ops, .arg = d};
    d->device = (struct device){.ops = &ops,
                                .backend = &backend_cuda,
                                .domain = &d->domain,
                                .crew = {run_crew, d},
                                .workers = 1,
                                .tier = d->tier};
    pthread_rwlock_init(&d->context_lock, NULL);
    int r = cuda_memory_init(d);
    if (r == 0)
        r = find_device(d, index);
    if (r == 0)
        r = open_measured(d);
    if (r < 0)
        free_device(d);
    else
        *ret = &d->device;
    return r;
}
