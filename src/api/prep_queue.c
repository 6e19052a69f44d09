/* prep_queue.c - a fair_queue.h with threads that wait for its entries.
 *
 * A tenant is charged the cost of its requests as they are taken, and the rest of their processor time when
 * they end. Within a tenant the key is a time: a request of 1 KiB goes before any number of 64 KiB ones that
 * have waited for less than a second. A later request overtakes no request that has waited a minute. */
#include "api/prep_queue.h"

#include "base/check.h"

/* The cost of a request in addition to its bytes. */
#define REQUEST_BYTES 1024

/* An entry that costs less beyond its bytes costs nothing beyond them: a template, or a thread's start. */
#define EXTRA_BYTES_MIN ((uint64_t)64 << 10)
/* The part of the last entry in the moving average. */
#define EXTRA_PART 4

struct waiter {
    struct list link; /* in q->idle; in no list: it was woken */
    pthread_cond_t woken;
};

void prep_queue_init(struct prep_queue *q)
{
    *q = (struct prep_queue){.closed = false};
    pthread_mutex_init(&q->lock, NULL);
    fair_queue_init(&q->entries);
    for (int i = 0; i < PREP_LANES; i++)
        list_init(&q->idle[i]);
}

void prep_queue_done(struct prep_queue *q)
{
    ASSERT(q->entries.count == 0);
    pthread_mutex_destroy(&q->lock);
}

static struct prep_entry *entry_of(const struct fair_entry *e)
{
    return CONTAINER(e, struct prep_entry, fair);
}

/* The narrowest lane that a cost is not too large for. */
static enum prep_lane lane_of(size_t bytes)
{
    return bytes < PREP_SHORT_BYTES ? PREP_SHORT : bytes < PREP_MEDIUM_BYTES ? PREP_MEDIUM : PREP_LONG;
}

static bool may_take(int lane, const struct fair_entry *e)
{
    return (int)lane_of(entry_of(e)->cost_bytes) <= lane;
}

/* The past of a tenant; one that is not known begins without any. */
static struct prep_past *past_of(struct prep_queue *q, uint64_t tenant)
{
    struct prep_past *oldest = &q->past[0];
    for (size_t i = 0; i < PREP_TENANTS; i++) {
        struct prep_past *p = &q->past[i];
        if (p->used > 0 && p->tenant == tenant) {
            p->used = ++q->uses;
            return p;
        }
        if (p->used < oldest->used)
            oldest = p;
    }
    *oldest = (struct prep_past){.tenant = tenant, .used = ++q->uses};
    return oldest;
}

static void wake(struct waiter *w)
{
    ASSERT(!list_empty(&w->link));
    list_remove(&w->link);
    pthread_cond_signal(&w->woken);
}

/* Wakes the idle thread of the narrowest lane that may take the entry. */
static void wake_for(struct prep_queue *q, const struct prep_entry *e)
{
    for (int lane = 0; lane < PREP_LANES; lane++) {
        if (list_empty(&q->idle[lane]) || !may_take(lane, &e->fair))
            continue;
        wake(LIST_FIRST(&q->idle[lane], struct waiter, link));
        return;
    }
}

void prep_queue_put(struct prep_queue *q, struct prep_entry *e, uint64_t now_ns)
{
    pthread_mutex_lock(&q->lock);
    e->fair.key = now_ns + MIN_OF(e->bytes, PREP_TURN_NS_MAX / PREP_TURN_NS_PER_BYTE) * PREP_TURN_NS_PER_BYTE;
    e->cost_bytes = e->bytes + past_of(q, e->fair.tenant)->extra_bytes[lane_of(e->bytes)];
    e->fair.charge = e->bytes + REQUEST_BYTES;
    fair_queue_put(&q->entries, &e->fair);
    wake_for(q, e);
    pthread_mutex_unlock(&q->lock);
}

static struct prep_entry *take_locked(struct prep_queue *q, enum prep_lane lane)
{
    struct fair_entry *e = fair_queue_take(&q->entries, may_take, (int)lane);
    return e ? entry_of(e) : NULL;
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

void prep_queue_took(struct prep_queue *q, uint64_t tenant, size_t bytes, uint64_t cpu_ns)
{
    uint64_t took = cpu_ns / PREP_NS_PER_BYTE, extra = took > bytes ? took - bytes : 0;
    if (extra < EXTRA_BYTES_MIN)
        extra = 0;
    pthread_mutex_lock(&q->lock);
    const enum prep_lane size = lane_of(bytes);
    uint64_t *average = &past_of(q, tenant)->extra_bytes[size];
    *average = (*average * (EXTRA_PART - 1) + extra) / EXTRA_PART;
    /* Entries of that size that wait already are of the same kind. A thread that was woken for one may not
     * take it now. */
    LIST_EACH(it, &q->entries.waiting) {
        struct prep_entry *e = entry_of(LIST_ENTRY(it, struct fair_entry, link));
        if (e->fair.tenant != tenant || lane_of(e->bytes) != size)
            continue;
        e->cost_bytes = e->bytes + *average;
        wake_for(q, e);
    }
    fair_queue_charge(&q->entries, tenant, extra);
    pthread_mutex_unlock(&q->lock);
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
    ret->count = q->entries.count;
    LIST_EACH(it, &q->entries.waiting)
        ret->bytes += entry_of(LIST_ENTRY(it, struct fair_entry, link))->bytes;
    pthread_mutex_unlock(&q->lock);
}
