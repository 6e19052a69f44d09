#include "sched/secure.h"

#include "sched/fetching.h"
#include "sched/places.h"
#include "sched/row_cache.h"

#include "base/check.h"

#include <errno.h>

#define ROW SCHED_ROW

bool secure_ask_for_help(struct sched *s)
{
    if (s->opts.help && s->opts.help(s->opts.help_arg))
        s->helped = s->plan_number;
    return s->helped == s->plan_number;
}

bool secure_waits_for_help(const struct sched *s)
{
    return s->helped == s->plan_number;
}

bool secure_page(struct sched *s, struct sched_row *row)
{
    int r = row_cache_extend(&s->opts, row);
    if (r == -ENOMEM && !secure_ask_for_help(s)) {
        s->refused = true;
        s->refused_ns = s->now_ns;
    }
    ASSERT(r == 0 || r == -ENOMEM || r == -ENOSPC);
    return r == 0;
}

/* The newest row of the tenant that has most places for its weight, if those are more than the asking row's
 * tenant has. Equal places are no reason here, however much each tenant was served: both rows run, and two
 * tenants would preempt each other in turn. In admit.c, where the asking tenant has no place at all, tokens
 * served decide among equals. */
static struct sched_row *newest_of_the_crowded(struct sched *s, const struct sched_row *row)
{
    const struct share *most = row->share;
    for (struct list *it = s->running.next; it != &s->running; it = it->next) {
        const struct share *x = ROW(it)->share;
        if ((uint64_t)x->running * most->weight > (uint64_t)most->running * x->weight)
            most = x;
    }
    return most != row->share && most->running >= 2 ? places_newest_of(s, most) : NULL;
}

/* The row that makes room for `row`. NULL: none. */
static struct sched_row *find_victim(struct sched *s, const struct sched_row *row)
{
    struct sched_row *victim = places_newest_parked(s, row, false);
    if (!victim)
        victim = places_newest_paused(s, row);
    if (!victim)
        victim = newest_of_the_crowded(s, row);
    if (!victim && ROW(s->running.prev) != row)
        victim = ROW(s->running.prev);
    ASSERT(victim != row);
    return victim;
}

/* Gets a page for the row's next token. False: not in this step. */
static bool secure(struct sched *s, struct sched_row *row)
{
    ASSERT(sched_has_place(row) && !row->paused);
    while (!sched_has_page_for_next(row) && !secure_page(s, row)) {
        if (fetching_drop(s, NULL))
            continue;
        struct sched_row *victim = secure_waits_for_help(s) ? NULL : find_victim(s, row);
        if (!victim)
            return false;
        places_preempt(s, victim);
    }
    ASSERT(sched_has_page_for_next(row));
    row->secured = s->plan_number;
    return true;
}

/* The first row from the oldest on that this plan has not looked at. */
static struct sched_row *next_row(struct sched *s)
{
    for (struct list *it = s->running.next; it != &s->running; it = it->next)
        if (!ROW(it)->paused && ROW(it)->examined != s->plan_number)
            return ROW(it);
    return NULL;
}

void secure_running(struct sched *s)
{
    struct sched_row *row;
    /* A row that makes room may stand anywhere in the list, so each search begins at its head. */
    while ((row = next_row(s)) != NULL) {
        row->examined = s->plan_number;
        if (secure(s, row) || s->running_count > 1 || secure_waits_for_help(s))
            continue;
        ASSERT(s->running_count == 1);
        places_end(s, row, SCHED_END_NO_MEMORY);
        return;
    }
}
