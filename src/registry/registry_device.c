/* registry_device.c - what becomes of a device that is lost.
 *
 * Its models close, those that only rest included. When the last one is closed and a model is asked for, the
 * device begins anew. After a second loss within ten minutes it stays off until an operator asks for a
 * load. */
#include "registry/registry_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "compute/device.h"

#include <errno.h>

#define AGAIN_NS (600 * NS_PER_S)

bool registry_device_is_lost(struct registry *r, uint64_t now_ns)
{
    bool lost = atomic_load(&r->opts.device->lost);
    if (lost && r->device.lost_ns == 0) {
        r->device.lost_ns = now_ns;
        r->device.told = false;
        LOG_ERROR("device_lost", "device=%s", r->opts.device->domain->name);
    }
    return lost;
}

/* A model, or a load or unload under way, may have memory of it. */
static bool is_used(const struct registry *r)
{
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct entry *e = &r->entries[i];
        if (e->state == MODEL_READY || e->state == MODEL_DRAINING || e->has_thread)
            return true;
    }
    return false;
}

static bool stays_off(const struct registry_device *d)
{
    return d->before_ns > 0 && d->lost_ns - d->before_ns < AGAIN_NS && !d->told;
}

int registry_device_ready(struct registry *r, uint64_t now_ns, struct registry_failure *why)
{
    const char *name = r->opts.device->domain->name;
    if (!registry_device_is_lost(r, now_ns))
        return 0;
    if (is_used(r))
        return -EAGAIN;
    if (stays_off(&r->device))
        return err_set(&why->e, -EIO,
                       "device %s was lost twice within ten minutes and stays off until an operator loads a "
                       "model",
                       name);
    pthread_mutex_unlock(&r->lock);
    int error = r->opts.device->ops->reopen(r->opts.device);
    pthread_mutex_lock(&r->lock);
    if (error < 0)
        return err_set(&why->e, -EIO, "device %s is lost and does not open again", name);
    r->device = (struct registry_device){.before_ns = r->device.lost_ns};
    LOG_INFO("device_reopened", "device=%s", name);
    return 0;
}
