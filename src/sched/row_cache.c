/* row_cache.c - a row's pages and states, from its admission to its leaving.
 *
 *     state_in  what the next step reads: NONE at position 0, a pinned snapshot, `boundary` or `state`
 *     state     what it writes
 *     boundary the state at boundary_at, the last page boundary; NONE: a snapshot has it, or there was no state
 *
 * A state is in one of these, or a snapshot of the index. So a row holds at most two of its own, or one and a
 * pin. */
#include "sched/row_cache.h"

#include "base/check.h"

#include <errno.h>

static bool is_cached(const struct sched_opts *o, const struct sched_row *row)
{
    return o->prefix && row->keys;
}

void row_cache_find(const struct sched_opts *o, const struct sched_row *row, struct prefix_hit *ret)
{
    *ret = (struct prefix_hit){NONE, 0, NONE};
    if (is_cached(o, row) && !row->logits_all)
        prefix_index_find(o->prefix, row->keys, MIN_OF(row->key_count, (row->tokens - 1) / PAGE_TOKENS), ret);
    ASSERT(ret->pages <= row->key_count);
    ASSERT(ret->pages * PAGE_TOKENS < row->tokens);
}

uint32_t row_cache_wants(const struct sched_opts *o, const struct sched_row *row,
                         const struct prefix_hit *hit, uint32_t group)
{
    const struct page_group *g = &o->groups[group];
    uint32_t pages = sched_pages(row->tokens) - page_group_first(g, hit->pages * PAGE_TOKENS);
    uint32_t shared = hit->node == NONE ? 0 : prefix_index_referenced(o->prefix, hit->node, group);
    ASSERT(hit->pages <= sched_pages(row->tokens));
    ASSERT(shared <= hit->pages);
    return page_group_needs(g, pages) - shared;
}

/* ---- pages ---- */

void row_cache_prepare(const struct sched_opts *o, uint32_t pages)
{
    for (uint32_t g = 0; g < o->group_count; g++)
        page_pool_prepare(o->groups[g].pages, pages);
}

int row_cache_extend(const struct sched_opts *o, struct sched_row *row)
{
    ASSERT(row->page_count < sched_pages(row->tokens_limit));
    for (uint32_t g = 0; g < o->group_count; g++) {
        int r = page_pool_take(o->groups[g].pages, &row->pages[g][row->page_count]);
        if (r == 0)
            continue;
        while (g-- > 0)
            page_pool_unref(o->groups[g].pages, row->pages[g][row->page_count]);
        return r;
    }
    row->page_count++;
    return 0;
}

/* The row's references to pages that its next tokens do not read. */
static void leave_behind(const struct sched_opts *o, struct sched_row *row)
{
    for (uint32_t g = 1; g < o->group_count; g++) {
        uint32_t first = page_group_first(&o->groups[g], row->done);
        for (; row->first[g] < first; row->first[g]++) {
            uint32_t *page = &row->pages[g][row->first[g]];
            ASSERT(*page != NONE);
            page_pool_unref(o->groups[g].pages, *page);
            *page = NONE;
        }
    }
}

/* ---- states ---- */

uint32_t row_cache_take_state(const struct sched_opts *o)
{
    ASSERT(o->states);
    uint32_t state;
    if (state_pool_take(o->states, &state) == 0)
        return state;
    if (o->prefix && prefix_index_evict_snapshot(o->prefix) && state_pool_take(o->states, &state) == 0)
        return state;
    return NONE;
}

static void give_state(const struct sched_opts *o, uint32_t *state)
{
    ASSERT(o->states);
    if (*state != NONE)
        state_pool_give(o->states, *state);
    *state = NONE;
}

static void unpin(const struct sched_opts *o, struct sched_row *row)
{
    if (row->pinned != NONE)
        prefix_index_unpin(o->prefix, row->pinned);
    row->pinned = NONE;
}

int row_cache_begin(const struct sched_opts *o, struct sched_row *row, const struct prefix_hit *hit)
{
    ASSERT(row->page_count == 0);
    row->state = row->state_in = row->boundary = NONE;
    row->node = row->pinned = NONE;
    row->node_pages = row->boundary_at = 0;
    memset(row->first, 0, sizeof(row->first));
    if (hit->node != NONE) {
        /* First, so that looking for a state cannot evict what was found. */
        prefix_index_take(o->prefix, hit, row->pages);
        for (uint32_t g = 0; g < o->group_count; g++)
            row->first[g] = page_group_first(&o->groups[g], hit->pages * PAGE_TOKENS);
        row->pinned = hit->state != NONE ? hit->node : NONE;
        row->state_in = hit->state;
        row->node = hit->node;
        row->node_pages = row->page_count = hit->pages;
        row->done = row->boundary_at = hit->pages * PAGE_TOKENS;
    }
    ASSERT(row->done < row->tokens);
    ASSERT(row->pinned == NONE || o->states);
    if (!o->states || (row->state = row_cache_take_state(o)) != NONE)
        return 0;
    row_cache_leave(o, row);
    return -ENOMEM;
}

/* ---- forward ---- */

static bool is_cut(const struct sched_row *row, uint32_t at)
{
    for (uint32_t i = 0; i < row->cut_count; i++)
        if (row->cuts[i] == at)
            return true;
    return false;
}

/* Whole pages up to `tokens` join the index. */
static void add_pages(const struct sched_opts *o, struct sched_row *row, uint32_t tokens)
{
    uint32_t whole = MIN_OF(tokens / PAGE_TOKENS, row->key_count);
    for (; row->node_pages < whole; row->node_pages++) {
        uint32_t at = row->node_pages, pages[PAGE_GROUPS_MAX];
        ASSERT(at < row->page_count);
        for (uint32_t g = 0; g < o->group_count; g++)
            pages[g] = row->pages[g][at];
        row->node = prefix_index_add(o->prefix, row->node, &row->keys[at], pages);
        for (uint32_t g = 0; g < o->group_count; g++)
            row->pages[g][at] = pages[g];
    }
}

/* The state just written holds the state at a page boundary: keep it, and write into another from here. */
static void turn(const struct sched_opts *o, struct sched_row *row)
{
    ASSERT(row->state != NONE);
    uint32_t other = row->boundary != NONE ? row->boundary : row_cache_take_state(o);
    row->boundary = NONE;
    if (other == NONE)
        return;
    row->boundary = row->state;
    row->boundary_at = row->done;
    row->state = other;
    ASSERT(row->boundary != row->state);
}

/* The state at the boundary becomes a snapshot, to be read once more by the next step. */
static void snapshot_boundary(const struct sched_opts *o, struct sched_row *row)
{
    uint32_t pages = row->boundary_at / PAGE_TOKENS;
    if (row->boundary == NONE || row->node_pages < pages)
        return;
    ASSERT(row->boundary_at % PAGE_TOKENS == 0 && pages > 0);
    uint32_t node = prefix_index_node_of(o->prefix, row->pages[0][pages - 1]);
    ASSERT(node != NONE);
    if (!prefix_index_snapshot(o->prefix, node, row->boundary))
        return;
    ASSERT(row->pinned == NONE);
    prefix_index_pin(o->prefix, node);
    row->pinned = node;
    row->boundary = NONE;
}

/* Keeps the state, if this is where somebody may want it. */
static void keep_state(const struct sched_opts *o, struct sched_row *row)
{
    row->state_in = row->state;
    if (!is_cached(o, row) || row->done % PAGE_TOKENS != 0)
        return;
    turn(o, row);
    if (is_cut(row, row->done))
        snapshot_boundary(o, row);
}

void row_cache_advance(const struct sched_opts *o, struct sched_row *row)
{
    ASSERT(row->done <= row->page_count * PAGE_TOKENS);
    unpin(o, row);
    if (is_cached(o, row))
        add_pages(o, row, row->done);
    leave_behind(o, row);
    if (o->states)
        keep_state(o, row);
    /* Pages left behind and a snapshot that is no longer read are cache from now on, and that has a bound. */
    if (o->prefix)
        prefix_index_released(o->prefix, NONE);
    ASSERT(row->node_pages <= row->page_count);
}

/* ---- leaving ---- */

void row_cache_leave(const struct sched_opts *o, struct sched_row *row)
{
    snapshot_boundary(o, row);
    unpin(o, row);
    /* The first group last: whoever references a node's other pages references that one. */
    for (uint32_t g = o->group_count; g-- > 0;)
        for (uint32_t i = row->page_count; i > row->first[g]; i--)
            page_pool_unref(o->groups[g].pages, row->pages[g][i - 1]);
    if (o->prefix)
        prefix_index_released(o->prefix, row->node);
    if (o->states) {
        give_state(o, &row->boundary);
        give_state(o, &row->state);
    }
    row->state_in = NONE;
    row->node = NONE;
    row->page_count = row->node_pages = row->done = row->boundary_at = 0;
    memset(row->first, 0, sizeof(row->first));
    ASSERT(row->pinned == NONE);
}

/* ---- cuts ---- */

uint32_t row_cache_next_cut(const struct sched_row *row)
{
    for (uint32_t i = 0; i < row->cut_count; i++)
        if (row->cuts[i] > row->done)
            return row->cuts[i];
    return UINT32_MAX;
}

/* Keys are chained, so equal ones come first. */
uint32_t row_cache_common_pages(const struct sched_row *a, const struct sched_row *b)
{
    uint32_t low = 0, high = MIN_OF(a->key_count, b->key_count);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (prefix_key_eq(&a->keys[middle], &b->keys[middle]))
            low = middle + 1;
        else
            high = middle;
    }
    ASSERT(low <= a->key_count && low <= b->key_count);
    return low;
}

bool row_cache_worth_waiting(const struct sched_opts *o, const struct sched_row *row,
                             const struct prefix_hit *hit, const struct sched_row *other)
{
    if (!is_cached(o, row) || !other->keys || row->logits_all || other->phase != SCHED_PREFILLING ||
        other->paused)
        return false;
    uint32_t pages = MIN_OF(row_cache_common_pages(row, other), (row->tokens - 1) / PAGE_TOKENS);
    ASSERT(row != other);
    if (o->states) {
        /* The last cut that both have in common. */
        uint32_t cut = 0;
        for (uint32_t i = 0; i < other->cut_count && other->cuts[i] <= pages * PAGE_TOKENS; i++)
            cut = other->cuts[i];
        pages = cut / PAGE_TOKENS;
    }
    return pages > hit->pages && other->done < pages * PAGE_TOKENS;
}
