/* reclaim_order.h - decides what to reclaim next so that a load fits: the order, and when to give up.
 * Pure. */
#ifndef PLATEAU_RECLAIM_RECLAIM_ORDER_H
#define PLATEAU_RECLAIM_RECLAIM_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* The state of the domain's memory now. */
struct reclaim_figures {
    uint64_t needed_bytes; /* bytes that the domain must release; 0: it fits */
    bool own_limit;        /* the limit that binds is not a ceiling: others cannot help */
    uint64_t free_bytes, cached_bytes,
        idle_bytes;       /* bytes that could be taken from holders that have not refused */
    uint64_t reach_bytes; /* bytes that the domain would release without free and cached ones */
};

enum reclaim_step {
    RECLAIM_FITS,   /* nothing: try again */
    RECLAIM_FREE,   /* units of all pools that hold nothing */
    RECLAIM_CACHED, /* prefixes of the pool with the least useful ones */
    RECLAIM_IDLE,   /* idle models */
    RECLAIM_NONE    /* refuse */
};

struct reclaim_order { /* zeroed: nothing has been done yet */
    enum reclaim_step stage;
    uint32_t steps;
};

#define RECLAIM_STEPS_MAX 1000 /* others keep taking returned memory: this bound is enough */

enum reclaim_step reclaim_order_next(struct reclaim_order *r, const struct reclaim_figures *l);

#endif
