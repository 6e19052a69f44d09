/* device.c - a device is what its backend makes of it. */
#include "compute/device.h"

#include "compute/backend.h"

const struct backend *device_backend(const struct device *d)
{
    return d->backend;
}

const struct domain *device_domain(const struct device *d)
{
    return d->domain;
}

void device_close(struct device *d)
{
    if (d)
        d->backend->close(d);
}

uint32_t device_workers(const struct device *d)
{
    return d->backend->workers(d);
}

const char *device_tier(const struct device *d)
{
    return d->backend->tier(d);
}

unsigned device_flags(const struct device *d)
{
    return d->backend->flags(d);
}

void device_turn_begin(struct device *d)
{
    d->backend->turn_begin(d);
}

void device_turn_end(struct device *d)
{
    d->backend->turn_end(d);
}

bool device_is_busy(const struct device *d)
{
    return d->backend->is_busy(d);
}

bool device_is_lost(const struct device *d)
{
    return d->backend->is_lost && d->backend->is_lost(d);
}

int device_reopen(struct device *d)
{
    return d->backend->reopen ? d->backend->reopen(d) : 0;
}

struct units_crew device_crew(struct device *d)
{
    return d->backend->crew(d);
}
