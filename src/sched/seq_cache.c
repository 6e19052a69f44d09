/* seq_cache.c - a sequence's pages and states, from its admission to its leaving.
 *
 *     state_in  what the next step reads: NONE at position 0, a pinned snapshot, `boundary` or `state`
 *     state     what it writes
 *     boundary  the state at boundary_at, the last page boundary; NONE: a snapshot has it, or none was free
 *
 * A state is in one of these, or a snapshot of the index. So a sequence has at most two states of its own,
 * or one and a pin. */
#include "sched/seq_cache.h"

#include "sched/sched.h"

#include "base/check.h"
#include "base/none.h"
#include "base/page_tokens.h"
#include "cache/block_pool.h"
#include "cache/page_group.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"

#include <errno.h>
#include <string.h>

static bool is_cached(const struct sched_opts *o, const struct sched_seq *seq)
{
    return o->prefix && seq->keys;
}

void seq_cache_find(const struct sched_opts *o, const struct sched_seq *seq, struct prefix_hit *ret)
{
    *ret = (struct prefix_hit){NONE, 0, NONE};
    if (is_cached(o, seq) && !seq->logits_all)
        prefix_index_find(o->prefix, seq->keys, MIN_OF(seq->key_count, (seq->tokens - 1) / PAGE_TOKENS), ret);
    ASSERT(ret->pages <= seq->key_count);
    ASSERT(ret->pages * PAGE_TOKENS < seq->tokens);
}

uint32_t seq_cache_wants(const struct sched_opts *o, const struct sched_seq *seq,
                         const struct prefix_hit *hit, uint32_t group)
{
    const struct page_group *g = &o->groups[group];
    uint32_t pages = sched_pages(seq->tokens) - page_group_first(g, hit->pages * PAGE_TOKENS);
    uint32_t shared = hit->node == NONE ? 0 : prefix_index_referenced(o->prefix, hit->node, group);
    ASSERT(hit->pages <= sched_pages(seq->tokens));
    ASSERT(shared <= hit->pages);
    return page_group_needs(g, pages) - shared;
}

/* Evictions from now on make room for this sequence. */
static void blame(const struct sched_opts *o, const struct sched_seq *seq)
{
    ASSERT(seq->page_count <= sched_pages(seq->tokens_limit));
    if (o->prefix)
        prefix_index_blame(o->prefix, PREFIX_LOSS_PAGES, seq->tenant_id);
}

/* ---- pages ---- */

void seq_cache_prepare(const struct sched_opts *o, uint32_t pages)
{
    for (uint32_t g = 0; g < o->group_count; g++)
        page_pool_prepare(o->groups[g].pages, pages);
}

int seq_cache_extend(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->page_count < sched_pages(seq->tokens_limit));
    blame(o, seq);
    for (uint32_t g = 0; g < o->group_count; g++) {
        int r = page_pool_take(o->groups[g].pages, &seq->pages[g][seq->page_count]);
        if (r == 0)
            continue;
        while (g-- > 0)
            page_pool_unref(o->groups[g].pages, seq->pages[g][seq->page_count]);
        return r;
    }
    seq->page_count++;
    return 0;
}

/* Releases the sequence's references to pages that its next tokens do not read. */
static void leave_behind(const struct sched_opts *o, struct sched_seq *seq)
{
    for (uint32_t g = 1; g < o->group_count; g++) {
        uint32_t first = page_group_first(&o->groups[g], seq->done);
        for (; seq->first[g] < first; seq->first[g]++) {
            uint32_t *page = &seq->pages[g][seq->first[g]];
            ASSERT(*page != NONE);
            page_pool_unref(o->groups[g].pages, *page);
            *page = NONE;
        }
    }
}

/* The node of the sequence's last page; NONE: its tokens do not fill whole pages, it has more pages to
 * compute, or the index lacks one of the node's pages. */
static uint32_t last_node(const struct sched_opts *o, const struct sched_seq *seq)
{
    const uint32_t last = seq->node_pages;
    if (!is_cached(o, seq) || seq->logits_all || o->states || seq->done != last * PAGE_TOKENS ||
        seq->tokens != seq->done + PAGE_TOKENS || seq->key_count <= last)
        return NONE;
    uint32_t node = prefix_index_node(o->prefix, &seq->keys[last]);
    for (uint32_t g = 0; g < o->group_count && node != NONE; g++)
        if (prefix_index_page(o->prefix, node, g) == NONE)
            node = NONE;
    return node;
}

void seq_cache_copy_last(const struct sched_opts *o, struct sched_seq *seq)
{
    const uint32_t node = last_node(o, seq), last = seq->node_pages;
    if (node == NONE)
        return;
    ASSERT(seq->page_count == last + 1);
    for (uint32_t g = 0; g < o->group_count; g++) {
        const struct block_pool *pages = page_pool_blocks(o->groups[g].pages);
        block_pool_copy(pages, prefix_index_page(o->prefix, node, g), seq->pages[g][last]);
    }
    seq->done = seq->tokens - 1;
    leave_behind(o, seq);
}

/* ---- states ---- */

uint32_t seq_cache_take_state(const struct sched_opts *o)
{
    ASSERT(o->states);
    uint32_t state;
    if (block_pool_take(o->states, &state) == 0)
        return state;
    if (o->prefix && prefix_index_evict_snapshot(o->prefix) && block_pool_take(o->states, &state) == 0)
        return state;
    return NONE;
}

static void give_state(const struct sched_opts *o, uint32_t *state)
{
    ASSERT(o->states);
    if (*state != NONE)
        block_pool_give(o->states, *state);
    *state = NONE;
}

static void unpin(const struct sched_opts *o, struct sched_seq *seq)
{
    if (seq->pinned != NONE)
        prefix_index_unpin(o->prefix, seq->pinned);
    seq->pinned = NONE;
}

int seq_cache_begin(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit)
{
    ASSERT(seq->page_count == 0);
    blame(o, seq);
    seq->state = seq->state_in = seq->boundary = NONE;
    seq->node = seq->pinned = NONE;
    seq->node_pages = seq->boundary_at = 0;
    memset(seq->first, 0, sizeof(seq->first));
    if (hit->node != NONE) {
        /* The hit is taken first, so that the search for a state cannot evict it. */
        prefix_index_take(o->prefix, hit, seq->pages);
        for (uint32_t g = 0; g < o->group_count; g++)
            seq->first[g] = page_group_first(&o->groups[g], hit->pages * PAGE_TOKENS);
        seq->pinned = hit->state != NONE ? hit->node : NONE;
        seq->state_in = hit->state;
        seq->node = hit->node;
        seq->node_pages = seq->page_count = hit->pages;
        seq->done = seq->boundary_at = hit->pages * PAGE_TOKENS;
    }
    ASSERT(seq->done < seq->tokens);
    ASSERT(seq->pinned == NONE || o->states);
    if (!o->states || (seq->state = seq_cache_take_state(o)) != NONE)
        return 0;
    seq_cache_leave(o, seq);
    return -ENOMEM;
}

/* ---- forward ---- */

static bool is_cut(const struct sched_seq *seq, uint32_t at)
{
    for (uint32_t i = 0; i < seq->cut_count; i++)
        if (seq->cuts[i] == at)
            return true;
    return false;
}

const uint32_t *seq_cache_announced(const struct sched_seq *seq, uint32_t page)
{
    ASSERT(page < seq->key_count);
    return seq->announced && (page + 1) * PAGE_TOKENS <= seq->announced_end
               ? seq->announced + page * PAGE_TOKENS
               : NULL;
}

/* Whole pages up to `tokens` join the index. */
static void add_pages(const struct sched_opts *o, struct sched_seq *seq, uint32_t tokens)
{
    uint32_t whole = MIN_OF(tokens / PAGE_TOKENS, seq->key_count);
    for (; seq->node_pages < whole; seq->node_pages++) {
        uint32_t at = seq->node_pages, pages[PAGE_GROUPS_MAX];
        ASSERT(at < seq->page_count);
        for (uint32_t g = 0; g < o->group_count; g++)
            pages[g] = seq->pages[g][at];
        seq->node = prefix_index_add(o->prefix, seq->tenant_id, seq->node, &seq->keys[at],
                                     seq_cache_announced(seq, at), pages);
        for (uint32_t g = 0; g < o->group_count; g++)
            seq->pages[g][at] = pages[g];
        if (is_cut(seq, (at + 1) * PAGE_TOKENS))
            prefix_index_ends_here(o->prefix, seq->node);
    }
}

/* The state just written is at a page boundary: it is kept, and the next steps write into another. */
static void turn(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->state != NONE);
    uint32_t other = seq->boundary != NONE ? seq->boundary : seq_cache_take_state(o);
    seq->boundary = NONE;
    if (other == NONE)
        return;
    seq->boundary = seq->state;
    seq->boundary_at = seq->done;
    seq->state = other;
    ASSERT(seq->boundary != seq->state);
}

/* The state at the boundary becomes a snapshot. The next step still reads it, so it is pinned. */
static void snapshot_boundary(const struct sched_opts *o, struct sched_seq *seq)
{
    uint32_t pages = seq->boundary_at / PAGE_TOKENS;
    if (seq->boundary == NONE || seq->node_pages < pages)
        return;
    ASSERT(seq->boundary_at % PAGE_TOKENS == 0 && pages > 0);
    uint32_t node = prefix_index_node_of(o->prefix, seq->pages[0][pages - 1]);
    ASSERT(node != NONE);
    if (!prefix_index_snapshot(o->prefix, node, seq->boundary))
        return;
    ASSERT(seq->pinned == NONE);
    prefix_index_pin(o->prefix, node);
    seq->pinned = node;
    seq->boundary = NONE;
}

/* Keeps the state at a page boundary; at a cut it becomes a snapshot. */
static void keep_state(const struct sched_opts *o, struct sched_seq *seq)
{
    seq->state_in = seq->state;
    if (!is_cached(o, seq) || seq->done % PAGE_TOKENS != 0)
        return;
    turn(o, seq);
    if (is_cut(seq, seq->done))
        snapshot_boundary(o, seq);
}

void seq_cache_advance(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->done <= seq->page_count * PAGE_TOKENS);
    blame(o, seq);
    unpin(o, seq);
    if (is_cached(o, seq))
        add_pages(o, seq, seq->done);
    leave_behind(o, seq);
    if (o->states)
        keep_state(o, seq);
    /* Pages that a window has passed and a snapshot that was unpinned are cache from now on, which has a
     * bound. */
    if (o->prefix)
        prefix_index_released(o->prefix, NONE);
    ASSERT(seq->node_pages <= seq->page_count);
}

/* ---- leaving ---- */

void seq_cache_leave(const struct sched_opts *o, struct sched_seq *seq)
{
    blame(o, seq);
    snapshot_boundary(o, seq);
    unpin(o, seq);
    if (seq->node != NONE)
        prefix_index_ends_here(o->prefix, seq->node);
    /* The first group last: a sequence that references a node's other pages references its page of that
     * group. */
    for (uint32_t g = o->group_count; g-- > 0;)
        for (uint32_t i = seq->page_count; i > seq->first[g]; i--)
            page_pool_unref(o->groups[g].pages, seq->pages[g][i - 1]);
    if (o->prefix)
        prefix_index_released(o->prefix, seq->node);
    if (o->states) {
        give_state(o, &seq->boundary);
        give_state(o, &seq->state);
    }
    seq->state_in = NONE;
    seq->node = NONE;
    seq->page_count = seq->node_pages = seq->done = seq->boundary_at = 0;
    memset(seq->first, 0, sizeof(seq->first));
    ASSERT(seq->pinned == NONE);
}

/* ---- cuts ---- */

uint32_t seq_cache_next_cut(const struct sched_opts *o, const struct sched_seq *seq)
{
    for (uint32_t i = 0; o->states && i < seq->cut_count; i++)
        if (seq->cuts[i] > seq->done)
            return seq->cuts[i];
    return UINT32_MAX;
}

/* Keys are chained, so equal ones come first. */
uint32_t seq_cache_common_pages(const struct sched_seq *a, const struct sched_seq *b)
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

bool seq_cache_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other)
{
    if (!is_cached(o, seq) || !other->keys || seq->logits_all || other->phase != SCHED_PREFILLING ||
        other->paused)
        return false;
    uint32_t pages = MIN_OF(seq_cache_common_pages(seq, other), (seq->tokens - 1) / PAGE_TOKENS);
    ASSERT(seq != other);
    if (o->states) {
        /* The last cut that the prefixes have in common. */
        uint32_t cut = 0;
        for (uint32_t i = 0; i < other->cut_count && other->cuts[i] <= pages * PAGE_TOKENS; i++)
            cut = other->cuts[i];
        pages = cut / PAGE_TOKENS;
    }
    return pages > hit->pages && other->done < pages * PAGE_TOKENS;
}
