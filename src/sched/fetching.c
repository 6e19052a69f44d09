#include "sched/fetching.h"

#include "sched/admit.h"
#include "sched/places.h"
#include "sched/row_cache.h"
#include "sched/row_fetch.h"

#include "base/check.h"

#define FETCH_BYTES_MAX ((size_t)8 << 20) /* that one plan copies while rows run: a millisecond */

#define ROW SCHED_ROW

/* It waits for a place, with what has come. */
static void end_fetch(struct sched *s, struct sched_row *row)
{
    ASSERT(row->phase == SCHED_FETCHING && s->fetching_count > 0);
    s->fetches_failed += row->fetch_failed || row->page_count < row->fetch_pages;
    row_fetch_end(&s->opts, row);
    places_leave_queue(s, row);
    places_enqueue(s, row, SCHED_QUEUED);
    ASSERT(row->fetch_pages == 0 && row->fetch_open == 0);
}

static struct sched_row *newest_holder(const struct list *list, const struct sched_row *but)
{
    for (struct list *it = list->prev; it != list; it = it->prev)
        if (ROW(it) != but && row_fetch_holds(ROW(it)))
            return ROW(it);
    return NULL;
}

bool fetching_drop(struct sched *s, struct sched_row *but)
{
    struct sched_row *row = newest_holder(&s->fetching, but);
    if (!row)
        row = newest_holder(&s->queue, but);
    if (!row && but && row_fetch_holds(but))
        row = but;
    if (!row)
        return false;
    ASSERT(row_fetch_holds(row));
    bool fetches = row->phase == SCHED_FETCHING;
    s->fetches_failed += fetches;
    row_fetch_drop(&s->opts, row);
    if (fetches) {
        places_leave_queue(s, row);
        places_enqueue(s, row, SCHED_QUEUED);
    }
    return true;
}

static struct sched_row *find_fetching(const struct sched *s, uint64_t tag)
{
    for (struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        if (ROW(it)->fetch == tag)
            return ROW(it);
    return NULL;
}

/* What has come goes to its row; what nobody wants any more goes back. */
static void take_arrivals(struct sched *s)
{
    const struct tier_io *tier = s->opts.tier;
    struct tier_arrival a;
    size_t bytes = 0;
    while ((s->running_count == 0 || bytes < FETCH_BYTES_MAX) && tier->take(tier->arg, &a)) {
        struct sched_row *row = find_fetching(s, a.tag);
        if (row)
            bytes += row_fetch_arrive(&s->opts, row, &a);
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
        struct sched_row *row = ROW(it);
        row_fetch_ask(&s->opts, row);
        if (row_fetch_is_over(&s->opts, row, s->now_ns))
            end_fetch(s, row);
    }
}

/* Pages that those who fetch will take. */
static uint64_t promised_fetching(const struct sched *s)
{
    uint64_t pages = 0;
    LIST_EACH(it, &s->fetching)
        pages += admit_promised_to(s, ROW(it), 0);
    return pages;
}

/* With room for all that is being read besides: who fetches takes nothing that others were promised. */
static bool may_fetch(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit)
{
    uint64_t has = page_pool_available(s->opts.groups[0].pages);
    return admit_promised(s, 0) + promised_fetching(s) + s->running_count +
               row_cache_wants(&s->opts, row, hit, 0) <=
           has;
}

static void begin_fetch(struct sched *s, struct sched_row *row)
{
    ASSERT(s->fetching_count < SCHED_FETCHING_MAX);
    struct prefix_hit hit;
    struct row_fetch_wish wish;
    struct sched_events ev = {.now_ns = s->now_ns, .prompt_token_ns = s->prompt_token_ns};
    if (!row_fetch_may_look(row))
        return;
    row_cache_find(&s->opts, row, &hit);
    if (admit_should_wait(s, row, &hit) || !may_fetch(s, row, &hit))
        return;
    if (!row_fetch_find(&s->opts, row, &hit, &ev, &wish)) {
        row_fetch_look_no_more(row);
        return;
    }
    ASSERT(wish.pages > hit.pages);
    places_leave_queue(s, row);
    if (row->fetch_tries == 0)
        row->fetch_from = hit.pages * PAGE_TOKENS;
    row->phase = SCHED_FETCHING;
    s->waiting_count++;
    s->waiting_paused += row->paused;
    s->fetching_count++;
    s->fetches++;
    list_push_back(&s->fetching, &row->link);
    row_fetch_begin(&s->opts, row, &wish, s->fetches);
}

/* Rows of a tenant that may fetch at once: an even share. */
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
        count += ROW(it)->share == tenant;
    ASSERT(count <= s->fetching_count);
    return count;
}

/* So many rows of a tenant are looked up in a plan. */
static bool may_look(struct sched *s, struct share *x)
{
    if (x->looked_at != s->plan_number)
        x->looks = 0;
    x->looked_at = s->plan_number;
    ASSERT(x->rows > 0);
    return x->looks++ < 2 * SCHED_FETCHING_MAX;
}

void fetching_begin(struct sched *s)
{
    uint32_t most = share(s);
    LIST_EACH(it, &s->queue) {
        struct sched_row *row = ROW(it);
        if (s->fetching_count == SCHED_FETCHING_MAX)
            return;
        if (row->phase == SCHED_QUEUED && may_look(s, row->share) && count_fetching(s, row->share) < most)
            begin_fetch(s, row);
    }
}
