/* sched_check.c - what must hold between any two calls.
 *
 * Each reference to a page is a row's: the sum over a pool is the sum over the rows' tables. Where it is not,
 * which page is wrong is looked for in a second pass over all tables, which needs no memory and may take its
 * time. */
#include "sched/row_fetch.h"
#include "sched/sched_state.h"

#include "base/check.h"

#include <stdio.h>

#define ROW SCHED_ROW

static void name_row(const struct sched *s, const struct sched_row *row, char ret[SCHED_NAME_BYTES])
{
    if (s->opts.name)
        s->opts.name(row, ret);
    else
        snprintf(ret, SCHED_NAME_BYTES, "%llu", (unsigned long long)row->sequence);
}

#define ASSERT_ROW(s, row, c, format, ...)                                                                   \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0)) {                                                                     \
            char row_name[SCHED_NAME_BYTES];                                                                 \
            name_row(s, row, row_name);                                                                      \
            check_fail_of(__FILE__, __LINE__, #c, "sequence %s: " format, row_name, __VA_ARGS__);            \
        }                                                                                                    \
    } while (0)

/* ---- one row's pages ---- */

static uint32_t refs_in_table(const struct sched *s, const struct sched_row *row, uint32_t group, uint32_t i)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    uint32_t page = row->pages[group][i];
    ASSERT_ROW(s, row, page < page_pool_pages_max(pool), "entry %u of its table of group %u is page %u", i,
               group, page);
    return page_pool_refs(pool, page);
}

/* Returns how many pages the row references. */
static uint32_t check_table(const struct sched *s, const struct sched_row *row, uint32_t group)
{
    const uint32_t *table = row->pages[group];
    uint32_t first = row->first[group];
    ASSERT_ROW(s, row, first == page_group_first(&s->opts.groups[group], row->done),
               "its table of group %u begins at entry %u, with %u tokens done", group, first, row->done);
    for (uint32_t i = 0; i < first; i++)
        ASSERT_ROW(s, row, group == 0 || table[i] == NONE,
                   "entry %u of its table of group %u is page %u, behind the window", i, group, table[i]);
    for (uint32_t i = first; i < row->page_count; i++) {
        uint32_t refs = refs_in_table(s, row, group, i);
        ASSERT_ROW(s, row, i < row->node_pages ? refs >= 1 : refs == 1,
                   "entry %u of its table of group %u is page %u, which has %u references", i, group,
                   table[i], refs);
    }
    return row->page_count - first;
}

/* Its whole pages that the index knows are those that the index has under its keys. */
static void check_nodes(const struct sched *s, const struct sched_row *row)
{
    for (uint32_t i = 0; s->opts.prefix && i < row->node_pages; i++) {
        uint32_t node = prefix_index_node_of(s->opts.prefix, row->pages[0][i]);
        ASSERT_ROW(s, row, node != NONE && node == prefix_index_node(s->opts.prefix, &row->keys[i]),
                   "entry %u of its table is page %u, which is another prefix's", i, row->pages[0][i]);
    }
}

/* Returns how many states a row with pages of its own has. */
static uint32_t check_holder(const struct sched *s, const struct sched_row *row, uint64_t *pages)
{
    ASSERT_ROW(s, row, row->tokens <= row->tokens_limit && row->done < row->tokens,
               "%u tokens, %u done, limit %u", row->tokens, row->done, row->tokens_limit);
    ASSERT_ROW(s, row,
               row->page_count <= sched_pages(row->tokens) && row->page_count >= sched_pages(row->done),
               "%u pages for %u tokens, %u done", row->page_count, row->tokens, row->done);
    ASSERT_ROW(s, row, row->node_pages <= row->page_count && row->node_pages <= row->key_count,
               "%u pages, %u of them in the index", row->page_count, row->node_pages);
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        pages[g] += check_table(s, row, g);
    check_nodes(s, row);
    ASSERT_ROW(s, row, s->opts.states ? state_pool_is_taken(s->opts.states, row->state) : row->state == NONE,
               "its state %u is not taken", row->state);
    return (row->state != NONE) + (row->boundary != NONE);
}

static uint32_t check_parked(const struct sched *s, uint64_t *pages)
{
    uint32_t states = 0, count = 0;
    for (const struct list *it = s->queue.next; it != &s->queue; it = it->next) {
        if (ROW(it)->phase != SCHED_PARKED)
            continue;
        ASSERT_ROW(s, ROW(it), ROW(it)->goes_on == SCHED_PREFILLING || ROW(it)->goes_on == SCHED_DECODING,
                   "parked from phase %d", (int)ROW(it)->goes_on);
        states += check_holder(s, ROW(it), pages);
        count++;
    }
    ASSERT_OF(count == s->parked_count, "%u sequences are parked, %u counted", count, s->parked_count);
    return states;
}

/* What rows without a place have of the first group's pages, and of states. */
static void count_fetched(const struct sched *s, const struct list *list, uint64_t *pages, uint32_t *states)
{
    for (const struct list *it = list->next; it != list; it = it->next) {
        const struct sched_row *row = ROW(it);
        if (!row_fetch_holds(row))
            continue;
        for (uint32_t i = 0; i < MAX_OF(row->page_count, row->fetch_pages); i++) {
            if (i >= row->page_count && row->pages[0][i] == NONE)
                continue;
            uint32_t refs = refs_in_table(s, row, 0, i);
            ASSERT_ROW(s, row, i < row->page_count ? refs >= 1 : refs == 1,
                       "entry %u of its table is page %u, fetched, which has %u references", i,
                       row->pages[0][i], refs);
            (*pages)++;
        }
        *states += row->state != NONE;
    }
}

/* ---- all references ---- */

/* Entries of the row's table that reference the page. */
static uint32_t count_in_row(const struct sched_row *row, uint32_t group, uint32_t page)
{
    bool fetches = row_fetch_holds(row);
    uint32_t count = 0, end = fetches ? MAX_OF(row->page_count, row->fetch_pages) : row->page_count;
    for (uint32_t i = row->first[group]; i < end && (group == 0 || !fetches); i++)
        count += row->pages[group][i] == page;
    return count;
}

static uint32_t count_in_tables(const struct sched *s, uint32_t group, uint32_t page)
{
    const struct list *lists[] = {&s->running, &s->queue, &s->fetching};
    uint32_t count = 0;
    for (size_t l = 0; l < COUNT_OF(lists); l++)
        for (const struct list *it = lists[l]->next; it != lists[l]; it = it->next)
            count += count_in_row(ROW(it), group, page);
    return count;
}

static void name_wrong_page(const struct sched *s, uint32_t group)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    for (uint32_t page = 0; page < page_pool_pages_max(pool); page++) {
        uint32_t refs = page_pool_refs(pool, page), held = count_in_tables(s, group, page);
        ASSERT_OF(refs == held, "page %u of group %u: %u references, %u in the tables of sequences", page,
                  group, refs, held);
    }
}

/* `held`: entries of all rows' tables. */
static bool walk_references(const struct sched *s, uint32_t group, uint64_t held, struct walk *w)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    uint64_t refs = 0;
    for (uint32_t i = 0; i < page_pool_pages_max(pool) && walk_on(w); i++)
        refs += page_pool_refs(pool, i);
    if (w->called_off)
        return false;
    if (refs != held)
        name_wrong_page(s, group);
    ASSERT(refs == held);
    return true;
}

/* ---- lists and counts ---- */

static uint32_t check_running(const struct sched *s, uint64_t *pages)
{
    uint32_t count = 0, paused = 0, states = 0;
    for (const struct list *it = s->running.next; it != &s->running; it = it->next) {
        const struct sched_row *row = ROW(it);
        count++;
        paused += row->paused;
        ASSERT_ROW(s, row, sched_has_place(row), "has a place in phase %d", (int)row->phase);
        ASSERT_ROW(s, row, it->next == &s->running || sched_goes_before(row, ROW(it->next)),
                   "rank %lld is out of order", (long long)row->rank);
        ASSERT_ROW(s, row, row->phase == SCHED_PREFILLING || row->done == row->tokens - 1,
                   "decodes with %u of %u tokens done", row->done, row->tokens);
        states += check_holder(s, row, pages);
    }
    ASSERT_OF(count == s->running_count && count <= s->opts.rows_max, "%u sequences run, %u counted", count,
              s->running_count);
    ASSERT_OF(paused == s->paused_count, "%u sequences that run are paused, %u counted", paused,
              s->paused_count);
    return states;
}

static bool walk_held(const struct sched *s, struct walk *w)
{
    uint64_t pages[PAGE_GROUPS_MAX] = {0};
    struct prefix_numbers cached = {0};
    uint32_t states_held = check_running(s, pages);
    if (s->opts.prefix)
        prefix_index_numbers(s->opts.prefix, &cached);
    states_held += check_parked(s, pages);
    count_fetched(s, &s->queue, &pages[0], &states_held);
    count_fetched(s, &s->fetching, &pages[0], &states_held);
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        if (!walk_references(s, g, pages[g], w))
            return false;
    if (s->opts.states) {
        struct pool_numbers states;
        state_pool_numbers(s->opts.states, &states);
        ASSERT_OF(states.taken == states_held + cached.snapshots,
                  "%u recurrent states are taken; sequences have %u, snapshots %u", states.taken, states_held,
                  cached.snapshots);
    }
    return true;
}

static void check_holds_nothing(const struct sched *s, const struct sched_row *row)
{
    ASSERT_ROW(s, row, row->state == NONE && row->done == 0, "waits with %u tokens done, state %u", row->done,
               row->state);
    ASSERT_ROW(s, row, row->page_count == 0 || row->phase == SCHED_QUEUED, "waits with %u pages",
               row->page_count);
}

/* Rows and places of each tenant, and of all. */
static void check_shares(const struct sched *s)
{
    uint32_t running = 0, rows = 0;
    shares_check(&s->shares);
    for (const struct list *it = s->shares.present.next; it != &s->shares.present; it = it->next) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        running += x->running;
        rows += x->rows;
    }
    ASSERT_OF(running == s->running_count, "tenants have %u places, %u are taken", running, s->running_count);
    ASSERT_OF(rows == s->running_count + s->waiting_count, "tenants have %u rows, there are %u", rows,
              s->running_count + s->waiting_count);
}

static uint32_t rows_of(const struct list *list, const struct share *x)
{
    uint32_t count = 0;
    for (const struct list *it = list->next; it != list; it = it->next)
        count += ROW(it)->share == x;
    return count;
}

static void check_share_rows(const struct sched *s)
{
    for (const struct list *it = s->shares.present.next; it != &s->shares.present; it = it->next) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        uint32_t running = rows_of(&s->running, x);
        uint32_t rows = running + rows_of(&s->queue, x) + rows_of(&s->fetching, x);
        ASSERT_OF(running == x->running && rows == x->rows,
                  "tenant %llx: %u rows, %u with a place; counted are %u and %u", (unsigned long long)x->id,
                  rows, running, x->rows, x->running);
    }
}

static uint32_t check_fetching(const struct sched *s)
{
    uint32_t count = 0;
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next, count++) {
        const struct sched_row *row = ROW(it);
        ASSERT_ROW(s, row,
                   row->phase == SCHED_FETCHING && row->done == 0 && row->page_count <= row->fetch_pages,
                   "fetches %u pages in phase %d", row->fetch_pages, (int)row->phase);
        ASSERT_ROW(s, row, row->fetch_next <= row->fetch_pages + 1 && row->fetch_open <= row->fetch_next,
                   "%u reads are open, %u of %u pages asked for", row->fetch_open, row->fetch_next,
                   row->fetch_pages);
    }
    ASSERT(count == s->fetching_count && count <= SCHED_FETCHING_MAX);
    return count;
}

/* Returns how many of them are paused. */
static uint32_t check_queue(const struct sched *s, uint32_t *waiting)
{
    uint32_t paused = 0;
    for (const struct list *it = s->queue.next; it != &s->queue; it = it->next) {
        const struct sched_row *row = ROW(it);
        ASSERT_ROW(s, row, sched_waits(row) && row->phase != SCHED_FETCHING, "queued in phase %d",
                   (int)row->phase);
        ASSERT_ROW(s, row, it->next == &s->queue || sched_queued_before(row, ROW(it->next)),
                   "rank %lld is out of order in the queue", (long long)row->rank);
        if (row->phase != SCHED_PARKED)
            check_holds_nothing(s, row);
        paused += row->paused;
        (*waiting)++;
    }
    return paused;
}

static void check_waiting(const struct sched *s)
{
    uint32_t waiting = 0, paused = check_queue(s, &waiting);
    waiting += check_fetching(s);
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        paused += ROW(it)->paused;
    ASSERT_OF(paused == s->waiting_paused, "%u sequences that wait are paused, %u counted", paused,
              s->waiting_paused);
    ASSERT_OF(waiting == s->waiting_count, "%u sequences wait, %u counted", waiting, s->waiting_count);
    ASSERT(s->running_count + waiting <= s->opts.rows_max + s->opts.queue_max);
    for (const struct list *it = s->ended.next; it != &s->ended; it = it->next) {
        ASSERT_ROW(s, ROW(it), ROW(it)->phase == SCHED_ENDED, "ended in phase %d", (int)ROW(it)->phase);
        check_holds_nothing(s, ROW(it));
    }
}

static void check_plan(const struct sched *s)
{
    ASSERT(s->row_count <= s->opts.rows_max);
    for (uint32_t i = 0; s->planned && i < s->row_count; i++) {
        const struct sched_step_row *r = &s->rows[i];
        ASSERT_ROW(s, r->row, !r->row->paused && r->from == r->row->done && r->count > r->drafts,
                   "planned from %u, %u tokens, %u of them drafts", r->from, r->count, r->drafts);
        ASSERT_ROW(s, r->row, r->count - r->drafts <= r->row->tokens - r->row->done,
                   "planned %u tokens of %u", r->count - r->drafts, r->row->tokens - r->row->done);
        ASSERT_ROW(s, r->row, r->drafts == 0 || r->from + r->count < r->row->tokens_limit,
                   "planned up to %u, limit %u", r->from + r->count, r->row->tokens_limit);
        ASSERT_ROW(s, r->row, r->from + r->count <= r->row->page_count * PAGE_TOKENS,
                   "planned up to %u with %u pages", r->from + r->count, r->row->page_count);
    }
}

bool sched_walk(const struct sched *s, struct walk *w)
{
    if (!walk_held(s, w))
        return false;
    check_shares(s);
    check_share_rows(s);
    check_waiting(s);
    check_plan(s);
    return true;
}

void sched_check(const struct sched *s)
{
    sched_walk(s, &(struct walk){0});
}
