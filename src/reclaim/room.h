/* room.h - decides the next thing to take so that a load fits: the order, and when to give up. Pure. */
#ifndef PLATEAU_RECLAIM_ROOM_H
#define PLATEAU_RECLAIM_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/* The state of the domain's memory now. */
struct room_look {
    uint64_t needed_bytes; /* bytes that the domain must release; 0: it fits */
    bool own_limit;        /* the limit that binds is not a ceiling: others cannot help */
    uint64_t free_bytes, cached_bytes,
        idle_bytes;       /* bytes that could be taken from holders that have not refused */
    uint64_t reach_bytes; /* bytes that the domain would release without free and cached ones */
};

enum room_step {
    ROOM_FITS,   /* nothing: try again */
    ROOM_FREE,   /* units of all pools that hold nothing */
    ROOM_CACHED, /* prefixes of the pool with the least useful ones */
    ROOM_IDLE,   /* idle models */
    ROOM_NONE    /* refuse */
};

struct room { /* zeroed: nothing has been done yet */
    enum room_step stage;
    uint32_t steps;
};

#define ROOM_STEPS_MAX 1000 /* others keep taking returned memory: this bound is enough */

enum room_step room_next(struct room *r, const struct room_look *l);

#endif
