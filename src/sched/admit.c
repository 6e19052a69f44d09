/* admit.c - the choice, the place, the pages, in this order.
 *
 * A row whose tenant can get no place is not looked up in the prefix index, and neither are the rows behind
 * it: with a full batch and a long queue a plan costs a walk over the queue and one look-up for each tenant
 * that may have a place. `examined` marks what this plan has turned down: a row that waits for a prefix which
 * another is computing, or a tenant. A row that loses its place in a plan does not get one in the same plan,
 * so each plan ends. */
#include "sched/admit.h"

#include "sched/fetching.h"
#include "sched/places.h"
#include "sched/row_cache.h"
#include "sched/row_fetch.h"
#include "sched/secure.h"

#include "base/check.h"

#define BLOCKED_NS SCHED_AGE_NS

#define ROW SCHED_ROW

bool admit_should_wait(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    LIST_EACH(it, &s->running)
        if (row_cache_worth_waiting(&s->opts, row, hit, ROW(it)))
            return true;
    LIST_EACH(at, &s->fetching)
        if (row_fetch_worth_waiting(&s->opts, row, hit, ROW(at)))
            return true;
    return false;
}

/* ---- the row ---- */

/* Rows of one tenant keep the queue's order. */
static bool is_before(const struct sched_row *a, const struct sched_row *b)
{
    ASSERT(sched_waits(a) && sched_waits(b));
    if (a->share == b->share)
        return false;
    if (share_goes_before(a->share, b->share) || share_goes_before(b->share, a->share))
        return share_goes_before(a->share, b->share);
    return sched_queued_before(a, b);
}

/* NULL: no row that this plan has not turned down can run. */
static struct sched_row *next_row(struct sched *s)
{
    struct sched_row *best = NULL;
    LIST_EACH(it, &s->queue) {
        struct sched_row *row = ROW(it);
        if (row->paused || row->examined == s->plan_number || row->share->examined == s->plan_number)
            continue;
        if (!best || is_before(row, best))
            best = row;
    }
    ASSERT(!best || best->phase != SCHED_FETCHING);
    return best;
}

/* ---- the place ---- */

/* The row that is parked for one of `tenant`. NULL: none has to. */
static struct sched_row *find_place(struct sched *s, const struct share *tenant)
{
    struct sched_row *best = places_newest_paused(s, NULL);
    if (best)
        return best;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        struct sched_row *row = share_yields(x, tenant) ? places_newest_of(s, x) : NULL;
        if (row && (!best || share_goes_before(best->share, x)))
            best = row;
    }
    return best;
}

/* ---- the pages ---- */

uint64_t admit_promised_to(const struct sched *s, const struct sched_row *row, uint32_t group)
{
    uint32_t first = row->first[group], has = row->page_count - first;
    ASSERT(row->page_count >= first);
    uint32_t wants = page_group_needs(&s->opts.groups[group], sched_pages(row->tokens) - first);
    return wants > has ? wants - has : 0;
}

uint64_t admit_promised(const struct sched *s, uint32_t group)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->running)
        pages += admit_promised_to(s, ROW(it), group);
    return pages;
}

static uint64_t wants(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit,
                      uint32_t group)
{
    return row->phase == SCHED_PARKED ? admit_promised_to(s, row, group)
                                      : row_cache_wants(&s->opts, row, hit, group);
}

static bool has_pages_for(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    bool tight = s->refused && s->running_count > 0, fits = true;
    for (uint32_t g = 0; fits && g < s->opts.group_count; g++) {
        const struct page_pool *pages = s->opts.groups[g].pages;
        uint64_t has = tight ? page_pool_ready(pages) : page_pool_available(pages);
        fits = admit_promised(s, g) + s->running_count + wants(s, row, hit, g) <= has;
    }
    return fits;
}

/* The row that makes room for one that is to be admitted. NULL: none has to. */
static struct sched_row *find_victim(struct sched *s, const struct sched_row *row)
{
    bool deserves = row->share->running == 0;
    ASSERT(!sched_has_place(row));
    struct sched_row *victim = places_newest_parked(s, row, true);
    if (!victim)
        victim = places_newest_paused(s, row);
    if (!victim && deserves)
        victim = places_newest_parked(s, row, false);
    if (victim && !victim->paused && victim->share == row->share)
        victim = NULL;
    const struct share *most = row->share;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        if (x->running >= 2 && share_goes_before(most, x))
            most = x;
    }
    return victim || !deserves || most == row->share ? victim : places_newest_of(s, most);
}

static bool make_room(struct sched *s, struct sched_row *row)
{
    struct sched_row *victim = find_victim(s, row);
    if (!victim)
        return false;
    ASSERT(victim != row);
    ASSERT(!sched_has_place(row));
    row->takes = true;
    places_preempt(s, victim);
    return true;
}

/* The row that was parked for this one gives its pages and state too: without them there is no use for its
 * place. */
static bool take_all(struct sched *s, struct sched_row *row, struct sched_row *gives)
{
    if (!gives || gives->phase != SCHED_PARKED)
        return false;
    ASSERT(gives != row);
    row->takes = true;
    places_preempt(s, gives);
    return true;
}

/* ---- the admission ---- */

/* Goes on with what it kept, or begins with what the cache has. */
static int begin(struct sched *s, struct sched_row *row, const struct prefix_hit *hit)
{
    ASSERT(row->phase != SCHED_FETCHING && sched_waits(row));
    return row->phase == SCHED_PARKED ? 0 : row_fetch_turn_into_place(&s->opts, row, hit);
}

/* False: account or system have no memory for its first page or its state. */
static bool admit(struct sched *s, struct sched_row *row, const struct prefix_hit *hit)
{
    ASSERT(!row->paused);
    ASSERT(s->running_count < s->opts.rows_max);
    bool parked = row->phase == SCHED_PARKED;
    if (begin(s, row, hit) < 0) {
        (void)secure_ask_for_help(s);
        return false;
    }
    if (!sched_has_page_for_next(row) && !secure_page(s, row)) {
        if (!parked)
            row_cache_leave(&s->opts, row);
        return false;
    }
    ASSERT(sched_has_page_for_next(row));
    ASSERT(!s->opts.states || row->state != NONE);
    bool first = row->phase == SCHED_QUEUED;
    places_leave_queue(s, row);
    if (first) {
        row->cached = row->done;
        uint32_t to = MIN_OF(row->done, row->fetch_to);
        row->fetched = to > row->fetch_from ? to - row->fetch_from : 0;
        if (s->opts.tier && hit->pages > 0)
            s->opts.tier->used(s->opts.tier->arg, row->keys, hit->pages);
    }
    row->served_ns = s->now_ns;
    row->secured = s->plan_number;
    row->blocked_ns = 0;
    row->takes = false;
    places_enter(s, row, parked ? row->goes_on : SCHED_PREFILLING);
    return true;
}

/* It lacks pages, and no row makes room. True: other tenants' rows may still be admitted; but not when some
 * have made room already, for they would take it back. */
static bool is_passed(struct sched *s, struct sched_row *row)
{
    if (row->blocked_ns == 0)
        row->blocked_ns = s->now_ns;
    row->share->examined = s->plan_number;
    ASSERT(row->blocked_ns <= s->now_ns);
    return !row->takes && s->now_ns - row->blocked_ns < BLOCKED_NS;
}

/* No row that could run has a place: all that others hold is the row's, or it ends. */
static void insist(struct sched *s, struct sched_row *row)
{
    ASSERT(s->running_count == s->paused_count);
    struct sched_row *victim = places_newest_parked(s, row, false);
    if (!victim)
        victim = places_newest_paused(s, row);
    if (victim)
        places_preempt(s, victim);
    else if (!fetching_drop(s, row))
        places_end(s, row, SCHED_END_NO_MEMORY);
}

/* Looks the row up, and makes room until it fits or nothing is left to take. *wait: it should not run yet. */
static bool admit_if_it_fits(struct sched *s, struct sched_row *row, struct sched_row *gives, bool *wait)
{
    for (;;) {
        struct prefix_hit hit = {NONE, 0, NONE};
        if (row->phase != SCHED_PARKED) {
            row_cache_find(&s->opts, row, &hit);
            *wait = admit_should_wait(s, row, &hit);
        }
        if (*wait)
            return false;
        bool fits = has_pages_for(s, row, &hit);
        if (fits && s->running_count == s->opts.rows_max) {
            ASSERT(gives && gives != row);
            places_park(s, gives);
        }
        if (fits && admit(s, row, &hit))
            return true;
        if (secure_waits_for_help(s))
            return false;
        if (!(fits && take_all(s, row, gives)) && !make_room(s, row))
            return false;
    }
}

/* A place and its pages. False: nothing more is admitted in this plan. */
static bool try_row(struct sched *s, struct sched_row *row)
{
    ASSERT(!row->paused && sched_waits(row));
    struct sched_row *gives = NULL;
    bool wait = false;
    if (s->running_count == s->opts.rows_max && (gives = find_place(s, row->share)) == NULL) {
        row->share->examined = s->plan_number;
        return true;
    }
    if (admit_if_it_fits(s, row, gives, &wait))
        return true;
    if (wait) {
        row->examined = s->plan_number;
        return true;
    }
    if (secure_waits_for_help(s))
        return false;
    if (s->running_count > s->paused_count)
        return is_passed(s, row);
    insist(s, row);
    return true;
}

void admit_queue(struct sched *s)
{
    struct sched_row *row;
    while ((row = next_row(s)) != NULL && try_row(s, row))
        ;
}
