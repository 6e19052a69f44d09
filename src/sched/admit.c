/* admit.c - the choice, the place, the pages, in this order.
 *
 * A sequence whose tenant can get no place is not looked up in the prefix index, and neither are that
 * tenant's other sequences. So with a full batch and a long queue a plan costs a walk over the queue and one
 * look-up for each tenant that may have a place. `examined` marks each sequence and tenant that this plan
 * has turned down; a sequence is turned down when it waits for a prefix that another one computes. A
 * sequence that loses its place in a plan does not get one in the same plan, so each plan ends. */
#include "sched/admit.h"

#include "sched/places.h"
#include "sched/sched_state.h"
#include "sched/seq_cache.h"
#include "sched/seq_fetch.h"
#include "sched/secure.h"
#include "sched/shares.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/share_list.h"
#include "cache/tier_io.h"

#define BLOCKED_NS SCHED_AGE_NS

#define SEQ SCHED_SEQ

bool admit_should_wait(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit)
{
    LIST_EACH(it, &s->running)
        if (seq_cache_worth_waiting(&s->opts, seq, hit, SEQ(it)))
            return true;
    LIST_EACH(at, &s->fetching)
        if (seq_fetch_worth_waiting(&s->opts, seq, hit, SEQ(at)))
            return true;
    return false;
}

/* ---- the sequence ---- */

/* Sequences of one tenant keep the queue's order. */
static bool is_before(const struct sched_seq *a, const struct sched_seq *b)
{
    ASSERT(sched_waits(a) && sched_waits(b));
    if (a->share == b->share)
        return false;
    if (share_goes_before(a->share, b->share) || share_goes_before(b->share, a->share))
        return share_goes_before(a->share, b->share);
    return sched_queued_before(a, b);
}

/* The waiting sequence to try next. NULL: each is paused or was turned down in this plan. */
static struct sched_seq *next_seq(struct sched *s)
{
    struct sched_seq *best = NULL;
    LIST_EACH(it, &s->queue) {
        struct sched_seq *seq = SEQ(it);
        if (seq->paused || seq->examined == s->plan_number || seq->share->examined == s->plan_number)
            continue;
        if (!best || is_before(seq, best))
            best = seq;
    }
    ASSERT(!best || best->phase != SCHED_FETCHING);
    return best;
}

/* ---- the place ---- */

/* The sequence that is parked to give its place to one of `tenant`. NULL: none has to. */
static struct sched_seq *find_place(struct sched *s, const struct share *tenant)
{
    struct sched_seq *best = places_newest_paused(s, NULL);
    if (best)
        return best;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        struct sched_seq *seq = share_yields(x, tenant) ? places_newest_of(s, x) : NULL;
        if (seq && (!best || share_goes_before(best->share, x)))
            best = seq;
    }
    return best;
}

/* ---- the pages ---- */

/* Pages of the group that the sequence still needs to read its prompt. */
static uint64_t promised_to(const struct sched *s, const struct sched_seq *seq, uint32_t group)
{
    uint32_t first = seq->first[group], has = seq->page_count - first;
    ASSERT(seq->page_count >= first);
    uint32_t wants = page_group_needs(&s->opts.groups[group], sched_pages(seq->tokens) - first);
    return wants > has ? wants - has : 0;
}

uint64_t admit_promised(const struct sched *s, uint32_t group)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->running)
        pages += promised_to(s, SEQ(it), group);
    return pages;
}

static uint64_t wants(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit,
                      uint32_t group)
{
    return seq->phase == SCHED_PARKED ? promised_to(s, seq, group)
                                      : seq_cache_wants(&s->opts, seq, hit, group);
}

static bool has_pages_for(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit)
{
    bool tight = s->refused && s->running_count > 0, fits = true;
    for (uint32_t g = 0; fits && g < s->opts.group_count; g++) {
        const struct page_pool *pages = s->opts.groups[g].pages;
        uint64_t has = tight ? page_pool_ready(pages) : page_pool_available(pages);
        fits = admit_promised(s, g) + s->running_count + wants(s, seq, hit, g) <= has;
    }
    return fits;
}

/* The sequence that is preempted so that `seq` can be admitted. NULL: none has to. */
static struct sched_seq *find_victim(struct sched *s, const struct sched_seq *seq)
{
    bool deserves = seq->share->running == 0;
    ASSERT(!sched_has_place(seq));
    struct sched_seq *victim = places_newest_parked(s, seq, true);
    if (!victim)
        victim = places_newest_paused(s, seq);
    if (!victim && deserves)
        victim = places_newest_parked(s, seq, false);
    if (victim && !victim->paused && victim->share == seq->share)
        victim = NULL;
    const struct share *most = seq->share;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        if (x->running >= 2 && share_goes_before(most, x))
            most = x;
    }
    return victim || !deserves || most == seq->share ? victim : places_newest_of(s, most);
}

static bool make_room(struct sched *s, struct sched_seq *seq)
{
    struct sched_seq *victim = find_victim(s, seq);
    if (!victim)
        return false;
    ASSERT(victim != seq);
    ASSERT(!sched_has_place(seq));
    seq->takes = true;
    places_preempt(s, victim);
    return true;
}

/* Preempts the sequence that was parked for this one: its place is of no value without its pages and
 * state. */
static bool take_all(struct sched *s, struct sched_seq *seq, struct sched_seq *gives)
{
    if (!gives || gives->phase != SCHED_PARKED)
        return false;
    ASSERT(gives != seq);
    seq->takes = true;
    places_preempt(s, gives);
    return true;
}

/* ---- the admission ---- */

/* A parked sequence continues with its pages and state; any other begins with the hit. */
static int begin(struct sched *s, struct sched_seq *seq, const struct prefix_hit *hit)
{
    ASSERT(seq->phase != SCHED_FETCHING && sched_waits(seq));
    return seq->phase == SCHED_PARKED ? 0 : seq_fetch_turn_into_place(&s->opts, seq, hit);
}

/* The tier keeps longer what is in use: of windows the pages that this hit needs. */
static void tell_tier(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit)
{
    uint32_t first[TIER_KINDS] = {0};
    ASSERT(hit->pages > 0 && hit->pages <= seq->key_count);
    for (uint32_t g = 1; g < PAGE_GROUPS_MAX; g++)
        first[tier_kind_of(g)] = g < s->opts.group_count
                                     ? page_group_first(&s->opts.groups[g], hit->pages * PAGE_TOKENS)
                                     : hit->pages;
    s->opts.tier->used(s->opts.tier->arg, share_list_of(seq->tenant_id), seq->keys, hit->pages, first);
}

/* The head of the prompt is another request's, too: entries up to its end are common. */
static void tell_common(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit)
{
    uint32_t first[TIER_KINDS] = {0}, end = seq->head_pages;
    const struct tier_io *tier = s->opts.tier;
    ASSERT(tier && end <= seq->key_count);
    if (!tier->common || end == 0 || end > hit->pages)
        return;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        first[kind] = end;
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        first[tier_kind_of(g)] = page_group_first(&s->opts.groups[g], end * PAGE_TOKENS);
    if (s->opts.states)
        first[TIER_SNAPSHOT] = end - 1;
    tier->common(tier->arg, seq->keys, end, first);
}

/* False: account or system have no memory for the sequence's first pages or its state. */
static bool admit(struct sched *s, struct sched_seq *seq, const struct prefix_hit *hit)
{
    ASSERT(!seq->paused);
    ASSERT(s->running_count < s->opts.seqs_max);
    bool parked = seq->phase == SCHED_PARKED;
    if (begin(s, seq, hit) < 0) {
        secure_note_refusal(s, false);
        return false;
    }
    while (!sched_has_page_for_next(seq) && secure_page(s, seq))
        ;
    if (!sched_has_page_for_next(seq)) {
        if (!parked)
            seq_cache_leave(&s->opts, seq);
        return false;
    }
    if (!parked)
        seq_cache_copy_last(&s->opts, seq);
    ASSERT(sched_has_page_for_next(seq));
    ASSERT(!s->opts.states || seq->state != NONE);
    bool first = seq->phase == SCHED_QUEUED;
    places_leave_queue(s, seq);
    if (first) {
        seq->cached = seq->done;
        uint32_t to = MIN_OF(seq->done, seq->fetch_to);
        seq->fetched = to > seq->fetch_from ? to - seq->fetch_from : 0;
        seq->fetched_pinned = MIN_OF(seq->fetch_pinned * PAGE_TOKENS, seq->fetched);
        if (s->opts.tier && hit->pages > 0) {
            tell_tier(s, seq, hit);
            tell_common(s, seq, hit);
        }
    }
    seq->served_ns = s->now_ns;
    seq->secured = s->plan_number;
    seq->blocked_ns = 0;
    seq->takes = false;
    places_enter(s, seq, parked ? seq->goes_on : SCHED_PREFILLING);
    return true;
}

/* The sequence lacks pages, and no other one makes room. True: other tenants' sequences may still be
 * admitted. Not when others have made room for this one already, for they would take it back. */
static bool is_passed(struct sched *s, struct sched_seq *seq)
{
    if (seq->blocked_ns == 0)
        seq->blocked_ns = s->now_ns;
    seq->share->examined = s->plan_number;
    ASSERT(seq->blocked_ns <= s->now_ns);
    return !seq->takes && s->now_ns - seq->blocked_ns < BLOCKED_NS;
}

/* Every sequence with a place is paused: this one takes from any other sequence that has pages. When no other
 * has any, it waits for memory that other programs have, or ends. */
static void insist(struct sched *s, struct sched_seq *seq)
{
    ASSERT(s->running_count == s->paused_count);
    struct sched_seq *victim = places_newest_parked(s, seq, false);
    if (!victim)
        victim = places_newest_paused(s, seq);
    if (victim)
        places_preempt(s, victim);
    else if (places_drop_fetched(s, seq))
        return;
    else if (sched_waits_for_memory(s))
        seq->share->examined = s->plan_number;
    else
        places_end(s, seq, SCHED_END_NO_MEMORY);
}

/* Looks up the sequence's prefix, and makes room until the sequence fits or nothing is left to take. *wait:
 * the sequence should not run yet. */
static bool admit_if_it_fits(struct sched *s, struct sched_seq *seq, struct sched_seq *gives, bool *wait)
{
    for (;;) {
        struct prefix_hit hit = {NONE, 0, NONE};
        if (seq->phase != SCHED_PARKED) {
            seq_cache_find(&s->opts, seq, &hit);
            *wait = admit_should_wait(s, seq, &hit);
        }
        if (*wait)
            return false;
        bool fits = has_pages_for(s, seq, &hit);
        if (fits && s->running_count == s->opts.seqs_max) {
            ASSERT(gives && gives != seq);
            places_park(s, gives);
        }
        if (fits && admit(s, seq, &hit))
            return true;
        if (secure_waits_for_help(s))
            return false;
        if (!(fits && take_all(s, seq, gives)) && !make_room(s, seq))
            return false;
    }
}

/* Tries to give the sequence a place and its pages. False: nothing more is admitted in this plan. */
static bool try_seq(struct sched *s, struct sched_seq *seq)
{
    ASSERT(!seq->paused && sched_waits(seq));
    struct sched_seq *gives = NULL;
    bool wait = false;
    if (s->running_count == s->opts.seqs_max && (gives = find_place(s, seq->share)) == NULL) {
        seq->share->examined = s->plan_number;
        return true;
    }
    if (admit_if_it_fits(s, seq, gives, &wait))
        return true;
    if (wait) {
        seq->examined = s->plan_number;
        return true;
    }
    if (secure_waits_for_help(s))
        return false;
    if (s->running_count > s->paused_count)
        return is_passed(s, seq);
    insist(s, seq);
    return true;
}

void admit_queue(struct sched *s)
{
    struct sched_seq *seq;
    while ((seq = next_seq(s)) != NULL && try_seq(s, seq))
        ;
}
