/* sched_check.c - what must hold between any two calls; tests ask after every step. */
#include "sched/row_fetch.h"
#include "sched/sched_state.h"

#include "base/check.h"

#define ROW SCHED_ROW

/* Returns how many pages the row references. */
static uint32_t check_table(const struct sched *s, const struct sched_row *row, uint32_t group)
{
    const struct page_group *g = &s->opts.groups[group];
    const uint32_t *table = row->pages[group];
    ASSERT(row->first[group] == page_group_first(g, row->done));
    for (uint32_t i = 0; i < row->first[group]; i++)
        ASSERT(group == 0 || table[i] == NONE);
    for (uint32_t i = row->first[group]; i < row->page_count; i++)
        ASSERT(i < row->node_pages ? page_pool_refs(g->pages, table[i]) >= 1
                                   : page_pool_refs(g->pages, table[i]) == 1);
    return row->page_count - row->first[group];
}

/* Returns how many slots a row with pages of its own has. */
static uint32_t check_holder(const struct sched *s, const struct sched_row *row, uint64_t *pages)
{
    ASSERT(row->tokens <= row->tokens_limit && row->done < row->tokens);
    ASSERT(row->page_count <= sched_pages(row->tokens) && row->page_count >= sched_pages(row->done));
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        pages[g] += check_table(s, row, g);
    ASSERT(s->opts.slots ? slot_pool_is_taken(s->opts.slots, row->slot) : row->slot == NONE);
    return (row->slot != NONE) + (row->boundary != NONE);
}

static uint32_t check_parked(const struct sched *s, uint64_t *pages)
{
    uint32_t slots = 0, count = 0;
    LIST_EACH(it, &s->queue) {
        if (ROW(it)->phase != SCHED_PARKED)
            continue;
        ASSERT(ROW(it)->goes_on == SCHED_PREFILLING || ROW(it)->goes_on == SCHED_DECODING);
        slots += check_holder(s, ROW(it), pages);
        count++;
    }
    ASSERT(count == s->parked_count);
    return slots;
}

/* What rows without a place have of the first group's pages, and of slots. */
static void count_fetched(const struct sched *s, const struct list *list, uint64_t *pages, uint32_t *slots)
{
    for (const struct list *it = list->next; it != list; it = it->next) {
        const struct sched_row *row = ROW(it);
        if (!row_fetch_holds(row))
            continue;
        for (uint32_t i = 0; i < MAX_OF(row->page_count, row->fetch_pages); i++) {
            uint32_t page = row->pages[0][i];
            ASSERT(i >= row->page_count || page != NONE);
            if (page == NONE)
                continue;
            ASSERT(i < row->page_count ? page_pool_refs(s->opts.groups[0].pages, page) >= 1
                                       : page_pool_refs(s->opts.groups[0].pages, page) == 1);
            (*pages)++;
        }
        *slots += row->slot != NONE;
    }
}

static void check_running(const struct sched *s)
{
    uint32_t count = 0, paused = 0, slots_held = 0;
    uint64_t pages[PAGE_GROUPS_MAX] = {0};
    struct prefix_numbers cached = {0};
    if (s->opts.prefix)
        prefix_index_numbers(s->opts.prefix, &cached);
    LIST_EACH(it, &s->running) {
        const struct sched_row *row = ROW(it);
        count++;
        paused += row->paused;
        ASSERT(sched_has_place(row));
        ASSERT(it->next == &s->running || sched_goes_before(row, ROW(it->next)));
        ASSERT(row->phase == SCHED_PREFILLING || row->done == row->tokens - 1);
        slots_held += check_holder(s, row, pages);
    }
    slots_held += check_parked(s, pages);
    count_fetched(s, &s->queue, &pages[0], &slots_held);
    count_fetched(s, &s->fetching, &pages[0], &slots_held);
    ASSERT(count == s->running_count && count <= s->opts.rows_max && paused == s->paused_count);
    for (uint32_t g = 0; g < s->opts.group_count; g++) {
        struct page_pool_numbers n;
        page_pool_numbers(s->opts.groups[g].pages, &n);
        ASSERT(s->opts.prefix ? n.referenced <= pages[g] : n.referenced == pages[g]);
    }
    if (s->opts.slots) {
        struct pool_numbers slots;
        slot_pool_numbers(s->opts.slots, &slots);
        ASSERT(slots.taken == slots_held + cached.snapshots);
    }
}

static void check_holds_nothing(const struct sched_row *row)
{
    ASSERT(row->slot == NONE && row->done == 0);
    ASSERT(row->page_count == 0 || row->phase == SCHED_QUEUED);
}

static void check_tenants(const struct sched *s)
{
    uint32_t running = 0, rows = 0;
    LIST_EACH(it, &s->shares.present) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        ASSERT(x->rows > 0 && x->running <= x->rows && x->weight > 0);
        running += x->running;
        rows += x->rows;
    }
    ASSERT(running == s->running_count && rows == s->running_count + s->waiting_count);
}

static uint32_t check_fetching(const struct sched *s)
{
    uint32_t count = 0;
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next, count++) {
        const struct sched_row *row = ROW(it);
        ASSERT(row->phase == SCHED_FETCHING && row->done == 0 && row->page_count <= row->fetch_pages);
        ASSERT(row->fetch_next <= row->fetch_pages + 1 && row->fetch_open <= row->fetch_next);
    }
    ASSERT(count == s->fetching_count && count <= SCHED_FETCHING_MAX);
    return count;
}

void sched_check(const struct sched *s)
{
    uint32_t waiting = 0, paused = 0;
    check_running(s);
    check_tenants(s);
    LIST_EACH(it, &s->queue) {
        ASSERT(sched_waits(ROW(it)) && ROW(it)->phase != SCHED_FETCHING);
        ASSERT(it->next == &s->queue || sched_queued_before(ROW(it), ROW(it->next)));
        if (ROW(it)->phase != SCHED_PARKED)
            check_holds_nothing(ROW(it));
        paused += ROW(it)->paused;
        waiting++;
    }
    waiting += check_fetching(s);
    LIST_EACH(it, &s->fetching)
        paused += ROW(it)->paused;
    ASSERT(paused == s->waiting_paused);
    ASSERT(waiting == s->waiting_count);
    ASSERT(s->running_count + waiting <= s->opts.rows_max + s->opts.queue_max);
    LIST_EACH(it, &s->ended) {
        ASSERT(ROW(it)->phase == SCHED_ENDED);
        check_holds_nothing(ROW(it));
    }
    for (uint32_t i = 0; s->planned && i < s->row_count; i++) {
        const struct sched_step_row *r = &s->rows[i];
        ASSERT(!r->row->paused && r->from == r->row->done && r->count > r->drafts);
        ASSERT(r->count - r->drafts <= r->row->tokens - r->row->done);
        ASSERT(r->drafts == 0 || r->from + r->count < r->row->tokens_limit);
        ASSERT(r->from + r->count <= r->row->page_count * PAGE_TOKENS);
    }
}
