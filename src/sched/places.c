/* places.c - lists and counts. Both lists are short (rows of a batch, a queue of some hundred) and are
 * searched from the back, where most rows come and the newest are. */
#include "sched/places.h"

#include "sched/row_cache.h"
#include "sched/row_fetch.h"

#include "base/check.h"

#define ROW SCHED_ROW

void places_rank(struct sched *s, struct sched_row *row, uint64_t arrival_ns)
{
    int64_t p = MIN_OF(MAX_OF(row->priority, -SCHED_PRIORITY_MAX), SCHED_PRIORITY_MAX);
    row->rank = (int64_t)arrival_ns + p * (int64_t)SCHED_PRIORITY_NS;
    row->sequence = s->sequence++;
}

typedef bool order_fn(const struct sched_row *a, const struct sched_row *b);

/* From the back: most rows come in order. */
static void insert_ordered(struct list *list, struct sched_row *row, order_fn *before)
{
    ASSERT(list_empty(&row->link));
    struct list *at = list->prev;
    while (at != list && before(row, ROW(at)))
        at = at->prev;
    list_insert_between(at, &row->link, at->next);
}

/* ---- the queue ---- */

void places_enqueue(struct sched *s, struct sched_row *row, enum sched_phase phase)
{
    row->phase = phase;
    ASSERT(sched_waits(row) && phase != SCHED_FETCHING);
    insert_ordered(&s->queue, row, sched_queued_before);
    s->waiting_count++;
    s->waiting_paused += row->paused;
    s->parked_count += phase == SCHED_PARKED;
}

void places_leave_queue(struct sched *s, struct sched_row *row)
{
    ASSERT(sched_waits(row) && s->waiting_count > 0);
    ASSERT(!row->paused || s->waiting_paused > 0);
    ASSERT(row->phase != SCHED_FETCHING || s->fetching_count > 0);
    ASSERT(row->phase != SCHED_PARKED || s->parked_count > 0);
    list_remove(&row->link);
    s->waiting_count--;
    s->waiting_paused -= row->paused;
    s->fetching_count -= row->phase == SCHED_FETCHING;
    s->parked_count -= row->phase == SCHED_PARKED;
}

void places_enqueue_last(struct sched *s, struct sched_row *row)
{
    ASSERT(list_empty(&row->link));
    ASSERT(sched_waits(row));
    places_rank(s, row, MAX_OF(s->now_ns, row->arrival_ns));
    row->returns = false;
    places_enqueue(s, row, row->phase);
}

/* ---- places ---- */

void places_enter(struct sched *s, struct sched_row *row, enum sched_phase phase)
{
    ASSERT(!row->paused && s->running_count < s->opts.rows_max);
    row->phase = phase;
    insert_ordered(&s->running, row, sched_goes_before);
    s->running_count++;
    ASSERT(sched_has_place(row));
    ASSERT(row->share->running < row->share->rows);
    row->share->running++;
}

static void take_out(struct sched *s, struct sched_row *row)
{
    ASSERT(sched_has_place(row));
    ASSERT(s->running_count > 0 && row->share->running > 0);
    ASSERT(!row->paused || s->paused_count > 0);
    list_remove(&row->link);
    s->running_count--;
    s->paused_count -= row->paused;
    row->share->running--;
}

void places_leave(struct sched *s, struct sched_row *row)
{
    bool has_pages = sched_has_place(row) || row->phase == SCHED_PARKED;
    if (sched_has_place(row))
        take_out(s, row);
    else
        places_leave_queue(s, row);
    if (has_pages)
        row_cache_leave(&s->opts, row);
    else if (row_fetch_holds(row))
        row_fetch_drop(&s->opts, row);
    ASSERT(row->page_count == 0 && row->state == NONE);
    ASSERT(list_empty(&row->link));
}

void places_park(struct sched *s, struct sched_row *row)
{
    take_out(s, row);
    row->goes_on = row->phase;
    row->returns = true;
    row->examined = s->plan_number;
    places_enqueue(s, row, SCHED_PARKED);
}

void places_preempt(struct sched *s, struct sched_row *row)
{
    ASSERT(sched_has_place(row) || row->phase == SCHED_PARKED);
    places_leave(s, row);
    row->returns |= row->phase != SCHED_PARKED;
    places_enqueue(s, row, SCHED_PREEMPTED);
    row->examined = s->plan_number;
    row->preemptions++;
    s->preemptions++;
    ASSERT(row->done == 0);
}

void places_end(struct sched *s, struct sched_row *row, enum sched_end why)
{
    places_leave(s, row);
    shares_give(row->share);
    row->phase = SCHED_ENDED;
    row->end = why;
    ASSERT(list_empty(&row->link));
    list_push_back(&s->ended, &row->link);
}

/* ---- looking for one ---- */

struct sched_row *places_newest_paused(struct sched *s, const struct sched_row *but)
{
    for (struct list *it = s->running.prev; s->paused_count > 0 && it != &s->running; it = it->prev)
        if (ROW(it)->paused && ROW(it) != but)
            return ROW(it);
    return NULL;
}

struct sched_row *places_newest_parked(struct sched *s, const struct sched_row *but, bool paused_only)
{
    struct sched_row *newest = NULL;
    for (struct list *it = s->queue.prev; s->parked_count > 0 && it != &s->queue; it = it->prev) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_PARKED || row == but || (paused_only && !row->paused))
            continue;
        if (!newest || (row->paused != newest->paused ? row->paused : sched_goes_before(newest, row)))
            newest = row;
    }
    ASSERT(!newest || newest->phase == SCHED_PARKED);
    return newest;
}

const struct sched_row *places_oldest(const struct sched *s)
{
    for (struct list *it = s->running.next; it != &s->running; it = it->next)
        if (!ROW(it)->paused)
            return ROW(it);
    return NULL;
}

struct sched_row *places_newest_of(struct sched *s, const struct share *tenant)
{
    const struct sched_row *oldest = places_oldest(s);
    for (struct list *it = s->running.prev; it != &s->running; it = it->prev)
        if (ROW(it)->share == tenant && ROW(it) != oldest && ROW(it) != s->oldest)
            return ROW(it);
    return NULL;
}
