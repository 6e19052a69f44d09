/* prep_queue.c - a fair_queue.h with threads that wait for its entries.
 *
 * A tenant is charged the bytes of its requests. Within a tenant the key is a time: a request of 1 KiB goes
 * before any number of 64 KiB ones that have waited for less than a second. A later request overtakes no
 * request that has waited a minute. */
#include "api/prep_queue.h"

#include "base/check.h"

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

static bool may_take(int lane, const struct fair_entry *e)
{
    static const size_t limits[PREP_LANES] = {PREP_SHORT_BYTES, PREP_MEDIUM_BYTES, SIZE_MAX};
    return lane == PREP_LONG || entry_of(e)->bytes < limits[lane];
}

static void wake(struct waiter *w)
{
    list_remove(&w->link);
    pthread_cond_signal(&w->woken);
}

void prep_queue_put(struct prep_queue *q, struct prep_entry *e, uint64_t now_ns)
{
    pthread_mutex_lock(&q->lock);
    e->fair.key = now_ns + MIN_OF(e->bytes, PREP_TURN_NS_MAX / PREP_TURN_NS_PER_BYTE) * PREP_TURN_NS_PER_BYTE;
    e->fair.charge = e->bytes + REQUEST_BYTES;
    fair_queue_put(&q->entries, &e->fair);
    for (int lane = 0; lane < PREP_LANES; lane++) {
        if (list_empty(&q->idle[lane]) || !may_take(lane, &e->fair))
            continue;
        wake(LIST_FIRST(&q->idle[lane], struct waiter, link));
        break;
    }
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
