/* dev.h - an address in the memory of a device.
 *
 * Code above the compute contract keeps it, adds offsets to it and hands it on; only the backend follows it.
 * On the CPU it is the address of plain memory. */
#ifndef PLATEAU_COMPUTE_DEV_H
#define PLATEAU_COMPUTE_DEV_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t at; /* 0: nothing */
} dev_ptr;

#define DEV_NULL ((dev_ptr){0})

static inline bool dev_is_null(dev_ptr p)
{
    return p.at == 0;
}

static inline dev_ptr dev_add(dev_ptr p, uint64_t bytes)
{
    return (dev_ptr){p.at + bytes};
}

#endif
