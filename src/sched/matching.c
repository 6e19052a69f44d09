/* matching.c - charges, payments, and who is held back.
 *
 * The time is measured by the caller, on the thread that matches, so another program's load on the machine is
 * no part of it. What a sequence took last estimates what it takes next: masks of one grammar differ, but a
 * slow one is slow again. A sequence that took nothing yet counts as nothing; it is charged afterwards. */
#include "sched/matching.h"

#include "base/check.h"

#define SEQ SCHED_SEQ

void matching_charge(struct sched_seq *seq)
{
    ASSERT(seq->share && seq->share->owed_us <= MATCHING_OWED_MAX_US);
    uint64_t us = seq->match_ns / 1000;
    seq->match_ns = 0;
    seq->share->owed_us = (uint32_t)MIN_OF(seq->share->owed_us + us, (uint64_t)MATCHING_OWED_MAX_US);
}

/* A sequence that the last plan held back may have taken time for its drafts alone: no estimate. */
static void charge_all(const struct sched *s, struct list *list)
{
    LIST_EACH(it, list) {
        struct sched_seq *seq = SEQ(it);
        if (seq->match_ns > 0 && seq->held + 1 != s->plan_number)
            seq->match_last_ns = seq->match_ns;
        matching_charge(seq);
    }
}

/* Returns the number of tenants that can run. */
static uint32_t pay(struct sched *s, uint64_t since_ns)
{
    uint64_t weights = 0;
    uint32_t tenants = 0;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, struct share, link);
        bool can_run = x->active == s->plan_number;
        tenants += can_run;
        weights += can_run ? x->weight : 0;
    }
    uint64_t us = MIN_OF(since_ns / 1000, (uint64_t)MATCHING_OWED_MAX_US * SHARES_MAX * SHARE_WEIGHT_MAX);
    LIST_EACH(at, &s->shares.present) {
        struct share *x = LIST_ENTRY(at, struct share, link);
        uint64_t paid = weights > x->weight ? us * x->weight / weights : us;
        ASSERT(x->owed_us <= MATCHING_OWED_MAX_US && paid <= us);
        x->owed_us -= (uint32_t)MIN_OF(paid, (uint64_t)x->owed_us);
    }
    ASSERT(tenants <= SHARES_MAX);
    return tenants;
}

/* Takes a token in this plan, as far as pages and images are concerned. */
static bool is_matched(const struct sched *s, const struct sched_seq *seq)
{
    return seq->matched && !seq->paused && seq->secured == s->plan_number && seq->held != s->plan_number;
}

static void hold(struct sched *s, struct sched_seq *seq)
{
    ASSERT(seq->matched && sched_has_place(seq));
    seq->held = s->plan_number;
    s->holds = true;
}

static void hold_those_that_owe(struct sched *s)
{
    LIST_EACH(it, &s->running)
        if (is_matched(s, SEQ(it)) && SEQ(it)->share->owed_us > 0)
            hold(s, SEQ(it));
}

/* The sequence that waits longest for a token, of those that took time and were not taken yet. */
static struct sched_seq *longest_waiting(struct sched *s, uint64_t after_ns, uint64_t after_order)
{
    struct sched_seq *first = NULL;
    LIST_EACH(it, &s->running) {
        struct sched_seq *seq = SEQ(it);
        bool later = seq->served_ns > after_ns || (seq->served_ns == after_ns && seq->order >= after_order);
        if (!is_matched(s, seq) || seq->match_last_ns == 0 || !later)
            continue;
        if (!first || seq->served_ns < first->served_ns ||
            (seq->served_ns == first->served_ns && seq->order < first->order))
            first = seq;
    }
    ASSERT(!first || (first->match_last_ns > 0 && first->served_ns >= after_ns));
    return first;
}

static uint64_t sum_of_last(struct sched *s)
{
    uint64_t sum = 0;
    LIST_EACH(it, &s->running)
        sum += is_matched(s, SEQ(it)) ? SEQ(it)->match_last_ns : 0;
    ASSERT(sum == 0 || s->running_count > 0);
    return sum;
}

static void hold_beyond(struct sched *s, uint64_t match_ns_max)
{
    uint64_t sum = 0, after_ns = 0, after_order = 0;
    uint32_t taken = 0;
    struct sched_seq *seq;
    if (match_ns_max == 0 || sum_of_last(s) <= match_ns_max)
        return;
    while ((seq = longest_waiting(s, after_ns, after_order)) != NULL) {
        after_ns = seq->served_ns;
        after_order = seq->order + 1;
        sum += seq->match_last_ns;
        if (taken++ > 0 && sum > match_ns_max)
            hold(s, seq);
    }
    ASSERT(taken > 0);
}

void matching_plan(struct sched *s, uint64_t since_ns, uint64_t match_ns_max)
{
    ASSERT(!s->planned && s->seq_count == 0);
    s->holds = false;
    charge_all(s, &s->running);
    charge_all(s, &s->queue);
    charge_all(s, &s->fetching);
    if (pay(s, since_ns) > 1)
        hold_those_that_owe(s);
    hold_beyond(s, match_ns_max);
}
