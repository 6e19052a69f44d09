/* media_queue.h - the order of tasks that wait for a decoding thread: tenants in turn, small before large,
 * with aging.
 *
 * The tenant with the least decoding time served goes first. Of one tenant, the entry with the smallest key
 * goes first: its arrival plus the estimated time of its decoding, 10 s at most. So a small image overtakes
 * large ones, and no entry waits for one of its tenant that came more than 10 s after it.
 *
 * Entries lie within their tasks; the queue allocates nothing. Guarded by the caller's lock. */
#ifndef PLATEAU_API_MEDIA_QUEUE_H
#define PLATEAU_API_MEDIA_QUEUE_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEDIA_QUEUE_TENANTS 64 /* with shares of their own; more tenants share one */
#define MEDIA_AGING_NS      10000000000
#define MEDIA_SMALL_NS      250000000

struct media_entry {
    struct list link; /* in the queue; list_init() before it is put */
    /* Set by the caller. */
    uint64_t tenant;
    uint64_t arrived_ns;
    uint64_t cost_ns; /* estimate of the work left */
    uint64_t turn_ns; /* of that, until the thread takes from the queue again: what the tenant is charged */
    bool video;
};

struct media_queue {
    struct list waiting; /* entries */
    uint32_t count;
    uint64_t served_ns[MEDIA_QUEUE_TENANTS];
    uint64_t served_last_ns; /* of the tenant taken from last, before that */
};

void media_queue_init(struct media_queue *q);
void media_queue_put(struct media_queue *q, struct media_entry *e);
void media_queue_remove(struct media_queue *q, struct media_entry *e);
/* Which entries a thread may take. */
enum media_lane {
    MEDIA_LANE_SMALL, /* images with turns of at most MEDIA_SMALL_NS */
    MEDIA_LANE_IMAGES,
    MEDIA_LANE_ALL
};
/* NULL: none waits in this lane. */
struct media_entry *media_queue_take(struct media_queue *q, enum media_lane lane);

/* Estimate for one encoded image; pixels 0: its header has not been read. */
uint64_t media_queue_cost_ns(uint64_t bytes, uint64_t pixels);

#endif
