/* dev.h - an address in the memory of a domain.
 *
 * Code above the compute contract keeps it, adds offsets to it and hands it on; only the domain's copies and
 * its backend follow it. In the machine's memory it is the address of plain memory. */
#ifndef PLATEAU_MEMORY_DEV_H
#define PLATEAU_MEMORY_DEV_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t at; /* 0: nothing */
} dev_ptr;

#define DEV_NULL ((dev_ptr){0})

/* Devices that a model may be spread over. Each has a shard of it: some of its layers, with their parts of
 * every page and state. The first shard also has all that is outside the layers. */
#define SHARDS_MAX 8u

static inline bool dev_is_null(dev_ptr p)
{
    return p.at == 0;
}

static inline dev_ptr dev_add(dev_ptr p, uint64_t bytes)
{
    return (dev_ptr){p.at + bytes};
}

/* Address in the machine's memory, for code on the CPU; and back. */
static inline char *dev_host(dev_ptr p)
{
    return (char *)(uintptr_t)p.at;
}

static inline dev_ptr dev_of_host(const void *p)
{
    return (dev_ptr){(uintptr_t)p};
}

#endif
