/* fair_queue.h - entries that wait for a thread: tenants in turn, and an order within each tenant.
 *
 * The tenant that was charged least goes first. Of one tenant, the entry with the smallest key goes first;
 * equal keys keep the order of arrival. A thread may leave entries that are not for it.
 *
 * Entries lie within their owners. The queue, 1.6 KiB, lies within its own and allocates nothing. Guarded by
 * the caller's lock. */
#ifndef PLATEAU_BASE_FAIR_QUEUE_H
#define PLATEAU_BASE_FAIR_QUEUE_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

#define FAIR_QUEUE_TENANTS 64 /* that may wait with a counter of their own; more tenants share one */

struct fair_entry {
    struct list link; /* in the queue; list_init() before it is put */
    uint64_t tenant;
    uint64_t key;    /* the order within the tenant */
    uint64_t charge; /* cost that its tenant pays when it is taken, in the queue's unit */
    /* Set by the queue. */
    struct fair_tenant *counter;
};

struct fair_tenant {
    uint64_t tenant, charged;
    uint32_t waiting; /* its entries in the queue */
};

struct fair_queue {
    struct list waiting; /* entries, in the order of arrival */
    uint32_t count;
    struct fair_tenant tenants[FAIR_QUEUE_TENANTS];
    uint64_t charged_last; /* charge of the tenant taken from last, before that entry */
};

void fair_queue_init(struct fair_queue *q);
/* e: tenant, key and charge are set. */
void fair_queue_put(struct fair_queue *q, struct fair_entry *e);
void fair_queue_remove(struct fair_queue *q, struct fair_entry *e);
/* Charges a tenant for what was taken from it before. */
void fair_queue_charge(struct fair_queue *q, uint64_t tenant, uint64_t charge);
/* Takes the first entry that a thread of this lane may take, and charges its tenant. NULL: there is none. */
typedef bool fair_may_take_fn(int lane, const struct fair_entry *e);
struct fair_entry *fair_queue_take(struct fair_queue *q, fair_may_take_fn *may_take, int lane);

#endif
