/* registry_device.h - what becomes of a device that is lost.
 *
 * Its models close, those that only rest included. When the last one is closed and a model is asked for, the
 * device begins anew. After a second loss within ten minutes it stays off until an operator asks for a load.
 * Part of the registry: its own thread, under its lock. */
#ifndef PLATEAU_REGISTRY_REGISTRY_DEVICE_H
#define PLATEAU_REGISTRY_REGISTRY_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct registry;
struct registry_failure;

struct registry_device {
    uint64_t lost_ns;   /* when the loss was seen; 0: it is not lost */
    uint64_t before_ns; /* the loss before that; 0: none */
    bool told;          /* an operator has asked for a load since */
};

/* True: it is lost, whatever its models know. */
bool registry_device_is_lost(struct registry *r, uint64_t now_ns);
/* Before a load: 0: the device is there. -EAGAIN: later, when models have closed. -EIO: it stays off, `why`
 * says so. Releases the lock while a device begins anew. */
int registry_device_ready(struct registry *r, uint64_t now_ns, struct registry_failure *why);

#endif
