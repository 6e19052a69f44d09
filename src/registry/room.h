/* room.h - what is taken next so that something fits: the order, and when to give up. Pure. */
#ifndef PLATEAU_REGISTRY_ROOM_H
#define PLATEAU_REGISTRY_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/* As things are now. */
struct room_look {
    uint64_t needed_bytes; /* the process has to hold so many less; 0: it fits */
    bool own_limit;        /* the limit that binds is not the process's: others cannot help */
    uint64_t free_bytes, cached_bytes, idle_bytes; /* what could be taken; of those who have not said no */
    uint64_t reach_bytes; /* what the process would hold less without what is free and cached */
};

enum room_step {
    ROOM_FITS,   /* nothing: try again */
    ROOM_FREE,   /* units of all pools that hold nothing */
    ROOM_CACHED, /* prefixes of the pool that has those of least use */
    ROOM_IDLE,   /* idle models */
    ROOM_NONE    /* refuse */
};

struct room { /* zeroed: nothing has been done yet */
    enum room_step stage;
    uint32_t steps;
};

#define ROOM_STEPS_MAX 1000 /* others take what is given back all the time: this is enough */

enum room_step room_next(struct room *r, const struct room_look *l);

#endif
