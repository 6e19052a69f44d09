/* seq_fetch.c - reads are requested in order and arrive in any order.
 *
 * The disk decides the order of pages. A page that comes before those ahead of it waits in the sequence's
 * table, referenced by the sequence alone; the index gets pages of the first group from the front. A window's
 * page joins the node of its tokens, at once or with it. Ending a fetch frees the waiting ones. */
#include "sched/seq_fetch.h"

#include "sched/seq_cache.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"

#include <errno.h>
#include <string.h>

#define TRIES_MAX      3 /* searches for a prefix; the second finds less: entries that failed are gone */
#define UNTIL_LEAST_NS 200000000ull
#define QUERY_WORTH_NS 10000000ull   /* a shorter computation is not worth a query */
#define UNKNOWN_NS     1000000000ull /* time of a query and its reads before any prompt was computed */
#define UNTIL_MOST_NS  10000000000ull

/* ---- worth it? ---- */

static bool tier_has(const struct sched_opts *o, const struct prefix_key *key, enum tier_kind kind)
{
    return o->tier->has(o->tier->arg, key, kind);
}

/* A window's page, in the index or in the tier. */
static bool has_page(const struct sched_opts *o, const struct sched_seq *seq, uint32_t in_index,
                     uint32_t group, uint32_t i)
{
    const struct prefix_key *key = &seq->keys[i];
    ASSERT(group > 0 && group < o->group_count && i < seq->key_count);
    if (i < in_index && prefix_index_page(o->prefix, prefix_index_node(o->prefix, key), group) != NONE)
        return true;
    return tier_has(o, key, tier_kind_of(group));
}

/* Returns `end` if each window before it is whole, else an earlier page: no prefix between the two has its
 * windows. low[group]: from there to an earlier `end` all pages were found, so each is looked up once. */
static uint32_t windows_end(const struct sched_opts *o, const struct sched_seq *seq, uint32_t in_index,
                            uint32_t end, uint32_t *low)
{
    for (uint32_t g = 1; g < o->group_count; g++) {
        uint32_t first = page_group_first(&o->groups[g], end * PAGE_TOKENS);
        ASSERT(first < end || o->groups[g].window == 1);
        low[g] = MIN_OF(low[g], end);
        for (; low[g] > first; low[g]--)
            if (!has_page(o, seq, in_index, g, low[g] - 1))
                return low[g] - 1;
    }
    return end;
}

/* Pages up to the last one at which the prefix may end; at most `least`: none is longer than that. */
static uint32_t find_end(const struct sched_opts *o, const struct sched_seq *seq, uint32_t in_index,
                         uint32_t least, uint32_t most)
{
    uint32_t end = in_index, low[PAGE_GROUPS_MAX];
    memset(low, 0xff, sizeof(low));
    while (end < most && tier_has(o, &seq->keys[end], TIER_PAGE))
        end++;
    while (end > least) {
        bool may = !o->states || tier_has(o, &seq->keys[end - 1], TIER_SNAPSHOT);
        uint32_t whole = may ? windows_end(o, seq, in_index, end, low) : end - 1;
        if (whole == end)
            break;
        end = whole;
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

bool seq_fetch_may_search(const struct sched_seq *seq)
{
    return seq->phase == SCHED_QUEUED && seq->keys && !seq->paused && !seq->logits_all &&
           seq->fetch_tries < TRIES_MAX;
}

void seq_fetch_end_search(struct sched_seq *seq)
{
    seq->fetch_tries = TRIES_MAX;
}

/* Estimate for reading what the index lacks of the prefix; windows count in full. */
static uint64_t read_ns(const struct sched_opts *o, const struct sched_seq *seq, uint32_t in_index,
                        uint32_t end)
{
    ASSERT(in_index <= end && end > 0);
    uint32_t first[TIER_KINDS] = {[TIER_PAGE] = in_index, [TIER_SNAPSHOT] = o->states ? end - 1 : end};
    for (uint32_t g = 1; g < PAGE_GROUPS_MAX; g++)
        first[tier_kind_of(g)] =
            g < o->group_count ? page_group_first(&o->groups[g], end * PAGE_TOKENS) : end;
    return o->tier->read_ns(o->tier->arg, seq->keys, end, first);
}

bool seq_fetch_find(const struct sched_opts *o, const struct sched_seq *seq, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct seq_fetch_wish *ret)
{
    uint32_t most = MIN_OF(seq->key_count, (seq->tokens - 1) / PAGE_TOKENS);
    uint32_t in_index = count_in_index(o, seq, most);
    uint32_t end = find_end(o, seq, in_index, hit->pages, most);
    if (end <= hit->pages)
        return false;
    ASSERT(end <= most && in_index <= most);
    in_index = MIN_OF(in_index, end);
    uint64_t needs_ns = read_ns(o, seq, in_index, end);
    double compute_ns = (double)(end - hit->pages) * PAGE_TOKENS * ev->prompt_token_ns;
    /* Before the first prompt is computed the time is unknown: after a restart the first sequence reads. */
    if (needs_ns == UINT64_MAX || (ev->prompt_token_ns > 0 && 2 * (double)needs_ns >= compute_ns))
        return false;
    uint64_t patience_ns = UNTIL_MOST_NS;
    if (ev->prompt_token_ns > 0 && compute_ns < (double)UNTIL_MOST_NS)
        patience_ns = MAX_OF((uint64_t)compute_ns, UNTIL_LEAST_NS);
    uint64_t until_ns = ev->now_ns + patience_ns;
    if (seq->fetch_queried_ns > 0)
        until_ns = MIN_OF(until_ns, seq->fetch_queried_ns);
    *ret = (struct seq_fetch_wish){end, in_index, until_ns};
    return until_ns > ev->now_ns;
}

bool seq_fetch_query(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit,
                     const struct sched_events *ev, uint64_t tag)
{
    uint32_t most = MIN_OF(seq->key_count, (seq->tokens - 1) / PAGE_TOKENS);
    if (!o->tier->query || seq->fetch_queried_ns > 0 || seq->fetch_tries > 0 || seq->page_count > 0 ||
        most <= hit->pages)
        return false;
    double compute_ns = (double)(most - hit->pages) * PAGE_TOKENS * ev->prompt_token_ns;
    uint64_t half_ns =
        ev->prompt_token_ns > 0 ? (uint64_t)MIN_OF(compute_ns / 2, (double)UNTIL_MOST_NS) : UNKNOWN_NS;
    if (2 * half_ns < QUERY_WORTH_NS)
        return false;
    struct tier_query q = {.keys = seq->keys,
                           .count = most,
                           .page_first = MIN_OF(count_in_index(o, seq, most), most),
                           .end_first = hit->pages,
                           .tag = tag};
    ASSERT(q.end_first <= q.page_first || q.page_first == most);
    if (!o->tier->query(o->tier->arg, &q))
        return false;
    ASSERT(seq->fetch == 0 && seq->phase == SCHED_QUEUED);
    seq->fetch = tag;
    seq->fetch_queried_ns = ev->now_ns + half_ns;
    seq->fetch_queries = true;
    seq->fetch_pages = seq->fetch_left = seq->fetch_open = seq->fetch_next = seq->fetch_group = 0;
    seq->fetch_failed = false;
    seq->fetch_until_ns = seq->fetch_queried_ns;
    return true;
}

/* ---- releasing ---- */

/* References to windows' pages of the first `count` nodes. They stay in the pools until a page is taken. */
static void let_windows_go(const struct sched_opts *o, struct sched_seq *seq, uint32_t count)
{
    ASSERT(count <= seq->key_count && seq->first[0] == 0);
    for (uint32_t g = 1; g < o->group_count; g++)
        for (uint32_t i = count; i > seq->first[g]; i--) {
            uint32_t *page = &seq->pages[g][i - 1];
            if (*page != NONE)
                page_pool_unref(o->groups[g].pages, *page);
            *page = NONE;
        }
}

/* References to the index besides: `count` pages of the first group up to `node`, and the snapshot of
 * `pinned`. */
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

/* ---- one fetch ---- */

static void hold(const struct sched_opts *o, struct sched_seq *seq, uint32_t group, uint32_t i, uint32_t page)
{
    ASSERT(page != NONE || group > 0 || i >= seq->page_count);
    seq->pages[group][i] = page;
    if (page != NONE)
        page_pool_ref(o->groups[group].pages, page);
}

/* References what the index has of the prefix; the other entries become NONE. */
static void hold_index(const struct sched_opts *o, struct sched_seq *seq, uint32_t in_index)
{
    for (uint32_t i = 0; i < seq->fetch_pages; i++) {
        uint32_t node = i < in_index ? prefix_index_node(o->prefix, &seq->keys[i]) : NONE;
        ASSERT((node != NONE) == (i < in_index));
        seq->node = node != NONE ? node : seq->node;
        for (uint32_t g = 0; g < o->group_count; g++)
            if (i >= seq->first[g])
                hold(o, seq, g, i, node == NONE ? NONE : prefix_index_page(o->prefix, node, g));
    }
    seq->page_count = in_index;
}

static uint32_t count_missing(const struct sched_opts *o, const struct sched_seq *seq)
{
    uint32_t count = o->states ? 1 : 0;
    for (uint32_t g = 0; g < o->group_count; g++)
        for (uint32_t i = seq->first[g]; i < seq->fetch_pages; i++)
            count += seq->pages[g][i] == NONE;
    ASSERT(count >= seq->fetch_pages - seq->page_count);
    return count;
}

void seq_fetch_begin(const struct sched_opts *o, struct sched_seq *seq, const struct seq_fetch_wish *wish,
                     uint64_t tag)
{
    uint32_t count = seq->page_count, node = seq->node, pinned = seq->pinned;
    ASSERT(seq->fetch_tries < TRIES_MAX);
    ASSERT(wish->in_index <= wish->pages && wish->pages <= seq->key_count);
    let_windows_go(o, seq, count);
    seq->state = NONE;
    seq->node = seq->pinned = NONE;
    seq->fetch = tag;
    seq->fetch_pages = wish->pages;
    seq->fetch_group = 0;
    seq->fetch_next = wish->in_index;
    seq->fetch_open = 0;
    seq->fetch_until_ns = wish->until_ns;
    seq->fetch_failed = false;
    seq->fetch_tries++;
    for (uint32_t g = 0; g < o->group_count; g++)
        seq->first[g] = page_group_first(&o->groups[g], wish->pages * PAGE_TOKENS);
    /* Pages of the first group are held twice for a moment, so none goes. */
    hold_index(o, seq, wish->in_index);
    let_go(o, seq, count, node, pinned);
    seq->fetch_left = count_missing(o, seq);
    seq_fetch_ask(o, seq);
}

/* Sets fetch_group and fetch_next to the next read: the pages of each group that the index lacked, then the
 * snapshot at the prefix's end. False: all reads were requested. */
static bool next_read(const struct sched_opts *o, struct sched_seq *seq)
{
    while (seq->fetch_group < o->group_count) {
        const uint32_t *table = seq->pages[seq->fetch_group];
        while (seq->fetch_next < seq->fetch_pages && table[seq->fetch_next] != NONE)
            seq->fetch_next++;
        if (seq->fetch_next < seq->fetch_pages)
            return true;
        bool more = ++seq->fetch_group < o->group_count;
        seq->fetch_next = more ? seq->first[seq->fetch_group] : seq->fetch_pages;
    }
    return o->states && seq->fetch_next == seq->fetch_pages;
}

void seq_fetch_ask(const struct sched_opts *o, struct sched_seq *seq)
{
    while (!seq->fetch_queries && !seq->fetch_failed && next_read(o, seq)) {
        bool page = seq->fetch_group < o->group_count;
        const struct prefix_key *key = &seq->keys[page ? seq->fetch_next : seq->fetch_pages - 1];
        enum tier_kind kind = page ? tier_kind_of(seq->fetch_group) : TIER_SNAPSHOT;
        int r = o->tier->read(o->tier->arg, key, kind, seq->fetch, seq->fetch_next);
        if (r == -EAGAIN)
            return;
        seq->fetch_failed = r < 0;
        seq->fetch_next += r == 0;
        seq->fetch_open += r == 0;
    }
    ASSERT(seq->fetch_open <= seq->fetch_left);
}

/* Pages of the groups [from, to) that have come for one node join it. Returns the node. */
static uint32_t join_node(const struct sched_opts *o, struct sched_seq *seq, uint32_t at, uint32_t from,
                          uint32_t to)
{
    uint32_t pages[PAGE_GROUPS_MAX];
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        pages[g] = g >= from && g < to && at >= seq->first[g] ? seq->pages[g][at] : NONE;
    uint32_t node = prefix_index_add(o->prefix, seq->tenant_id, seq->node, &seq->keys[at],
                                     seq_cache_announced(seq, at), pages);
    for (uint32_t g = from; g < to; g++) {
        if (pages[g] == NONE)
            continue;
        seq->pages[g][at] = pages[g];
        prefix_index_stored(o->prefix, node, tier_kind_of(g));
    }
    ASSERT(node != NONE);
    return node;
}

static void join_snapshot(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->page_count == seq->fetch_pages && seq->pinned == NONE);
    if (prefix_index_snapshot(o->prefix, seq->node, seq->state))
        prefix_index_stored(o->prefix, seq->node, TIER_SNAPSHOT);
    else
        block_pool_give(o->states, seq->state);
    seq->state = NONE;
    seq->pinned = seq->node;
    prefix_index_pin(o->prefix, seq->node);
    ASSERT(seq->pinned != NONE);
}

/* Pages that are next join the index. After the last one the snapshot does. */
static void join_index(const struct sched_opts *o, struct sched_seq *seq)
{
    for (; seq->page_count < seq->fetch_pages && seq->pages[0][seq->page_count] != NONE; seq->page_count++)
        seq->node = join_node(o, seq, seq->page_count, 0, o->group_count);
    if (seq->page_count == seq->fetch_pages && seq->state != NONE)
        join_snapshot(o, seq);
    ASSERT(seq->page_count <= seq->fetch_pages);
}

static bool take_page(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a)
{
    uint32_t group = tier_group_of(a->kind), *page = &seq->pages[group][a->index];
    ASSERT(group < o->group_count && a->index >= seq->first[group]);
    ASSERT(a->index < seq->fetch_pages && *page == NONE);
    if (page_pool_take(o->groups[group].pages, page) < 0) {
        *page = NONE;
        return false;
    }
    o->arrived(o->arrived_arg, a, *page);
    if (a->index < seq->page_count)
        join_node(o, seq, a->index, group, group + 1);
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
    bool page = a->kind != TIER_SNAPSHOT;
    prefix_index_blame(o->prefix, PREFIX_LOSS_PAGES, seq->tenant_id);
    ASSERT(seq->fetch_open > 0 && seq->fetch_left > 0);
    seq->fetch_open--;
    if (a->status < 0 || seq->fetch_failed || !(page ? take_page(o, seq, a) : take_snapshot(o, seq, a))) {
        seq->fetch_failed = true;
        return 0;
    }
    seq->fetch_left--;
    seq->fetch_pinned += a->pinned && a->kind == TIER_PAGE;
    join_index(o, seq);
    return page ? o->groups[tier_group_of(a->kind)].page_bytes : o->state_bytes;
}

static bool is_whole(const struct sched_opts *o, const struct sched_seq *seq)
{
    ASSERT(seq->fetch_left > 0 || seq->page_count == seq->fetch_pages);
    ASSERT(seq->fetch_left > 0 || !o->states || seq->pinned != NONE);
    return seq->fetch_left == 0;
}

bool seq_fetch_is_over(const struct sched_opts *o, const struct sched_seq *seq, uint64_t now_ns)
{
    ASSERT(seq->page_count <= seq->fetch_pages);
    if (seq->fetch_queries)
        return now_ns >= seq->fetch_until_ns || !o->tier->queries(o->tier->arg, seq->fetch);
    return seq->fetch_failed || is_whole(o, seq) || now_ns >= seq->fetch_until_ns;
}

/* Pages that have come before those ahead of them. */
static void free_waiting(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->fetch_open == 0 || seq->fetch_left > 0);
    for (uint32_t g = 0; g < o->group_count; g++)
        for (uint32_t i = seq->fetch_pages; i > MAX_OF(seq->page_count, seq->first[g]); i--)
            if (seq->pages[g][i - 1] != NONE)
                page_pool_unref(o->groups[g].pages, seq->pages[g][i - 1]);
}

void seq_fetch_end(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq->page_count <= seq->fetch_pages);
    if (seq->fetch_queries) {
        ASSERT(seq->fetch_open == 0 && seq->fetch_pages == 0);
        o->tier->cancel(o->tier->arg, seq->fetch);
        seq->fetch_queries = false;
        seq->fetch = 0;
        return;
    }
    bool whole = is_whole(o, seq);
    if (seq->fetch_open > 0)
        o->tier->cancel(o->tier->arg, seq->fetch);
    /* Another search is worth it only after an entry was missing, not after a fetch that took too long. */
    if (!seq->fetch_failed)
        seq->fetch_tries = TRIES_MAX;
    if (whole || (!o->states && o->group_count == 1))
        seq->fetch_to = seq->page_count * PAGE_TOKENS;
    if (whole)
        prefix_index_ends_here(o->prefix, seq->node);
    free_waiting(o, seq);
    if (seq->state != NONE)
        block_pool_give(o->states, seq->state);
    seq->state = NONE;
    seq->fetch = seq->fetch_open = seq->fetch_left = seq->fetch_pages = seq->fetch_next = 0;
}

void seq_fetch_drop(const struct sched_opts *o, struct sched_seq *seq)
{
    ASSERT(seq_fetch_holds(seq));
    uint32_t count = seq->page_count, node = seq->node, pinned = seq->pinned;
    if (seq->phase == SCHED_FETCHING)
        seq_fetch_end(o, seq);
    let_windows_go(o, seq, count);
    memset(seq->first, 0, sizeof(seq->first));
    seq->page_count = 0;
    seq->node = seq->pinned = NONE;
    seq->fetch_tries = TRIES_MAX;
    seq->fetch_to = seq->fetch_pinned = 0;
    let_go(o, seq, count, node, pinned);
}

int seq_fetch_turn_into_place(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit)
{
    /* The sequence's table of the first group names the same pages before and after, as far as both reach: a
     * page that is referenced stays its node's. Windows may begin elsewhere: their references go first, and
     * the hit takes them again before any page is taken. */
    uint32_t count = seq->page_count, node = seq->node, pinned = seq->pinned;
    let_windows_go(o, seq, count);
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
    if ((o->states || o->group_count > 1) && pages < other->fetch_pages)
        return false;
    return pages > hit->pages;
}
