/* seq_fetch.c - reads are requested in order and arrive in any order.
 *
 * The disk decides the order of pages. A page that comes before those ahead of it waits in the sequence's
 * table, referenced by the sequence alone; the index gets pages from the front. Ending a fetch frees the
 * waiting ones. */
#include "sched/seq_fetch.h"

#include "sched/seq_cache.h"

#include "base/check.h"

#include <errno.h>

#define TRIES_MAX      3 /* searches for a prefix; the second finds less: entries that failed are gone */
#define UNTIL_LEAST_NS 200000000ull
#define UNTIL_MOST_NS  10000000000ull

/* ---- worth it? ---- */

static bool tier_has(const struct sched_opts *o, const struct prefix_key *key, enum tier_kind kind)
{
    return o->tier->has(o->tier->arg, key, kind);
}

/* Pages up to and including the last one at which the prefix may end. */
static uint32_t find_end(const struct sched_opts *o, const struct sched_seq *seq, uint32_t in_index,
                         uint32_t most)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < most; i++) {
        if (i >= in_index && !tier_has(o, &seq->keys[i], TIER_PAGE))
            break;
        if (!o->states || tier_has(o, &seq->keys[i], TIER_SNAPSHOT))
            end = i + 1;
    }
    ASSERT(end <= most && most <= seq->key_count);
    return end;
}

static uint32_t count_in_index(const struct sched_opts *o, const struct sched_seq *seq, uint32_t most)
{
    uint32_t count = 0;
    while (count < most && prefix_index_node(o->prefix, &seq->keys[count]) != NONE)
        count++;
    ASSERT(count <= seq->key_count);
    return count;
}

bool seq_fetch_may_look(const struct sched_seq *seq)
{
    return seq->phase == SCHED_QUEUED && seq->keys && !seq->paused && !seq->logits_all &&
           seq->page_count == 0 && seq->fetch_tries < TRIES_MAX;
}

void seq_fetch_look_no_more(struct sched_seq *seq)
{
    seq->fetch_tries = TRIES_MAX;
}

bool seq_fetch_find(const struct sched_opts *o, const struct sched_seq *seq, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct seq_fetch_wish *ret)
{
    uint32_t most = MIN_OF(seq->key_count, (seq->tokens - 1) / PAGE_TOKENS);
    uint32_t in_index = count_in_index(o, seq, most);
    uint32_t end = find_end(o, seq, in_index, most);
    if (end <= hit->pages)
        return false;
    ASSERT(end <= most && in_index <= most);
    in_index = MIN_OF(in_index, end);
    uint64_t read_ns = o->tier->read_ns(o->tier->arg, end - in_index, o->states ? 1 : 0);
    double compute_ns = (double)(end - hit->pages) * PAGE_TOKENS * ev->prompt_token_ns;
    /* Before the first prompt is computed the time is unknown: after a restart the first sequence reads. */
    if (read_ns == UINT64_MAX || (ev->prompt_token_ns > 0 && 2 * (double)read_ns >= compute_ns))
        return false;
    uint64_t patience_ns = UNTIL_MOST_NS;
    if (ev->prompt_token_ns > 0 && compute_ns < (double)UNTIL_MOST_NS)
        patience_ns = MAX_OF((uint64_t)compute_ns, UNTIL_LEAST_NS);
    *ret = (struct seq_fetch_wish){end, in_index, ev->now_ns + patience_ns};
    return true;
}

/* ---- one fetch ---- */

static void hold_index(const struct sched_opts *o, struct sched_seq *seq, uint32_t in_index)
{
    for (uint32_t i = 0; i < in_index; i++) {
        seq->node = prefix_index_node(o->prefix, &seq->keys[i]);
        ASSERT(seq->node != NONE);
        seq->pages[0][i] = prefix_index_page(o->prefix, seq->node);
        page_pool_ref(o->groups[0].pages, seq->pages[0][i]);
    }
    seq->page_count = in_index;
}

void seq_fetch_begin(const struct sched_opts *o, struct sched_seq *seq, const struct seq_fetch_wish *wish,
                     uint64_t tag)
{
    ASSERT(seq->page_count == 0 && seq->pinned == NONE);
    ASSERT(seq->fetch_tries < TRIES_MAX);
    ASSERT(wish->in_index <= wish->pages && wish->pages <= seq->key_count);
    seq->state = NONE;
    seq->node = seq->pinned = NONE;
    seq->fetch = tag;
    seq->fetch_pages = wish->pages;
    seq->fetch_next = wish->in_index;
    seq->fetch_open = 0;
    seq->fetch_until_ns = wish->until_ns;
    seq->fetch_failed = false;
    seq->fetch_tries++;
    hold_index(o, seq, wish->in_index);
    for (uint32_t i = wish->in_index; i < wish->pages; i++)
        seq->pages[0][i] = NONE;
    seq_fetch_ask(o, seq);
}

/* The snapshot at the prefix's end is read after the last page. */
void seq_fetch_ask(const struct sched_opts *o, struct sched_seq *seq)
{
    uint32_t asks = seq->fetch_pages + (o->states ? 1 : 0);
    while (!seq->fetch_failed && seq->fetch_next < asks) {
        bool page = seq->fetch_next < seq->fetch_pages;
        const struct prefix_key *key = &seq->keys[page ? seq->fetch_next : seq->fetch_pages - 1];
        int r =
            o->tier->read(o->tier->arg, key, page ? TIER_PAGE : TIER_SNAPSHOT, seq->fetch, seq->fetch_next);
        if (r == -EAGAIN)
            return;
        seq->fetch_failed = r < 0;
        seq->fetch_next += r == 0;
        seq->fetch_open += r == 0;
    }
    ASSERT(seq->fetch_next <= asks && seq->fetch_open <= seq->fetch_next);
}

/* Pages that are next join the index. After the last one the snapshot does. */
static void join_index(const struct sched_opts *o, struct sched_seq *seq)
{
    while (seq->page_count < seq->fetch_pages && seq->pages[0][seq->page_count] != NONE) {
        uint32_t at = seq->page_count, page[PAGE_GROUPS_MAX] = {seq->pages[0][at]};
        seq->node = prefix_index_add(o->prefix, seq->node, &seq->keys[at], page);
        seq->pages[0][at] = page[0];
        prefix_index_page_stored(o->prefix, seq->node);
        seq->page_count++;
    }
    if (seq->page_count < seq->fetch_pages || seq->state == NONE)
        return;
    if (prefix_index_snapshot(o->prefix, seq->node, seq->state))
        prefix_index_snapshot_stored(o->prefix, seq->node);
    else
        block_pool_give(o->states, seq->state);
    seq->state = NONE;
    seq->pinned = seq->node;
    prefix_index_pin(o->prefix, seq->node);
    ASSERT(seq->page_count == seq->fetch_pages);
    ASSERT(seq->pinned != NONE);
}

static bool take_page(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a)
{
    const struct page_group *g = &o->groups[0];
    uint32_t *page = &seq->pages[0][a->index];
    ASSERT(a->index < seq->fetch_pages && *page == NONE);
    if (page_pool_take(g->pages, page) < 0) {
        *page = NONE;
        return false;
    }
    o->arrived(o->arrived_arg, a, *page);
    return true;
}

static bool take_snapshot(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a)
{
    ASSERT(o->states && seq->state == NONE);
    seq->state = seq_cache_take_state(o);
    if (seq->state == NONE)
        return false;
    o->arrived(o->arrived_arg, a, seq->state);
    return true;
}

size_t seq_fetch_arrive(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a)
{
    ASSERT(seq->phase == SCHED_FETCHING && seq->fetch == a->tag);
    bool page = a->kind == TIER_PAGE;
    ASSERT(seq->fetch_open > 0);
    seq->fetch_open--;
    if (a->status < 0 || seq->fetch_failed || !(page ? take_page(o, seq, a) : take_snapshot(o, seq, a))) {
        seq->fetch_failed = true;
        return 0;
    }
    join_index(o, seq);
    return page ? o->groups[0].page_bytes : o->state_bytes;
}

static bool is_whole(const struct sched_opts *o, const struct sched_seq *seq)
{
    return seq->page_count == seq->fetch_pages && (!o->states || seq->pinned != NONE);
}

bool seq_fetch_is_over(const struct sched_opts *o, const struct sched_seq *seq, uint64_t now_ns)
{
    ASSERT(seq->page_count <= seq->fetch_pages);
    return seq->fetch_failed || is_whole(o, seq) || now_ns >= seq->fetch_until_ns;
}

void seq_fetch_end(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->page_count <= seq->fetch_pages);
    if (seq->fetch_open > 0)
        o->tier->cancel(o->tier->arg, seq->fetch);
    /* Another search is worth it only after an entry was missing, not after a fetch that took too long. */
    if (!seq->fetch_failed)
        seq->fetch_tries = TRIES_MAX;
    if (is_whole(o, seq) || !o->states)
        seq->fetch_to = seq->page_count * PAGE_TOKENS;
    for (uint32_t i = seq->fetch_pages; i > seq->page_count; i--)
        if (seq->pages[0][i - 1] != NONE)
            page_pool_unref(o->groups[0].pages, seq->pages[0][i - 1]);
    if (seq->state != NONE)
        block_pool_give(o->states, seq->state);
    seq->state = NONE;
    seq->fetch = seq->fetch_open = seq->fetch_pages = seq->fetch_next = 0;
}

/* Releases references to the index: `count` pages up to `node`, and the snapshot of `pinned`. */
static void let_go(const struct sched_opts *o, const struct sched_seq *seq, uint32_t count, uint32_t node,
                   uint32_t pinned)
{
    ASSERT(count == 0 || node != NONE);
    if (pinned != NONE)
        prefix_index_unpin(o->prefix, pinned);
    for (uint32_t i = count; i > 0; i--)
        page_pool_unref(o->groups[0].pages, seq->pages[0][i - 1]);
    if (count > 0)
        prefix_index_released(o->prefix, node);
}

void seq_fetch_drop(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq_fetch_holds(seq));
    uint32_t count = seq->page_count, node = seq->node, pinned = seq->pinned;
    if (seq->phase == SCHED_FETCHING)
        seq_fetch_end(o, seq);
    seq->page_count = 0;
    seq->node = seq->pinned = NONE;
    seq->fetch_tries = TRIES_MAX;
    seq->fetch_to = 0;
    let_go(o, seq, count, node, pinned);
}

int seq_fetch_turn_into_place(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit)
{
    /* The sequence's table names the same pages before and after, as far as both reach: a page that is
     * referenced stays its node's. */
    uint32_t count = seq->page_count, node = seq->node, pinned = seq->pinned;
    seq->page_count = 0;
    int r = seq_cache_begin(o, seq, hit);
    if (count > 0)
        let_go(o, seq, count, node, pinned);
    ASSERT(r < 0 || seq->page_count == hit->pages);
    return r;
}

/* ---- others ---- */

bool seq_fetch_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other)
{
    ASSERT(other->phase == SCHED_FETCHING);
    if (!seq->keys || seq->logits_all)
        return false;
    uint32_t pages = MIN_OF(seq_cache_common_pages(seq, other), (seq->tokens - 1) / PAGE_TOKENS);
    pages = MIN_OF(pages, other->fetch_pages);
    if (o->states && pages < other->fetch_pages)
        return false;
    return pages > hit->pages;
}
