/* media_queue.c - keys, charges and lanes of the queue for decoding threads. */
#include "media/media_queue.h"

#include "base/check.h"

/* Measured: 9 ns per pixel for a JPEG, 21 for a progressive one, 22 for a WebP, 29 for a PNG. */
#define NS_PER_PIXEL 25
#define NS_PER_BYTE  20
/* Without a header: as with 5 pixels per byte, which a photograph has. */
#define NS_PER_UNKNOWN_BYTE 145
#define COST_MIN_NS         1000000

void media_queue_put(struct fair_queue *q, struct media_entry *e)
{
    ASSERT(e->turn_ns <= e->cost_ns);
    e->fair.key = e->arrived_ns + MIN_OF(e->cost_ns, (uint64_t)MEDIA_AGING_NS);
    e->fair.charge = e->turn_ns;
    fair_queue_put(q, &e->fair);
}

static bool may_take(int lane, const struct fair_entry *fair)
{
    const struct media_entry *e = CONTAINER(fair, const struct media_entry, fair);
    if (lane == MEDIA_LANE_SMALL)
        return !e->video && e->turn_ns <= MEDIA_SMALL_NS;
    return lane == MEDIA_LANE_ALL || !e->video;
}

struct media_entry *media_queue_take(struct fair_queue *q, enum media_lane lane)
{
    struct fair_entry *e = fair_queue_take(q, may_take, (int)lane);
    return e ? CONTAINER(e, struct media_entry, fair) : NULL;
}

uint64_t media_queue_cost_ns(uint64_t bytes, uint64_t pixels)
{
    uint64_t ns = pixels > 0 ? pixels * NS_PER_PIXEL + bytes * NS_PER_BYTE : bytes * NS_PER_UNKNOWN_BYTE;
    return COST_MIN_NS + ns;
}
