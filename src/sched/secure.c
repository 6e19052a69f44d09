/* secure.c - the page, and the sequence that makes room for it.
 *
 * The pass visits running sequences from the oldest on, and `examined` marks the visited ones. It takes
 * pages from one victim at a time until the sequence has its page. When memory is refused and no other
 * holder is releasing some, `refused_ns` notes the time: admission stays within committed memory for a while
 * after it. This pass ends a sequence only when it is the only one with a place, still gets no page, and
 * neither another holder is releasing memory nor another program may do so. */
#include "sched/secure.h"

#include "sched/places.h"
#include "sched/sched_state.h"
#include "sched/seq_cache.h"
#include "sched/shares.h"

#include "base/check.h"

#include <errno.h>

#define SEQ SCHED_SEQ

bool secure_waits_for_help(const struct sched *s)
{
    return s->helped == s->plan_number;
}

void secure_note_refusal(struct sched *s, bool page)
{
    enum sched_memory m =
        s->opts.memory_refused ? s->opts.memory_refused(s->opts.memory_refused_arg) : SCHED_MEMORY_NONE;
    if (m == SCHED_MEMORY_REQUESTED)
        s->helped = s->plan_number;
    if (secure_waits_for_help(s) || (m == SCHED_MEMORY_NONE && !page))
        return;
    ASSERT(m != SCHED_MEMORY_REQUESTED);
    s->refused = true;
    s->refused_ns = s->now_ns;
    if (m == SCHED_MEMORY_TAKEN && s->taken_ns == 0)
        s->taken_ns = MAX_OF(s->now_ns, 1u);
}

bool secure_page(struct sched *s, struct sched_seq *seq)
{
    int r = seq_cache_extend(&s->opts, seq);
    if (r == -ENOMEM)
        secure_note_refusal(s, true);
    ASSERT(r == 0 || r == -ENOMEM || r == -ENOSPC);
    return r == 0;
}

/* The newest sequence of the tenant with the most places for its weight, if that tenant has more than the
 * one of `seq`. Equal places are not a reason here, however much each tenant was served: both sequences run,
 * and two tenants would preempt each other in turn. In admit.c, where the tenant that needs pages has no
 * place at all, tokens served decide among equals. */
static struct sched_seq *newest_of_the_crowded(struct sched *s, const struct sched_seq *seq)
{
    const struct share *most = seq->share;
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        const struct share *x = SEQ(it)->share;
        if ((uint64_t)x->running * most->weight > (uint64_t)most->running * x->weight)
            most = x;
    }
    return most != seq->share && most->running >= 2 ? places_newest_of(s, most) : NULL;
}

/* The sequence that is preempted for `seq`. NULL: none. */
static struct sched_seq *find_victim(struct sched *s, const struct sched_seq *seq)
{
    struct sched_seq *victim = places_newest_parked(s, seq, false);
    if (!victim)
        victim = places_newest_paused(s, seq);
    if (!victim)
        victim = newest_of_the_crowded(s, seq);
    if (!victim && SEQ(s->running.prev) != seq)
        victim = SEQ(s->running.prev);
    ASSERT(victim != seq);
    return victim;
}

/* Gets the pages that the sequence needs to go on. False: not in this step. */
static bool secure(struct sched *s, struct sched_seq *seq)
{
    ASSERT(sched_has_place(seq) && !seq->paused);
    while (!sched_has_page_for_next(seq)) {
        if (secure_page(s, seq) || places_drop_fetched(s, NULL))
            continue;
        struct sched_seq *victim = secure_waits_for_help(s) ? NULL : find_victim(s, seq);
        if (!victim)
            return false;
        places_preempt(s, victim);
    }
    ASSERT(sched_has_page_for_next(seq));
    seq->secured = s->plan_number;
    return true;
}

/* The oldest sequence with a place that is not paused and that this plan has not examined. NULL: none. */
static struct sched_seq *next_seq(struct sched *s)
{
    for (struct list *it = s->running.next; it != &s->running; it = it->next)
        if (!SEQ(it)->paused && SEQ(it)->examined != s->plan_number)
            return SEQ(it);
    return NULL;
}

void secure_running(struct sched *s)
{
    struct sched_seq *seq;
    /* A sequence that makes room may stand anywhere in the list, so each search begins at its head. */
    while ((seq = next_seq(s)) != NULL) {
        seq->examined = s->plan_number;
        if (secure(s, seq) || s->running_count > 1 || secure_waits_for_help(s) || sched_waits_for_memory(s))
            continue;
        ASSERT(s->running_count == 1);
        places_end(s, seq, SCHED_END_NO_MEMORY);
        return;
    }
}
