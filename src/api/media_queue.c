/* media_queue.c - a list that is searched, which takes a few microseconds: its length is at most `tasks_max`
 * and one more for each thread.
 *
 * Fairness among tenants is start-time fair queueing, as in prep_queue.c. A tenant's counter rises by the
 * estimated time taken. A tenant that comes back begins where the tenant taken from last stands. */
#include "api/media_queue.h"

#include "base/check.h"
#include "base/hash.h"

/* Measured: 9 ns per pixel for a JPEG, 21 for a progressive one, 22 for a WebP, 29 for a PNG. */
#define NS_PER_PIXEL 25
#define NS_PER_BYTE  20
/* Without a header: as with 5 pixels per byte, which a photograph has. */
#define NS_PER_UNKNOWN_BYTE 145
#define COST_MIN_NS         1000000

void media_queue_init(struct media_queue *q)
{
    *q = (struct media_queue){.count = 0};
    list_init(&q->waiting);
}

static struct media_entry *entry_of(struct list *l)
{
    return LIST_ENTRY(l, struct media_entry, link);
}

static uint64_t *served_of(struct media_queue *q, const struct media_entry *e)
{
    return &q->served_ns[hash_bytes(&e->tenant, sizeof(e->tenant)) % MEDIA_QUEUE_TENANTS];
}

static bool has_tenant(struct media_queue *q, const struct media_entry *e)
{
    LIST_EACH(it, &q->waiting)
        if (entry_of(it)->tenant == e->tenant)
            return true;
    return false;
}

void media_queue_put(struct media_queue *q, struct media_entry *e)
{
    uint64_t *served = served_of(q, e);
    ASSERT(list_empty(&e->link) && e->turn_ns <= e->cost_ns);
    if (!has_tenant(q, e))
        *served = MAX_OF(*served, q->served_last_ns);
    list_push_back(&q->waiting, &e->link);
    q->count++;
}

void media_queue_remove(struct media_queue *q, struct media_entry *e)
{
    ASSERT(!list_empty(&e->link) && q->count > 0);
    list_remove(&e->link);
    q->count--;
}

static uint64_t key_of(const struct media_entry *e)
{
    return e->arrived_ns + MIN_OF(e->cost_ns, (uint64_t)MEDIA_AGING_NS);
}

static bool goes_before(struct media_queue *q, const struct media_entry *x, const struct media_entry *y)
{
    uint64_t a = *served_of(q, x), b = *served_of(q, y);
    return a != b ? a < b : key_of(x) < key_of(y);
}

static bool is_in(enum media_lane lane, const struct media_entry *e)
{
    if (lane == MEDIA_LANE_SMALL)
        return !e->video && e->turn_ns <= MEDIA_SMALL_NS;
    return lane == MEDIA_LANE_ALL || !e->video;
}

struct media_entry *media_queue_take(struct media_queue *q, enum media_lane lane)
{
    struct media_entry *first = NULL;
    LIST_EACH(it, &q->waiting) {
        struct media_entry *e = entry_of(it);
        if (is_in(lane, e) && (!first || goes_before(q, e, first)))
            first = e;
    }
    if (!first)
        return NULL;
    uint64_t *served = served_of(q, first);
    q->served_last_ns = MAX_OF(q->served_last_ns, *served);
    *served += first->turn_ns;
    media_queue_remove(q, first);
    return first;
}

uint64_t media_queue_cost_ns(uint64_t bytes, uint64_t pixels)
{
    uint64_t ns = pixels > 0 ? pixels * NS_PER_PIXEL + bytes * NS_PER_BYTE : bytes * NS_PER_UNKNOWN_BYTE;
    return COST_MIN_NS + ns;
}
