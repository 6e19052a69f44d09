/* row_fetch.c - asking in order, taking in any order.
 *
 * Pages come as the disk gives them. One that comes before those ahead of it waits in the row's table,
 * referenced by the row alone; the index gets them from the front. Ending a fetch frees the ones that
 * wait. */
#include "sched/row_fetch.h"

#include "sched/row_cache.h"

#include "base/check.h"

#include <errno.h>

#define TRIES_MAX      3 /* looks for a prefix: the second one finds less, for what failed is not there any more */
#define UNTIL_LEAST_NS 200000000ull
#define UNTIL_MOST_NS  10000000000ull

/* ---- worth it? ---- */

static bool tier_has(const struct sched_opts *o, const struct prefix_key *key, enum tier_kind kind)
{
    return o->tier->has(o->tier->arg, key, kind);
}

/* Pages up to and with the last one at which the prefix may end. */
static uint32_t find_end(const struct sched_opts *o, const struct sched_row *row, uint32_t in_index,
                         uint32_t most)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < most; i++) {
        if (i >= in_index && !tier_has(o, &row->keys[i], TIER_PAGE))
            break;
        if (!o->states || tier_has(o, &row->keys[i], TIER_SNAPSHOT))
            end = i + 1;
    }
    ASSERT(end <= most && most <= row->key_count);
    return end;
}

static uint32_t count_in_index(const struct sched_opts *o, const struct sched_row *row, uint32_t most)
{
    uint32_t count = 0;
    while (count < most && prefix_index_node(o->prefix, &row->keys[count]) != NONE)
        count++;
    ASSERT(count <= row->key_count);
    return count;
}

bool row_fetch_may_look(const struct sched_row *row)
{
    return row->phase == SCHED_QUEUED && row->keys && !row->paused && !row->logits_all &&
           row->page_count == 0 && row->fetch_tries < TRIES_MAX;
}

void row_fetch_look_no_more(struct sched_row *row)
{
    row->fetch_tries = TRIES_MAX;
}

bool row_fetch_find(const struct sched_opts *o, const struct sched_row *row, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct row_fetch_wish *ret)
{
    uint32_t most = MIN_OF(row->key_count, (row->tokens - 1) / PAGE_TOKENS);
    uint32_t in_index = count_in_index(o, row, most);
    uint32_t end = find_end(o, row, in_index, most);
    if (end <= hit->pages)
        return false;
    ASSERT(end <= most && in_index <= most);
    in_index = MIN_OF(in_index, end);
    uint64_t read_ns = o->tier->read_ns(o->tier->arg, end - in_index, o->states ? 1 : 0);
    double compute_ns = (double)(end - hit->pages) * PAGE_TOKENS * ev->prompt_token_ns;
    /* While nothing has been computed yet nobody knows: after a restart the first one reads. */
    if (read_ns == UINT64_MAX || (ev->prompt_token_ns > 0 && 2 * (double)read_ns >= compute_ns))
        return false;
    uint64_t patience_ns = UNTIL_MOST_NS;
    if (ev->prompt_token_ns > 0 && compute_ns < (double)UNTIL_MOST_NS)
        patience_ns = MAX_OF((uint64_t)compute_ns, UNTIL_LEAST_NS);
    *ret = (struct row_fetch_wish){end, in_index, ev->now_ns + patience_ns};
    return true;
}

/* ---- from beginning to end ---- */

static void hold_index(const struct sched_opts *o, struct sched_row *row, uint32_t in_index)
{
    for (uint32_t i = 0; i < in_index; i++) {
        row->node = prefix_index_node(o->prefix, &row->keys[i]);
        ASSERT(row->node != NONE);
        row->pages[0][i] = prefix_index_page(o->prefix, row->node);
        page_pool_ref(o->groups[0].pages, row->pages[0][i]);
    }
    row->page_count = in_index;
}

void row_fetch_begin(const struct sched_opts *o, struct sched_row *row, const struct row_fetch_wish *wish,
                     uint64_t tag)
{
    ASSERT(row->page_count == 0 && row->pinned == NONE);
    ASSERT(row->fetch_tries < TRIES_MAX);
    ASSERT(wish->in_index <= wish->pages && wish->pages <= row->key_count);
    row->state = NONE;
    row->node = row->pinned = NONE;
    row->fetch = tag;
    row->fetch_pages = wish->pages;
    row->fetch_next = wish->in_index;
    row->fetch_open = 0;
    row->fetch_until_ns = wish->until_ns;
    row->fetch_failed = false;
    row->fetch_tries++;
    hold_index(o, row, wish->in_index);
    for (uint32_t i = wish->in_index; i < wish->pages; i++)
        row->pages[0][i] = NONE;
    row_fetch_ask(o, row);
}

/* After the last page comes the snapshot at its end. */
void row_fetch_ask(const struct sched_opts *o, struct sched_row *row)
{
    uint32_t asks = row->fetch_pages + (o->states ? 1 : 0);
    while (!row->fetch_failed && row->fetch_next < asks) {
        bool page = row->fetch_next < row->fetch_pages;
        const struct prefix_key *key = &row->keys[page ? row->fetch_next : row->fetch_pages - 1];
        int r =
            o->tier->read(o->tier->arg, key, page ? TIER_PAGE : TIER_SNAPSHOT, row->fetch, row->fetch_next);
        if (r == -EAGAIN)
            return;
        row->fetch_failed = r < 0;
        row->fetch_next += r == 0;
        row->fetch_open += r == 0;
    }
    ASSERT(row->fetch_next <= asks && row->fetch_open <= row->fetch_next);
}

/* Pages that are next join the index. */
static void join_index(const struct sched_opts *o, struct sched_row *row)
{
    while (row->page_count < row->fetch_pages && row->pages[0][row->page_count] != NONE) {
        uint32_t at = row->page_count, page[PAGE_GROUPS_MAX] = {row->pages[0][at]};
        row->node = prefix_index_add(o->prefix, row->node, &row->keys[at], page);
        row->pages[0][at] = page[0];
        prefix_index_page_stored(o->prefix, row->node);
        row->page_count++;
    }
    if (row->page_count < row->fetch_pages || row->state == NONE)
        return;
    if (prefix_index_snapshot(o->prefix, row->node, row->state))
        prefix_index_snapshot_stored(o->prefix, row->node);
    else
        state_pool_give(o->states, row->state);
    row->state = NONE;
    row->pinned = row->node;
    prefix_index_pin(o->prefix, row->node);
    ASSERT(row->page_count == row->fetch_pages);
    ASSERT(row->pinned != NONE);
}

static bool take_page(const struct sched_opts *o, struct sched_row *row, const struct tier_arrival *a)
{
    const struct page_group *g = &o->groups[0];
    uint32_t *page = &row->pages[0][a->index];
    ASSERT(a->index < row->fetch_pages && *page == NONE);
    if (page_pool_take(g->pages, page) < 0) {
        *page = NONE;
        return false;
    }
    memcpy(page_pool_base(g->pages) + *page * g->page_bytes, a->bytes, g->page_bytes);
    return true;
}

static bool take_snapshot(const struct sched_opts *o, struct sched_row *row, const struct tier_arrival *a)
{
    ASSERT(o->states && row->state == NONE);
    row->state = row_cache_take_state(o);
    if (row->state == NONE)
        return false;
    memcpy(state_pool_base(o->states) + row->state * o->state_bytes, a->bytes, o->state_bytes);
    return true;
}

size_t row_fetch_arrive(const struct sched_opts *o, struct sched_row *row, const struct tier_arrival *a)
{
    ASSERT(row->phase == SCHED_FETCHING && row->fetch == a->tag);
    bool page = a->kind == TIER_PAGE;
    ASSERT(row->fetch_open > 0);
    row->fetch_open--;
    if (a->status < 0 || row->fetch_failed || !(page ? take_page(o, row, a) : take_snapshot(o, row, a))) {
        row->fetch_failed = true;
        return 0;
    }
    join_index(o, row);
    return page ? o->groups[0].page_bytes : o->state_bytes;
}

static bool is_whole(const struct sched_opts *o, const struct sched_row *row)
{
    return row->page_count == row->fetch_pages && (!o->states || row->pinned != NONE);
}

bool row_fetch_is_over(const struct sched_opts *o, const struct sched_row *row, uint64_t now_ns)
{
    ASSERT(row->page_count <= row->fetch_pages);
    return row->fetch_failed || is_whole(o, row) || now_ns >= row->fetch_until_ns;
}

void row_fetch_end(const struct sched_opts *o, struct sched_row *row)
{
    ASSERT(row->page_count <= row->fetch_pages);
    if (row->fetch_open > 0)
        o->tier->cancel(o->tier->arg, row->fetch);
    /* Another look is worth it only after something was found missing, not after waiting in vain. */
    if (!row->fetch_failed)
        row->fetch_tries = TRIES_MAX;
    if (is_whole(o, row) || !o->states)
        row->fetch_to = row->page_count * PAGE_TOKENS;
    for (uint32_t i = row->fetch_pages; i > row->page_count; i--)
        if (row->pages[0][i - 1] != NONE)
            page_pool_unref(o->groups[0].pages, row->pages[0][i - 1]);
    if (row->state != NONE)
        state_pool_give(o->states, row->state);
    row->state = NONE;
    row->fetch = row->fetch_open = row->fetch_pages = row->fetch_next = 0;
}

/* What was held of the index: `count` pages up to `node`, and its snapshot. */
static void let_go(const struct sched_opts *o, const struct sched_row *row, uint32_t count, uint32_t node,
                   uint32_t pinned)
{
    ASSERT(count == 0 || node != NONE);
    if (pinned != NONE)
        prefix_index_unpin(o->prefix, pinned);
    for (uint32_t i = count; i > 0; i--)
        page_pool_unref(o->groups[0].pages, row->pages[0][i - 1]);
    if (count > 0)
        prefix_index_released(o->prefix, node);
}

void row_fetch_drop(const struct sched_opts *o, struct sched_row *row)
{
    ASSERT(row_fetch_holds(row));
    uint32_t count = row->page_count, node = row->node, pinned = row->pinned;
    if (row->phase == SCHED_FETCHING)
        row_fetch_end(o, row);
    row->page_count = 0;
    row->node = row->pinned = NONE;
    row->fetch_tries = TRIES_MAX;
    row->fetch_to = 0;
    let_go(o, row, count, node, pinned);
}

int row_fetch_turn_into_place(const struct sched_opts *o, struct sched_row *row, const struct prefix_hit *hit)
{
    /* The row's table names the same pages before and after, as far as both reach: a page that is referenced
     * stays its node's. */
    uint32_t count = row->page_count, node = row->node, pinned = row->pinned;
    row->page_count = 0;
    int r = row_cache_begin(o, row, hit);
    if (count > 0)
        let_go(o, row, count, node, pinned);
    ASSERT(r < 0 || row->page_count == hit->pages);
    return r;
}

/* ---- others ---- */

bool row_fetch_worth_waiting(const struct sched_opts *o, const struct sched_row *row,
                             const struct prefix_hit *hit, const struct sched_row *other)
{
    ASSERT(other->phase == SCHED_FETCHING);
    if (!row->keys || row->logits_all)
        return false;
    uint32_t pages = MIN_OF(row_cache_common_pages(row, other), (row->tokens - 1) / PAGE_TOKENS);
    pages = MIN_OF(pages, other->fetch_pages);
    if (o->states && pages < other->fetch_pages)
        return false;
    return pages > hit->pages;
}
