/* places.c - lists and counts. The lists are short (sequences of a batch, a queue of some hundred) and are
 * searched from the back, where most sequences are inserted and the newest are. */
#include "sched/places.h"

#include "sched/sched_state.h"
#include "sched/seq_cache.h"
#include "sched/seq_fetch.h"
#include "sched/shares.h"

#include "base/check.h"
#include "base/none.h"

#define SEQ SCHED_SEQ

void places_rank(struct sched *s, struct sched_seq *seq, uint64_t arrival_ns)
{
    int64_t p = MIN_OF(MAX_OF(seq->priority, -SCHED_PRIORITY_MAX), SCHED_PRIORITY_MAX);
    seq->rank = (int64_t)arrival_ns + p * (int64_t)SCHED_PRIORITY_NS;
    seq->order = s->order++;
}

typedef bool order_fn(const struct sched_seq *a, const struct sched_seq *b);

/* From the back: most sequences come in order. */
static void insert_ordered(struct list *list, struct sched_seq *seq, order_fn *before)
{
    ASSERT(list_empty(&seq->link));
    struct list *at = list->prev;
    while (at != list && before(seq, SEQ(at)))
        at = at->prev;
    list_insert_between(at, &seq->link, at->next);
}

/* ---- the queue ---- */

void places_enqueue(struct sched *s, struct sched_seq *seq, enum sched_phase phase)
{
    seq->phase = phase;
    ASSERT(sched_waits(seq) && phase != SCHED_FETCHING);
    insert_ordered(&s->queue, seq, sched_queued_before);
    s->waiting_count++;
    s->waiting_paused += seq->paused;
    s->parked_count += phase == SCHED_PARKED;
}

void places_leave_queue(struct sched *s, struct sched_seq *seq)
{
    ASSERT(sched_waits(seq) && s->waiting_count > 0);
    ASSERT(!seq->paused || s->waiting_paused > 0);
    ASSERT(seq->phase != SCHED_FETCHING || s->fetching_count > 0);
    ASSERT(seq->phase != SCHED_PARKED || s->parked_count > 0);
    list_remove(&seq->link);
    s->waiting_count--;
    s->waiting_paused -= seq->paused;
    s->fetching_count -= seq->phase == SCHED_FETCHING;
    s->parked_count -= seq->phase == SCHED_PARKED;
}

void places_enqueue_last(struct sched *s, struct sched_seq *seq)
{
    ASSERT(list_empty(&seq->link));
    ASSERT(sched_waits(seq));
    places_rank(s, seq, MAX_OF(s->now_ns, seq->arrival_ns));
    seq->returns = false;
    places_enqueue(s, seq, seq->phase);
}

/* ---- places ---- */

void places_enter(struct sched *s, struct sched_seq *seq, enum sched_phase phase)
{
    ASSERT(!seq->paused && s->running_count < s->opts.seqs_max);
    seq->phase = phase;
    insert_ordered(&s->running, seq, sched_goes_before);
    s->running_count++;
    ASSERT(sched_has_place(seq));
    ASSERT(seq->share->running < seq->share->seqs);
    seq->share->running++;
}

static void take_out(struct sched *s, struct sched_seq *seq)
{
    ASSERT(sched_has_place(seq));
    ASSERT(s->running_count > 0 && seq->share->running > 0);
    ASSERT(!seq->paused || s->paused_count > 0);
    list_remove(&seq->link);
    s->running_count--;
    s->paused_count -= seq->paused;
    seq->share->running--;
}

void places_leave(struct sched *s, struct sched_seq *seq)
{
    bool has_pages = sched_has_place(seq) || seq->phase == SCHED_PARKED;
    if (sched_has_place(seq))
        take_out(s, seq);
    else
        places_leave_queue(s, seq);
    if (has_pages)
        seq_cache_leave(&s->opts, seq);
    else if (seq_fetch_holds(seq))
        seq_fetch_drop(&s->opts, seq);
    ASSERT(seq->page_count == 0 && seq->state == NONE);
    ASSERT(list_empty(&seq->link));
}

void places_park(struct sched *s, struct sched_seq *seq)
{
    take_out(s, seq);
    seq->goes_on = seq->phase;
    seq->returns = true;
    seq->examined = s->plan_number;
    places_enqueue(s, seq, SCHED_PARKED);
}

void places_preempt(struct sched *s, struct sched_seq *seq)
{
    ASSERT(sched_has_place(seq) || seq->phase == SCHED_PARKED);
    places_leave(s, seq);
    seq->returns |= seq->phase != SCHED_PARKED;
    places_enqueue(s, seq, SCHED_PREEMPTED);
    seq->examined = s->plan_number;
    seq->preemptions++;
    s->preemptions++;
    ASSERT(seq->done == 0);
}

void places_end(struct sched *s, struct sched_seq *seq, enum sched_end why)
{
    places_leave(s, seq);
    shares_give(seq->share);
    seq->phase = SCHED_ENDED;
    seq->end = why;
    ASSERT(list_empty(&seq->link));
    list_push_back(&s->ended, &seq->link);
}

static struct sched_seq *newest_holder(const struct list *list, const struct sched_seq *but)
{
    for (struct list *it = list->prev; it != list; it = it->prev)
        if (SEQ(it) != but && seq_fetch_holds(SEQ(it)))
            return SEQ(it);
    return NULL;
}

bool places_drop_fetched(struct sched *s, struct sched_seq *but)
{
    struct sched_seq *seq = newest_holder(&s->fetching, but);
    if (!seq)
        seq = newest_holder(&s->queue, but);
    if (!seq && but && seq_fetch_holds(but))
        seq = but;
    if (!seq)
        return false;
    ASSERT(seq_fetch_holds(seq));
    bool fetches = seq->phase == SCHED_FETCHING;
    s->fetches_failed += fetches;
    seq_fetch_drop(&s->opts, seq);
    if (fetches) {
        places_leave_queue(s, seq);
        places_enqueue(s, seq, SCHED_QUEUED);
    }
    return true;
}

/* ---- looking for one ---- */

struct sched_seq *places_newest_paused(struct sched *s, const struct sched_seq *but)
{
    for (struct list *it = s->running.prev; s->paused_count > 0 && it != &s->running; it = it->prev)
        if (SEQ(it)->paused && SEQ(it) != but)
            return SEQ(it);
    return NULL;
}

struct sched_seq *places_newest_parked(struct sched *s, const struct sched_seq *but, bool paused_only)
{
    struct sched_seq *newest = NULL;
    for (struct list *it = s->queue.prev; s->parked_count > 0 && it != &s->queue; it = it->prev) {
        struct sched_seq *seq = SEQ(it);
        if (seq->phase != SCHED_PARKED || seq == but || (paused_only && !seq->paused))
            continue;
        if (!newest || (seq->paused != newest->paused ? seq->paused : sched_goes_before(newest, seq)))
            newest = seq;
    }
    ASSERT(!newest || newest->phase == SCHED_PARKED);
    return newest;
}

const struct sched_seq *places_oldest(const struct sched *s)
{
    for (struct list *it = s->running.next; it != &s->running; it = it->next)
        if (!SEQ(it)->paused)
            return SEQ(it);
    return NULL;
}

struct sched_seq *places_newest_of(struct sched *s, const struct share *tenant)
{
    const struct sched_seq *oldest = places_oldest(s);
    for (struct list *it = s->running.prev; it != &s->running; it = it->prev)
        if (SEQ(it)->share == tenant && SEQ(it) != oldest && SEQ(it) != s->oldest)
            return SEQ(it);
    return NULL;
}
