/* media_queue.h - the order of tasks that wait for a decoding thread: tenants in turn, small before large,
 * with aging. A fair_queue.h with these keys and charges; guarded by the caller's lock.
 *
 * A tenant is charged the estimated decoding time of what a thread takes. The key of an entry is its arrival
 * plus the estimated time of its decoding, 10 s at most. So a small image overtakes large ones, and no entry
 * waits for one of its tenant that came more than 10 s after it. */
#ifndef PLATEAU_MEDIA_MEDIA_QUEUE_H
#define PLATEAU_MEDIA_MEDIA_QUEUE_H

#include "base/threads/fair_queue.h"

#define MEDIA_AGING_NS 10000000000
#define MEDIA_SMALL_NS 250000000

struct media_entry {
    struct fair_entry fair; /* link and tenant: the caller's; the rest: media_queue_put()'s */
    /* Set by the caller. */
    uint64_t arrived_ns;
    uint64_t cost_ns; /* estimate of the work left */
    uint64_t turn_ns; /* its part until the thread takes from the queue again: the tenant's charge */
    bool video;
};

void media_queue_put(struct fair_queue *q, struct media_entry *e);
/* Which entries a thread may take. */
enum media_lane {
    MEDIA_LANE_SMALL, /* images with turns of at most MEDIA_SMALL_NS */
    MEDIA_LANE_IMAGES,
    MEDIA_LANE_ALL
};
/* NULL: none waits in this lane. */
struct media_entry *media_queue_take(struct fair_queue *q, enum media_lane lane);

/* Estimate for one encoded image; pixels 0: its header has not been read. */
uint64_t media_queue_cost_ns(uint64_t bytes, uint64_t pixels);

#endif
