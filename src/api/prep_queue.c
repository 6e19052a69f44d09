/* prep_queue.c - a list that is searched: it has at most --max-requests entries, a few microseconds.
 *
 * Fairness among tenants is start-time fair queueing: a tenant's counter rises by the bytes taken from its
 * requests. A tenant that comes back starts at the counter of the tenant served last, so that it has no
 * credit for the time it was away. Within a tenant the turn is a time: a request of 1 KiB goes before any
 * number of 64 KiB ones that have waited for less than a second. A later request overtakes no request that
 * has waited a minute. */
#include "api/prep_queue.h"

#include "base/check.h"
#include "base/hash.h"

/* The cost of a request in addition to its bytes. */
#define REQUEST_BYTES 1024

struct waiter {
    struct list link; /* in q->idle; in no list: it was woken */
    pthread_cond_t woken;
};

void prep_queue_init(struct prep_queue *q)
{
    *q = (struct prep_queue){.closed = false};
    pthread_mutex_init(&q->lock, NULL);
    list_init(&q->waiting);
    for (int i = 0; i < PREP_LANES; i++)
        list_init(&q->idle[i]);
}

void prep_queue_done(struct prep_queue *q)
{
    ASSERT(list_empty(&q->waiting));
    pthread_mutex_destroy(&q->lock);
}

static bool may_take(enum prep_lane lane, const struct prep_entry *e)
{
    static const size_t limits[PREP_LANES] = {PREP_SHORT_BYTES, PREP_MEDIUM_BYTES, SIZE_MAX};
    return lane == PREP_LONG || e->bytes < limits[lane];
}

static uint64_t *served_of(struct prep_queue *q, const struct prep_entry *e)
{
    return &q->served[hash_bytes(&e->tenant, sizeof(e->tenant)) % PREP_TENANTS];
}

static void wake(struct waiter *w)
{
    list_remove(&w->link);
    pthread_cond_signal(&w->woken);
}

static bool has_tenant(struct prep_queue *q, const struct prep_entry *e)
{
    LIST_EACH(it, &q->waiting)
        if (LIST_ENTRY(it, struct prep_entry, link)->tenant == e->tenant)
            return true;
    return false;
}

void prep_queue_put(struct prep_queue *q, struct prep_entry *e, uint64_t now_ns)
{
    pthread_mutex_lock(&q->lock);
    uint64_t *served = served_of(q, e);
    if (!has_tenant(q, e))
        *served = MAX_OF(*served, q->served_last);
    e->turn_ns = now_ns + MIN_OF(e->bytes, PREP_TURN_NS_MAX / PREP_TURN_NS_PER_BYTE) * PREP_TURN_NS_PER_BYTE;
    list_push_back(&q->waiting, &e->link);
    q->count++;
    for (int lane = 0; lane < PREP_LANES; lane++) {
        if (list_empty(&q->idle[lane]) || !may_take((enum prep_lane)lane, e))
            continue;
        wake(LIST_FIRST(&q->idle[lane], struct waiter, link));
        break;
    }
    pthread_mutex_unlock(&q->lock);
}

/* True when x goes before y. */
static bool goes_before(struct prep_queue *q, const struct prep_entry *x, const struct prep_entry *y)
{
    uint64_t a = *served_of(q, x), b = *served_of(q, y);
    return a != b ? a < b : x->turn_ns < y->turn_ns;
}

static struct prep_entry *take_locked(struct prep_queue *q, enum prep_lane lane)
{
    struct prep_entry *first = NULL;
    LIST_EACH(it, &q->waiting) {
        struct prep_entry *e = LIST_ENTRY(it, struct prep_entry, link);
        if (may_take(lane, e) && (!first || goes_before(q, e, first)))
            first = e;
    }
    if (!first)
        return NULL;
    uint64_t *served = served_of(q, first);
    q->served_last = MAX_OF(q->served_last, *served);
    *served += first->bytes + REQUEST_BYTES;
    q->count--;
    list_remove(&first->link);
    return first;
}

struct prep_entry *prep_queue_take(struct prep_queue *q, enum prep_lane lane)
{
    pthread_mutex_lock(&q->lock);
    struct prep_entry *e = take_locked(q, lane);
    pthread_mutex_unlock(&q->lock);
    return e;
}

struct prep_entry *prep_queue_wait(struct prep_queue *q, enum prep_lane lane)
{
    struct waiter w;
    struct prep_entry *e;
    list_init(&w.link);
    pthread_cond_init(&w.woken, NULL);
    pthread_mutex_lock(&q->lock);
    while (!(e = take_locked(q, lane)) && !q->closed) {
        list_push_back(&q->idle[lane], &w.link);
        while (!list_empty(&w.link))
            pthread_cond_wait(&w.woken, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    pthread_cond_destroy(&w.woken);
    return e;
}

void prep_queue_close(struct prep_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    for (int lane = 0; lane < PREP_LANES; lane++)
        LIST_EACH(it, &q->idle[lane])
            wake(LIST_ENTRY(it, struct waiter, link));
    pthread_mutex_unlock(&q->lock);
}

void prep_queue_numbers(struct prep_queue *q, struct prep_queue_numbers *ret)
{
    *ret = (struct prep_queue_numbers){0};
    pthread_mutex_lock(&q->lock);
    ret->count = q->count;
    LIST_EACH(it, &q->waiting)
        ret->bytes += LIST_ENTRY(it, struct prep_entry, link)->bytes;
    pthread_mutex_unlock(&q->lock);
}
