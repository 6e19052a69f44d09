/* cuda_memory.c - the device's memory: reserved addresses, and pieces of UNIT_BYTES that the driver maps.
 *
 * UNIT_BYTES is the least that the driver gives. A range of small units has a piece as long as one of its
 * units is committed. Commit and decommit are the driver's calls on the calling thread, beside kernels. A
 * unit is zeroed with the next work in the queue: a call for the queue waits while another thread copies to
 * the host. A decommit waits for no step, as an engine frees memory after its own; but where copies or zeros
 * are on their way, for all that is in the queue. */
#include "compute/cuda/cuda_device.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <sys/mman.h>

#define UNITS_OF_GRANULE (UNIT_BYTES / UNIT_SMALL_BYTES)

static void *map_zeros(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

int cuda_memory_init(struct cuda_device *d)
{
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->staging_lock, NULL);
    pthread_mutex_init(&d->repacking_lock, NULL);
    pthread_cond_init(&d->staging_given, NULL);
    d->ranges = map_zeros(CUDA_RANGES_MAX * sizeof(d->ranges[0]));
    d->staging = map_zeros(CUDA_STAGING_BYTES);
    return d->ranges && d->staging ? 0 : -ENOMEM;
}

void cuda_memory_done(struct cuda_device *d)
{
    for (uint32_t i = 0; d->ranges && i < CUDA_RANGES_MAX; i++)
        ASSERT_OF(d->ranges[i].bytes == 0, "%s: %llu bytes of addresses are reserved", d->name,
                  (ull)d->ranges[i].bytes);
    if (d->ranges)
        munmap(d->ranges, CUDA_RANGES_MAX * sizeof(d->ranges[0]));
    if (d->staging)
        munmap(d->staging, CUDA_STAGING_BYTES);
    pthread_cond_destroy(&d->staging_given);
    pthread_mutex_destroy(&d->repacking_lock);
    pthread_mutex_destroy(&d->staging_lock);
    pthread_mutex_destroy(&d->lock);
}

/* ---- staging memory ---- */

#define SLOTS ((uint32_t)CUDA_STAGING_SLOTS)

static size_t slot_of(const struct cuda_device *d, const char *at)
{
    ASSERT(at >= d->staging && at < d->staging + CUDA_STAGING_BYTES);
    return (size_t)(at - d->staging) / CUDA_STAGING_SLOT;
}

void cuda_staging_unpin(struct cuda_device *d)
{
    if (d->staging_pinned)
        (void)d->driver->unpin(d->staging);
    d->staging_pinned = false;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (d->staging_read[i])
            (void)d->driver->event_destroy(d->staging_read[i]);
        d->staging_read[i] = NULL;
    }
}

void cuda_staging_pin(struct cuda_device *d)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < SLOTS; i++)
        ok = d->driver->event_create(&d->staging_read[i], CUDA_EVENT_SLEEPS | CUDA_EVENT_UNTIMED) == 0;
    d->staging_pinned = ok && d->driver->pin(d->staging, CUDA_STAGING_BYTES, 0) == 0;
    if (!d->staging_pinned)
        cuda_staging_unpin(d);
}

/* The driver reads pinned memory when the queue gets there, and pageable memory before its call returns. */
void cuda_staging_put(struct cuda_device *d, dev_ptr to, const char *at, uint64_t bytes)
{
    domain_put(&d->domain, to, at, bytes);
    if (d->staging_pinned)
        cuda_must(d, d->driver->event_record(d->staging_read[slot_of(d, at)], d->stream), "put");
}

void cuda_staging_wait(struct cuda_device *d, const char *at)
{
    if (d->staging_pinned)
        cuda_must(d, d->driver->event_wait(d->staging_read[slot_of(d, at)]), "put");
}

static uint32_t slots_of(uint64_t bytes)
{
    ASSERT(bytes > 0 && bytes <= CUDA_STAGING_BYTES);
    return (1u << DIV_UP(bytes, (uint64_t)CUDA_STAGING_SLOT)) - 1;
}

/* The lowest place for the slots; SLOTS: none. */
static uint32_t place_for(const struct cuda_device *d, uint32_t slots)
{
    for (uint32_t at = 0; slots << at < 1u << SLOTS; at++)
        if (!(d->staging_taken & slots << at))
            return at;
    return SLOTS;
}

char *cuda_staging_take(struct cuda_device *d, uint64_t bytes)
{
    uint32_t slots = slots_of(bytes), at;
    pthread_mutex_lock(&d->staging_lock);
    while ((at = place_for(d, slots)) == SLOTS)
        pthread_cond_wait(&d->staging_given, &d->staging_lock);
    d->staging_taken |= slots << at;
    pthread_mutex_unlock(&d->staging_lock);
    return d->staging + at * CUDA_STAGING_SLOT;
}

void cuda_staging_give(struct cuda_device *d, char *at, uint64_t bytes)
{
    uint32_t slots = slots_of(bytes) << slot_of(d, at);
    cuda_staging_wait(d, at);
    pthread_mutex_lock(&d->staging_lock);
    ASSERT((d->staging_taken & slots) == slots);
    d->staging_taken &= ~slots;
    pthread_cond_broadcast(&d->staging_given);
    pthread_mutex_unlock(&d->staging_lock);
}

/* ---- ranges; the lock is held ---- */

static struct cuda_range *range_at(struct cuda_device *d, uint64_t at)
{
    for (uint32_t i = 0; i < CUDA_RANGES_MAX; i++) {
        struct cuda_range *r = &d->ranges[i];
        if (at >= r->base && at - r->base < r->bytes)
            return r;
    }
    return NULL;
}

static size_t granules_bytes(uint64_t bytes)
{
    return bytes / UNIT_BYTES * sizeof(struct cuda_granule);
}

static int add_range(struct cuda_device *d, uint64_t bytes, struct cuda_range **ret)
{
    for (uint32_t i = 0; i < CUDA_RANGES_MAX; i++) {
        struct cuda_range *r = &d->ranges[i];
        if (r->bytes > 0)
            continue;
        r->granules = map_zeros(granules_bytes(bytes));
        if (!r->granules)
            return -ENOMEM;
        if (d->driver->reserve(&r->base, bytes, UNIT_BYTES, 0, 0) != 0) {
            munmap(r->granules, granules_bytes(bytes));
            *r = (struct cuda_range){0};
            return -ENOMEM;
        }
        r->bytes = bytes;
        *ret = r;
        return 0;
    }
    return -ENOMEM;
}

static int cuda_reserve(void *arg, uint64_t bytes, bool small, dev_ptr *ret)
{
    struct cuda_device *d = arg;
    struct cuda_range *range;
    (void)small;
    cuda_use(d);
    pthread_mutex_lock(&d->lock);
    int r = add_range(d, ROUND_UP(bytes, (uint64_t)UNIT_BYTES), &range);
    if (r == 0)
        *ret = (dev_ptr){range->base};
    pthread_mutex_unlock(&d->lock);
    return r;
}

/* ---- pieces ---- */

static int map_granule(struct cuda_device *d, uint64_t at, struct cuda_granule *g)
{
    const struct cuda_driver *v = d->driver;
    const struct cuda_allocation how = {.type = CUDA_ALLOCATION_PINNED,
                                        .location = {CUDA_LOCATION_DEVICE, d->handle}};
    const struct cuda_access access = {{CUDA_LOCATION_DEVICE, d->handle}, CUDA_ACCESS_READ_WRITE};
    if (v->create(&g->handle, UNIT_BYTES, &how, 0) != 0)
        return -ENOMEM;
    if (v->map(at, UNIT_BYTES, 0, g->handle, 0) != 0) {
        (void)v->release(g->handle);
        return -ENOMEM;
    }
    if (v->access(at, UNIT_BYTES, &access, 1) != 0) {
        (void)v->unmap(at, UNIT_BYTES);
        (void)v->release(g->handle);
        return -ENOMEM;
    }
    g->mapped = true;
    atomic_fetch_add(&d->committed, UNIT_BYTES);
    return 0;
}

/* Calls for a lost device fail, and its memory goes with the context. */
static void unmap_granule(struct cuda_device *d, uint64_t at, struct cuda_granule *g)
{
    (void)d->driver->unmap(at, UNIT_BYTES);
    (void)d->driver->release(g->handle);
    *g = (struct cuda_granule){0};
    atomic_fetch_sub(&d->committed, UNIT_BYTES);
}

/* The units of granule `index` that lie in [from, to), offsets in the range. */
static uint32_t units_in(uint64_t index, uint64_t from, uint64_t to)
{
    uint64_t begin = index * UNIT_BYTES;
    uint64_t first = from > begin ? (from - begin) / UNIT_SMALL_BYTES : 0;
    uint64_t last = MIN_OF(DIV_UP(to - begin, UNIT_SMALL_BYTES), UNITS_OF_GRANULE);
    return (uint32_t)(((uint64_t)1 << last) - ((uint64_t)1 << first));
}

static int commit(struct cuda_device *d, struct cuda_range *r, uint64_t from, uint64_t to)
{
    for (uint64_t i = from / UNIT_BYTES; i * UNIT_BYTES < to; i++) {
        struct cuda_granule *g = &r->granules[i];
        int error = g->mapped ? 0 : map_granule(d, r->base + i * UNIT_BYTES, g);
        if (error < 0)
            return error;
        g->units |= units_in(i, from, to);
    }
    cuda_fresh_note(d, r->base + from, to - from);
    return 0;
}

static int cuda_open_memory(void *arg, dev_ptr at, uint64_t bytes)
{
    struct cuda_device *d = arg;
    if (atomic_load(&d->device.lost))
        return -ENOMEM;
    (void)d->driver->context_set(d->context);
    pthread_mutex_lock(&d->lock);
    struct cuda_range *r = range_at(d, at.at);
    ASSERT(r && bytes <= r->bytes - (at.at - r->base));
    int error = commit(d, r, at.at - r->base, at.at - r->base + bytes);
    pthread_mutex_unlock(&d->lock);
    return error;
}

static int cuda_populate(void *arg, dev_ptr at, uint64_t bytes)
{
    (void)arg;
    (void)at;
    (void)bytes;
    return 0;
}

/* Once what is on its way to these bytes has passed. */
static void decommit(struct cuda_device *d, struct cuda_range *r, uint64_t from, uint64_t to)
{
    if (cuda_fresh_has(d, r->base + from, to - from))
        cuda_fresh_fill(d);
    cuda_let_pass(d);
    for (uint64_t i = from / UNIT_BYTES; i * UNIT_BYTES < to; i++) {
        struct cuda_granule *g = &r->granules[i];
        g->units &= ~units_in(i, from, to);
        if (g->mapped && g->units == 0)
            unmap_granule(d, r->base + i * UNIT_BYTES, g);
    }
}

static int cuda_decommit(void *arg, dev_ptr at, uint64_t bytes)
{
    struct cuda_device *d = arg;
    (void)d->driver->context_set(d->context);
    pthread_mutex_lock(&d->lock);
    struct cuda_range *r = range_at(d, at.at);
    ASSERT(r && bytes <= r->bytes - (at.at - r->base));
    decommit(d, r, at.at - r->base, at.at - r->base + bytes);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static int cuda_release(void *arg, dev_ptr base, uint64_t bytes)
{
    struct cuda_device *d = arg;
    (void)d->driver->context_set(d->context);
    pthread_mutex_lock(&d->lock);
    struct cuda_range *r = range_at(d, base.at);
    ASSERT(r && r->base == base.at && r->bytes == ROUND_UP(bytes, (uint64_t)UNIT_BYTES));
    decommit(d, r, 0, r->bytes);
    (void)d->driver->unreserve(r->base, r->bytes);
    munmap(r->granules, granules_bytes(r->bytes));
    *r = (struct cuda_range){0};
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* ---- copies, in the order of the queue ---- */

static void cuda_copy(void *arg, dev_ptr to, dev_ptr from, uint64_t bytes)
{
    struct cuda_device *d = arg;
    cuda_use(d);
    cuda_must(d, d->driver->move(to.at, from.at, bytes, d->stream), "copy");
    cuda_queued(d);
}

/* The driver has read pageable memory when its call returns. */
static void cuda_put(void *arg, dev_ptr to, const void *from, uint64_t bytes)
{
    struct cuda_device *d = arg;
    cuda_use(d);
    cuda_must(d, d->driver->put(to.at, from, bytes, d->stream), "put");
    cuda_queued(d);
}

static int cuda_get(void *arg, void *to, dev_ptr from, uint64_t bytes)
{
    struct cuda_device *d = arg;
    cuda_use(d);
    bool ok = cuda_ok(d, d->driver->get(to, from.at, bytes, d->stream), "get") && cuda_drain(d, "get");
    return ok ? 0 : -EIO;
}

static uint64_t cuda_committed(void *arg)
{
    const struct cuda_device *d = arg;
    return d->device.measured.context_bytes + atomic_load(&d->committed);
}

const struct domain_ops cuda_domain_ops = {.reserve = cuda_reserve,
                                           .release = cuda_release,
                                           .open = cuda_open_memory,
                                           .populate = cuda_populate,
                                           .decommit = cuda_decommit,
                                           .copy = cuda_copy,
                                           .put = cuda_put,
                                           .get = cuda_get,
                                           .committed = cuda_committed,
                                           .figures = cuda_figures};
