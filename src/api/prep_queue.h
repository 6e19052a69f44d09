/* prep_queue.h - what waits for a prep thread: tenants in turn, short before long, and nothing for ever.
 *
 * A thread belongs to a lane and takes nothing that is longer than its lane allows, so short requests have
 * threads that no long one occupies; a thread of the last lane takes anything. Of what a lane may take, the
 * tenant goes first that has had the fewest bytes prepared of late; of one tenant's, the entry with the
 * earliest turn: it came at that time, or later by 16 us for each of its bytes. So a short one overtakes long
 * ones, but none that has waited for its minute.
 *
 * Entries lie within their exchanges; the queue allocates nothing. Any thread. */
#ifndef PLATEAU_API_PREP_QUEUE_H
#define PLATEAU_API_PREP_QUEUE_H

#include "base/list.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum prep_lane { PREP_SHORT, PREP_MEDIUM, PREP_LONG, PREP_LANES };

/* The first bytes that are too many for the lane. */
#define PREP_SHORT_BYTES  ((size_t)64 << 10)
#define PREP_MEDIUM_BYTES ((size_t)1 << 20)

/* How much later an entry's turn is than its arrival. */
#define PREP_TURN_NS_PER_BYTE 16000
#define PREP_TURN_NS_MAX      60000000000

#define PREP_TENANTS 64 /* whose shares are told apart; more share one */

struct prep_entry {
    struct list link; /* in the queue; list_init() before it is put */
    size_t bytes;     /* the caller's: of text that is to be prepared, as far as is known */
    uint64_t tenant;  /* the caller's */
    uint64_t turn_ns; /* the queue's: its order among the tenant's */
};

struct prep_queue {
    pthread_mutex_t lock;
    /* Under `lock`. */
    struct list waiting, idle[PREP_LANES]; /* entries; threads that wait for one */
    uint32_t count;
    uint64_t served[PREP_TENANTS]; /* of each tenant, no less than others had when it came */
    uint64_t served_last;          /* of the tenant that was taken from last, before that */
    bool closed;
};

struct prep_queue_numbers {
    uint32_t count;
    uint64_t bytes;
};

void prep_queue_init(struct prep_queue *q);
/* No thread waits in it, and it is empty. */
void prep_queue_done(struct prep_queue *q);

/* Wakes the idle thread of the narrowest lane that may take it. Also when closed. */
void prep_queue_put(struct prep_queue *q, struct prep_entry *e, uint64_t now_ns);
/* NULL: there is none that the lane may take. */
struct prep_entry *prep_queue_take(struct prep_queue *q, enum prep_lane lane);
/* Waits for one. NULL: closed, and nothing is left for this lane. */
struct prep_entry *prep_queue_wait(struct prep_queue *q, enum prep_lane lane);
void prep_queue_close(struct prep_queue *q);
/* What waits now. */
void prep_queue_numbers(struct prep_queue *q, struct prep_queue_numbers *ret);

#endif
