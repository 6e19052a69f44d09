/* prep_queue.h - the queue of prep threads: tenants in turn, short before long, no request starves.
 *
 * An entry's cost is in bytes: its own, and those that its tenant's recent entries of its size took in
 * processor time beyond their bytes. A grammar or a stored conversation takes a second for a body of a
 * hundred bytes, which only the tenant's past tells. The sizes are those of the lanes: a long text that takes
 * long does not move its tenant's short entries to the lane of long ones.
 *
 * A thread belongs to a lane and takes no entry that costs more than its lane allows. So short requests have
 * threads that no long one occupies; a thread of the last lane takes any entry. Among the entries of a lane,
 * the tenant with the least processor time recently goes first. Within a tenant, the entry with the earliest
 * turn does: its time of arrival plus 16 us for each of its bytes. So a short entry overtakes long ones, but
 * none that has waited for a minute.
 *
 * Entries lie within their exchanges; the queue allocates nothing. Any thread. */
#ifndef PLATEAU_API_PREP_QUEUE_H
#define PLATEAU_API_PREP_QUEUE_H

#include "base/threads/fair_queue.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum prep_lane { PREP_SHORT, PREP_MEDIUM, PREP_LONG, PREP_LANES };

/* The smallest costs that are too large for the lane. */
#define PREP_SHORT_BYTES  ((size_t)64 << 10)
#define PREP_MEDIUM_BYTES ((size_t)1 << 20)

/* Added to an entry's time of arrival for each of its bytes. */
#define PREP_TURN_NS_PER_BYTE 16000
#define PREP_TURN_NS_MAX      60000000000

/* Processor time of preparing a byte. */
#define PREP_NS_PER_BYTE 32
/* Tenants whose past is known; another takes the place of the one that was away for longest. */
#define PREP_TENANTS 64

struct prep_entry {
    struct fair_entry fair; /* link and tenant: the caller's; the rest: prep_queue_put()'s */
    size_t bytes;           /* set by the caller: text to be prepared, as far as its size is known */
    size_t cost_bytes;      /* the queue's, while it is in it */
};

struct prep_past {
    uint64_t tenant;
    uint64_t
        extra_bytes[PREP_LANES]; /* by size: moving average of the cost of its entries beyond their bytes */
    uint64_t used;               /* prep_queue.uses at its last entry; 0: not in use */
};

struct prep_queue {
    pthread_mutex_t lock;
    /* Under `lock`. */
    struct fair_queue entries;
    struct list idle[PREP_LANES]; /* threads that wait for an entry */
    struct prep_past past[PREP_TENANTS];
    uint64_t uses;
    bool closed;
};

struct prep_queue_numbers {
    uint32_t count;
    uint64_t bytes;
};

void prep_queue_init(struct prep_queue *q);
/* Precondition: the queue is empty and no thread waits in it. */
void prep_queue_done(struct prep_queue *q);

/* Wakes the idle thread of the narrowest lane that may take the entry. Also when closed. */
void prep_queue_put(struct prep_queue *q, struct prep_entry *e, uint64_t now_ns);
/* NULL: no entry that the lane may take. */
struct prep_entry *prep_queue_take(struct prep_queue *q, enum prep_lane lane);
/* Waits for an entry. NULL: closed, and no entry is left for this lane. */
struct prep_entry *prep_queue_wait(struct prep_queue *q, enum prep_lane lane);
/* An entry that was taken took `cpu_ns` of processor time: its tenant is charged what its cost did not cover,
 * and its next entries of that size are expected to cost as much. */
void prep_queue_took(struct prep_queue *q, uint64_t tenant, size_t bytes, uint64_t cpu_ns);
void prep_queue_close(struct prep_queue *q);
/* The entries that wait now. */
void prep_queue_numbers(struct prep_queue *q, struct prep_queue_numbers *ret);

#endif
