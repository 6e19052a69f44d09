/* fake_faults.c - what fails, by chance or by order, and what has happened. */
#include "compute/fake/fake_device.h"

#include "base/check.h"
#include "base/rng.h"
#include "base/slice.h"

#include <errno.h>
#include <string.h>

bool fake_sample(struct fake_device *d, enum fake_fault what)
{
    const struct fake_faults *f = &d->faults;
    const uint32_t each[] = {
        [FAKE_COMMIT] = f->commit, [FAKE_STEP] = f->step, [FAKE_MEMORY] = f->memory, [FAKE_LOST] = f->lost};
    uint32_t one_in = each[what];
    bool hit = one_in > 0 && rng_at(f->seed, atomic_fetch_add(&d->samples, 1)) % one_in == 0;
    atomic_fetch_add(&d->faults_seen, hit);
    return hit;
}

int fake_step_fault(struct fake_device *d)
{
    atomic_fetch_add(&d->steps, 1);
    if (fake_sample(d, FAKE_LOST))
        atomic_store(&d->device.lost, true);
    if (atomic_load(&d->device.lost))
        return -ENODEV;
    if (fake_sample(d, FAKE_STEP))
        return -EIO;
    return fake_sample(d, FAKE_MEMORY) ? -ENOMEM : 0;
}

static bool parse_part(const char *name, size_t len, uint64_t value, struct fake_faults *ret)
{
    const struct {
        const char *name;
        uint32_t *count;
    } parts[] = {{"commit", &ret->commit},
                 {"step", &ret->step},
                 {"memory", &ret->memory},
                 {"lost", &ret->lost},
                 {"context", &ret->context_mib}};
    if (len == 4 && memcmp(name, "seed", 4) == 0) {
        ret->seed = value;
        return true;
    }
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (strlen(parts[i].name) == len && memcmp(parts[i].name, name, len) == 0) {
            *parts[i].count = (uint32_t)value;
            return true;
        }
    }
    return false;
}

bool fake_faults_parse(const char *text, struct fake_faults *ret)
{
    *ret = (struct fake_faults){0};
    do {
        const char *equals = strchr(text, '=');
        uint64_t value;
        if (!equals)
            return false;
        size_t digits = strcspn(equals + 1, ",");
        if (!slice_u64((struct slice){equals + 1, digits}, UINT32_MAX, &value) ||
            !parse_part(text, (size_t)(equals - text), value, ret))
            return false;
        text = equals + 1 + digits;
    } while (*text++ == ',');
    return true;
}

/* ---- for tests ---- */

struct fake_numbers fake_device_numbers(const struct device *device)
{
    const struct fake_device *d = (const struct fake_device *)device;
    return (struct fake_numbers){.committed_bytes = atomic_load(&d->committed),
                                 .steps = atomic_load(&d->steps),
                                 .replays = atomic_load(&d->replays),
                                 .faults = atomic_load(&d->faults_seen),
                                 .sampled = atomic_load(&d->sampled),
                                 .rows = atomic_load(&d->rows)};
}
