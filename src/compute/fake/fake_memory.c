/* fake_memory.c - the device's memory: ranges without access until they are committed.
 *
 * A copy that leaves committed memory ends the process where it happens, so that a test shows it. */
#include "compute/fake/fake_device.h"

#include "base/check.h"

#include <errno.h>

/* The machine's address of the memory behind it; and back. */
static dev_ptr flipped(dev_ptr p)
{
    return (dev_ptr){p.at ^ FAKE_FLIP};
}

static int fake_reserve(void *arg, uint64_t bytes, bool small, dev_ptr *ret)
{
    struct fake_device *d = arg;
    dev_ptr host;
    int r = domain_reserve(domain_machine(), bytes, small, &host);
    if (r < 0)
        return r;
    atomic_fetch_add(&d->reserved, bytes);
    *ret = flipped(host);
    return 0;
}

static int fake_release(void *arg, dev_ptr base, uint64_t bytes)
{
    struct fake_device *d = arg;
    int r = domain_release(domain_machine(), flipped(base), bytes);
    if (r == 0)
        atomic_fetch_sub(&d->reserved, bytes);
    return r;
}

/* Bytes of other programs on each device. */
static atomic_uint_least64_t others;

void fake_set_others(uint64_t bytes)
{
    atomic_store(&others, bytes);
}

/* Free beside `committed` bytes, and what other programs have of that. */
static uint64_t free_beside(const struct fake_device *d, uint64_t committed, uint64_t *others_bytes)
{
    uint64_t all = d->device.measured.free_bytes, left = all - MIN_OF(committed, all);
    *others_bytes = MIN_OF(atomic_load(&others), left);
    return left - *others_bytes;
}

/* Takes `bytes` of the device's memory. */
static bool take(struct fake_device *d, uint64_t bytes)
{
    uint64_t had = atomic_load(&d->committed), others_bytes;
    do {
        if (bytes > free_beside(d, had, &others_bytes))
            return false;
    } while (!atomic_compare_exchange_weak(&d->committed, &had, had + bytes));
    return true;
}

static int fake_open_memory(void *arg, dev_ptr at, uint64_t bytes)
{
    struct fake_device *d = arg;
    /* Taken even when it fails: the caller decommits it then. */
    if (!take(d, bytes)) {
        atomic_fetch_add(&d->committed, bytes);
        return -ENOMEM;
    }
    if (atomic_load(&d->device.lost) || fake_sample(d, FAKE_COMMIT))
        return -ENOMEM;
    return domain_open(domain_machine(), flipped(at), bytes);
}

static int fake_populate(void *arg, dev_ptr at, uint64_t bytes)
{
    (void)arg;
    return domain_populate(domain_machine(), flipped(at), bytes);
}

/* Also of a lost device: its memory is the process's own. */
static int fake_decommit(void *arg, dev_ptr at, uint64_t bytes)
{
    struct fake_device *d = arg;
    int r = domain_decommit(domain_machine(), flipped(at), bytes);
    if (r == 0)
        ASSERT(atomic_fetch_sub(&d->committed, bytes) >= bytes);
    return r;
}

static void fake_copy(void *arg, dev_ptr to, dev_ptr from, uint64_t bytes)
{
    (void)arg;
    domain_copy(domain_machine(), flipped(to), flipped(from), bytes);
}

static void fake_put(void *arg, dev_ptr to, const void *from, uint64_t bytes)
{
    (void)arg;
    domain_put(domain_machine(), flipped(to), from, bytes);
}

static int fake_get(void *arg, void *to, dev_ptr from, uint64_t bytes)
{
    struct fake_device *d = arg;
    if (atomic_load(&d->device.lost))
        return -EIO;
    return domain_get(domain_machine(), to, flipped(from), bytes);
}

static uint64_t fake_committed(void *arg)
{
    const struct fake_device *d = arg;
    return d->device.measured.context_bytes + atomic_load(&d->committed);
}

static int fake_figures(void *arg, struct domain_figures *ret)
{
    const struct fake_device *d = arg;
    const struct device_measured *m = &d->device.measured;
    if (atomic_load(&d->device.lost))
        return -ENODEV;
    *ret = (struct domain_figures){.total_bytes = m->total_bytes};
    /* A commit that is being refused counts, too. */
    ret->free_bytes = free_beside(d, atomic_load(&d->committed), &ret->others_bytes);
    ret->unaccounted_bytes = (int64_t)ret->others_bytes;
    return 0;
}

const struct domain_ops fake_domain_ops = {.reserve = fake_reserve,
                                           .release = fake_release,
                                           .open = fake_open_memory,
                                           .populate = fake_populate,
                                           .decommit = fake_decommit,
                                           .copy = fake_copy,
                                           .put = fake_put,
                                           .get = fake_get,
                                           .committed = fake_committed,
                                           .figures = fake_figures};
