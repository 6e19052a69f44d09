/* fetching.c - the sequences that fetch, from the queue and back to it.
 *
 * A fetch begins only if the pools have pages for it beside everything that is promised to others. It
 * carries a tag, the number of the fetch: an arrival finds its sequence by the tag, and one whose fetch has
 * ended is given back to the tier unused. When a fetch is over, its sequence returns to the queue with the
 * pages that came. While sequences run, a plan stops copying at FETCH_BYTES_MAX, so that fetches do not
 * delay the step. */
#include "sched/fetching.h"

#include "sched/admit.h"
#include "sched/places.h"
#include "sched/sched.h"
#include "sched/sched_state.h"
#include "sched/seq_cache.h"
#include "sched/seq_fetch.h"
#include "sched/shares.h"

#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/tier_io.h"

#define FETCH_BYTES_MAX ((size_t)8 << 20) /* copied by one plan while sequences run: a millisecond */
#define PINNED_PART     8                 /* pinned memory is copied so many times as fast */

#define SEQ SCHED_SEQ

/* The sequence waits for a place again, with the pages that have come. */
static void end_fetch(struct sched *s, struct sched_seq *seq)
{
    ASSERT(seq->phase == SCHED_FETCHING && s->fetching_count > 0);
    s->fetches_failed += seq->fetch_left > 0;
    seq_fetch_end(&s->opts, seq);
    places_leave_queue(s, seq);
    places_enqueue(s, seq, SCHED_QUEUED);
    ASSERT(seq->fetch_pages == 0 && seq->fetch_open == 0);
}

static struct sched_seq *find_fetching(const struct sched *s, uint64_t tag)
{
    for (struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        if (SEQ(it)->fetch == tag)
            return SEQ(it);
    return NULL;
}

/* Arrivals are copied to their sequences. All buffers go back to the tier, also the arrivals of ended
 * fetches. */
static void take_arrivals(struct sched *s)
{
    const struct tier_io *tier = s->opts.tier;
    struct tier_arrival a;
    size_t bytes = 0;
    while ((s->running_count == 0 || bytes < FETCH_BYTES_MAX) && tier->take(tier->arg, &a)) {
        struct sched_seq *seq = find_fetching(s, a.tag);
        if (seq)
            bytes += seq_fetch_arrive(&s->opts, seq, &a) / (a.pinned ? PINNED_PART : 1);
        ASSERT(a.tag <= s->fetches);
        tier->give(tier->arg, &a);
    }
}

void fetching_go_on(struct sched *s)
{
    ASSERT(s->opts.tier);
    if (s->fetching_count == 0)
        return;
    take_arrivals(s);
    LIST_EACH(it, &s->fetching) {
        struct sched_seq *seq = SEQ(it);
        seq_fetch_ask(&s->opts, seq);
        if (seq_fetch_is_over(&s->opts, seq, s->now_ns))
            end_fetch(s, seq);
    }
}

/* Pages that fetching sequences will still take, at most: of a window they may have some already. */
static uint64_t promised_fetching(const struct sched *s, uint32_t group)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->fetching) {
        uint32_t wants = page_group_needs(&s->opts.groups[group], sched_pages(SEQ(it)->tokens));
        ASSERT(wants >= (group == 0 ? SEQ(it)->page_count : 0));
        pages += wants - (group == 0 ? SEQ(it)->page_count : 0);
    }
    return pages;
}

/* True: there is room for the sequence beside all that is being read, so a fetch takes no page that was
 * promised to another sequence. */
static bool may_fetch(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit)
{
    bool fits = true;
    for (uint32_t g = 0; fits && g < s->opts.group_count; g++)
        fits = admit_promised(s, g) + promised_fetching(s, g) + s->running_count +
                   seq_cache_wants(&s->opts, seq, hit, g) <=
               page_pool_available(s->opts.groups[g].pages);
    return fits;
}

/* The sequence leaves the queue for a query or a fetch. */
static void enter(struct sched *s, struct sched_seq *seq)
{
    ASSERT(seq->phase == SCHED_QUEUED && s->fetching_count < SCHED_FETCHING_MAX);
    places_leave_queue(s, seq);
    seq->phase = SCHED_FETCHING;
    s->waiting_count++;
    s->waiting_paused += seq->paused;
    s->fetching_count++;
    s->fetches++;
    list_push_back(&s->fetching, &seq->link);
}

/* A query first, where the tier needs one. */
static void begin_fetch(struct sched *s, struct sched_seq *seq)
{
    ASSERT(s->fetching_count < SCHED_FETCHING_MAX);
    struct prefix_hit hit;
    struct seq_fetch_wish wish;
    struct sched_events ev = {.now_ns = s->now_ns, .prompt_token_ns = s->prompt_token_ns};
    if (!seq_fetch_may_search(seq))
        return;
    seq_cache_find(&s->opts, seq, &hit);
    if (admit_should_wait(s, seq, &hit) || !may_fetch(s, seq, &hit))
        return;
    if (seq_fetch_query(&s->opts, seq, &hit, &ev, s->fetches + 1)) {
        enter(s, seq);
        return;
    }
    if (!seq_fetch_find(&s->opts, seq, &hit, &ev, &wish)) {
        seq_fetch_end_search(seq);
        return;
    }
    ASSERT(wish.pages > hit.pages);
    enter(s, seq);
    if (seq->fetch_tries == 0)
        seq->fetch_from = hit.pages * PAGE_TOKENS;
    seq_fetch_begin(&s->opts, seq, &wish, s->fetches);
}

/* Sequences of a tenant that may fetch at once: an even share. */
static uint32_t share(const struct sched *s)
{
    uint32_t tenants = 0;
    for (const struct list *it = s->shares.present.next; it != &s->shares.present; it = it->next)
        tenants++;
    ASSERT(tenants <= SHARES_MAX);
    return MAX_OF(SCHED_FETCHING_MAX / MAX_OF(tenants, 1u), 1u);
}

static uint32_t count_fetching(const struct sched *s, const struct share *tenant)
{
    uint32_t count = 0;
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        count += SEQ(it)->share == tenant;
    ASSERT(count <= s->fetching_count);
    return count;
}

/* Bounds the look-ups of a tenant's sequences in one plan. */
static bool may_look(struct sched *s, struct share *x)
{
    if (x->looked_at != s->plan_number)
        x->looks = 0;
    x->looked_at = s->plan_number;
    ASSERT(x->seqs > 0);
    return x->looks++ < 2 * SCHED_FETCHING_MAX;
}

void fetching_begin(struct sched *s)
{
    uint32_t most = share(s);
    LIST_EACH(it, &s->queue) {
        struct sched_seq *seq = SEQ(it);
        if (s->fetching_count == SCHED_FETCHING_MAX)
            return;
        if (seq->phase == SCHED_QUEUED && may_look(s, seq->share) && count_fetching(s, seq->share) < most)
            begin_fetch(s, seq);
    }
}
