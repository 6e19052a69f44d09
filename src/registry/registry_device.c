/* registry_device.c - what becomes of a device that is lost.
 *
 * Its models close, resting ones too. When the last one is closed and a model is asked for, the
 * device begins anew. After a second loss within ten minutes it stays off until an operator asks for a
 * load. */
#include "registry/registry_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "compute/device.h"

#include <errno.h>

#define AGAIN_NS (600 * NS_PER_S)

static bool note_lost(const struct entry *e, uint32_t i, uint64_t now_ns)
{
    const struct device *d = registry_device_at(e, i);
    struct registry_device *state = &e->registry->devices[registry_device_index(e, i)];
    bool lost = atomic_load(&d->lost);
    if (lost && state->lost_ns == 0) {
        state->lost_ns = now_ns;
        state->told = false;
        LOG_ERROR("device_lost", "device=%s", d->domain->name);
    }
    return lost;
}

bool registry_device_is_lost(const struct entry *e, uint64_t now_ns)
{
    bool lost = false;
    for (uint32_t i = 0; i < registry_device_count(e); i++)
        lost |= note_lost(e, i, now_ns);
    return lost;
}

void registry_device_tell(const struct entry *e)
{
    for (uint32_t i = 0; i < registry_device_count(e); i++)
        e->registry->devices[registry_device_index(e, i)].told = true;
}

static bool has_part_on(const struct entry *e, uint32_t device)
{
    ASSERT(device < DOMAINS_MAX);
    for (uint32_t i = 0; i < registry_device_count(e); i++)
        if (registry_device_index(e, i) == device)
            return true;
    return false;
}

/* A model, or a load or unload under way, may have memory of it. */
static bool is_used(const struct registry *r, uint32_t device)
{
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct entry *e = &r->entries[i];
        if (has_part_on(e, device) &&
            (e->state == MODEL_READY || e->state == MODEL_DRAINING || e->has_thread))
            return true;
    }
    return false;
}

static bool stays_off(const struct registry_device *d)
{
    ASSERT(d->lost_ns >= d->before_ns);
    return d->before_ns > 0 && d->lost_ns - d->before_ns < AGAIN_NS && !d->told;
}

/* As `registry_device_ready()`, but of one device. */
static int make_ready(const struct entry *e, uint32_t i, uint64_t now_ns, struct registry_failure *why)
{
    struct registry *r = e->registry;
    const uint32_t index = registry_device_index(e, i);
    struct device *d = registry_device_at(e, i);
    struct registry_device *state = &r->devices[index];
    const char *name = d->domain->name;
    if (!note_lost(e, i, now_ns))
        return 0;
    if (is_used(r, index))
        return -EAGAIN;
    if (stays_off(state))
        return err_set(&why->e, -EIO,
                       "device %s was lost twice within ten minutes and stays off until an operator loads a "
                       "model",
                       name);
    pthread_mutex_unlock(&r->lock);
    int error = d->ops->reopen(d);
    pthread_mutex_lock(&r->lock);
    if (error < 0)
        return err_set(&why->e, -EIO, "device %s is lost and does not open again", name);
    ASSERT(state->lost_ns > 0);
    *state = (struct registry_device){.before_ns = state->lost_ns};
    LOG_INFO("device_reopened", "device=%s", name);
    return 0;
}

int registry_device_ready(const struct entry *e, uint64_t now_ns, struct registry_failure *why)
{
    int r = 0;
    for (uint32_t i = 0; i < registry_device_count(e) && r == 0; i++)
        r = make_ready(e, i, now_ns, why);
    return r;
}
