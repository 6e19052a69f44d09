/* fair_queue.c - a list that is searched, which takes a few microseconds: the owners of both queues bound its
 * length by some hundreds.
 *
 * Fairness among tenants is start-time fair queueing: a tenant's counter rises by the charges of the entries
 * taken from it. A tenant that comes back starts at the counter of the tenant taken from last, so that it has
 * no credit for the time it was away. Hence a counter that is not higher needs no memory: a new tenant takes
 * over the lowest counter without waiting entries. */
#include "base/threads/fair_queue.h"

#include "base/check.h"
#include "base/hash.h"

void fair_queue_init(struct fair_queue *q)
{
    *q = (struct fair_queue){.count = 0};
    list_init(&q->waiting);
}

static struct fair_entry *entry_of(struct list *l)
{
    return LIST_ENTRY(l, struct fair_entry, link);
}

/* The tenant's counter, or the lowest one without waiting entries; when each has some, a shared one. */
static struct fair_tenant *counter_of(struct fair_queue *q, uint64_t tenant)
{
    struct fair_tenant *lowest = NULL;
    for (size_t i = 0; i < FAIR_QUEUE_TENANTS; i++) {
        struct fair_tenant *t = &q->tenants[i];
        if (t->tenant == tenant)
            return t;
        if (t->waiting == 0 && (!lowest || t->charged < lowest->charged))
            lowest = t;
    }
    if (!lowest)
        return &q->tenants[hash_share(tenant, FAIR_QUEUE_TENANTS)];
    *lowest = (struct fair_tenant){.tenant = tenant};
    return lowest;
}

void fair_queue_put(struct fair_queue *q, struct fair_entry *e)
{
    ASSERT(list_empty(&e->link));
    e->counter = counter_of(q, e->tenant);
    if (e->counter->waiting++ == 0)
        e->counter->charged = MAX_OF(e->counter->charged, q->charged_last);
    list_push_back(&q->waiting, &e->link);
    q->count++;
}

void fair_queue_remove(struct fair_queue *q, struct fair_entry *e)
{
    ASSERT(!list_empty(&e->link) && q->count > 0 && e->counter->waiting > 0);
    e->counter->waiting--;
    list_remove(&e->link);
    q->count--;
}

void fair_queue_charge(struct fair_queue *q, uint64_t tenant, uint64_t charge)
{
    for (size_t i = 0; i < FAIR_QUEUE_TENANTS; i++)
        if (q->tenants[i].tenant == tenant)
            q->tenants[i].charged += charge;
}

/* True when x goes before y. */
static bool goes_before(const struct fair_entry *x, const struct fair_entry *y)
{
    uint64_t a = x->counter->charged, b = y->counter->charged;
    return a != b ? a < b : x->key < y->key;
}

struct fair_entry *fair_queue_take(struct fair_queue *q, fair_may_take_fn *may_take, int lane)
{
    struct fair_entry *first = NULL;
    LIST_EACH(it, &q->waiting) {
        struct fair_entry *e = entry_of(it);
        if (may_take(lane, e) && (!first || goes_before(e, first)))
            first = e;
    }
    if (!first)
        return NULL;
    struct fair_tenant *t = first->counter;
    q->charged_last = MAX_OF(q->charged_last, t->charged);
    t->charged += first->charge;
    fair_queue_remove(q, first);
    return first;
}
