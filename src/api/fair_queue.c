/* fair_queue.c - a list that is searched, which takes a few microseconds: the owners of both queues bound its
 * length by some hundreds.
 *
 * Fairness among tenants is start-time fair queueing: a tenant's counter rises by the charges of the entries
 * taken from it. A tenant that comes back starts at the counter of the tenant taken from last, so that it has
 * no credit for the time it was away. */
#include "api/fair_queue.h"

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

static uint64_t *charged_of(struct fair_queue *q, const struct fair_entry *e)
{
    return &q->charged[hash_bytes(&e->tenant, sizeof(e->tenant)) % FAIR_QUEUE_TENANTS];
}

static bool has_tenant(struct fair_queue *q, const struct fair_entry *e)
{
    LIST_EACH(it, &q->waiting)
        if (entry_of(it)->tenant == e->tenant)
            return true;
    return false;
}

void fair_queue_put(struct fair_queue *q, struct fair_entry *e)
{
    uint64_t *charged = charged_of(q, e);
    ASSERT(list_empty(&e->link));
    if (!has_tenant(q, e))
        *charged = MAX_OF(*charged, q->charged_last);
    list_push_back(&q->waiting, &e->link);
    q->count++;
}

void fair_queue_remove(struct fair_queue *q, struct fair_entry *e)
{
    ASSERT(!list_empty(&e->link) && q->count > 0);
    list_remove(&e->link);
    q->count--;
}

/* True when x goes before y. */
static bool goes_before(struct fair_queue *q, const struct fair_entry *x, const struct fair_entry *y)
{
    uint64_t a = *charged_of(q, x), b = *charged_of(q, y);
    return a != b ? a < b : x->key < y->key;
}

struct fair_entry *fair_queue_take(struct fair_queue *q, fair_may_take_fn *may_take, int lane)
{
    struct fair_entry *first = NULL;
    LIST_EACH(it, &q->waiting) {
        struct fair_entry *e = entry_of(it);
        if (may_take(lane, e) && (!first || goes_before(q, e, first)))
            first = e;
    }
    if (!first)
        return NULL;
    uint64_t *charged = charged_of(q, first);
    q->charged_last = MAX_OF(q->charged_last, *charged);
    *charged += first->charge;
    fair_queue_remove(q, first);
    return first;
}
