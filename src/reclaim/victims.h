/* victims.h - which idle models go so that another has room. Pure. */
#ifndef PLATEAU_RECLAIM_VICTIMS_H
#define PLATEAU_RECLAIM_VICTIMS_H

#include <stdint.h>

#define VICTIMS_MAX 64

/* A candidate: idle, not pinned, without leases and waiters. */
struct victim {
    uint32_t index;     /* the caller's */
    uint64_t bytes;     /* bytes that its unloading gives back */
    uint64_t reload_ns; /* time that loading it again takes */
    uint64_t idle_ns;
};

/* Orders `v` so that the first ones, as many as are returned, free `bytes` together. Models whose loading
 * costs least per byte are preferred, or one that suffices and costs less; of equal cost the longest idle.
 * None of the returned ones is superfluous. 0: all together do not suffice, or nothing is needed.
 * count <= VICTIMS_MAX. */
uint32_t victims_choose(struct victim *v, uint32_t count, uint64_t bytes);

#endif
