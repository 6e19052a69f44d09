/* sched_check.c - the invariants that hold between any two calls.
 *
 * Each reference to a page is a sequence's or a lease's: a pool's sum is the sum over the sequences' tables
 * and the leases. When the sums differ, a second pass over all tables finds the wrong page. It needs no
 * memory and may take its time. */
#include "sched/seq_fetch.h"
#include "sched/sched_state.h"

#include "base/check.h"
#include "base/none.h"
#include "base/slice.h"
#include "base/walk.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"

#include <stdio.h>

#define SEQ SCHED_SEQ

static void name_seq(const struct sched *s, const struct sched_seq *seq, char ret[SCHED_NAME_BYTES])
{
    if (s->opts.name)
        s->opts.name(seq, ret);
    else
        snprintf(ret, SCHED_NAME_BYTES, "%llu", (ull)seq->order);
}

#define ASSERT_SEQ(s, seq, c, format, ...)                                                                   \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0)) {                                                                     \
            char seq_name[SCHED_NAME_BYTES];                                                                 \
            name_seq(s, seq, seq_name);                                                                      \
            check_fail_of(__FILE__, __LINE__, #c, "sequence %s: " format, seq_name, __VA_ARGS__);            \
        }                                                                                                    \
    } while (0)

/* ---- one sequence's pages ---- */

static uint32_t refs_in_table(const struct sched *s, const struct sched_seq *seq, uint32_t group, uint32_t i)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    uint32_t page = seq->pages[group][i];
    ASSERT_SEQ(s, seq, page < page_pool_pages_max(pool), "entry %u of its table of group %u is page %u", i,
               group, page);
    return page_pool_refs(pool, page);
}

/* Returns the number of pages that the sequence references. */
static uint32_t check_table(const struct sched *s, const struct sched_seq *seq, uint32_t group)
{
    const uint32_t *table = seq->pages[group];
    uint32_t first = seq->first[group];
    ASSERT_SEQ(s, seq, first == page_group_first(&s->opts.groups[group], seq->done),
               "its table of group %u begins at entry %u, with %u tokens done", group, first, seq->done);
    for (uint32_t i = 0; i < first; i++)
        ASSERT_SEQ(s, seq, group == 0 || table[i] == NONE,
                   "entry %u of its table of group %u is page %u, outside the sliding window", i, group,
                   table[i]);
    for (uint32_t i = first; i < seq->page_count; i++) {
        uint32_t refs = refs_in_table(s, seq, group, i);
        ASSERT_SEQ(s, seq, i < seq->node_pages ? refs >= 1 : refs == 1,
                   "entry %u of its table of group %u is page %u, which has %u references", i, group,
                   table[i], refs);
    }
    return seq->page_count - first;
}

/* Each whole page of the sequence that is in the index is the page that the index has under its key. */
static void check_nodes(const struct sched *s, const struct sched_seq *seq)
{
    for (uint32_t i = 0; s->opts.prefix && i < seq->node_pages; i++) {
        uint32_t node = prefix_index_node_of(s->opts.prefix, seq->pages[0][i]);
        ASSERT_SEQ(s, seq, node != NONE && node == prefix_index_node(s->opts.prefix, &seq->keys[i]),
                   "entry %u of its table is page %u, which is another prefix's", i, seq->pages[0][i]);
    }
}

/* Returns the number of states of a sequence that has pages of its own. */
static uint32_t check_holder(const struct sched *s, const struct sched_seq *seq, uint64_t *pages)
{
    ASSERT_SEQ(s, seq, seq->tokens <= seq->tokens_limit && seq->done < seq->tokens,
               "%u tokens, %u done, limit %u", seq->tokens, seq->done, seq->tokens_limit);
    ASSERT_SEQ(s, seq,
               seq->page_count <= sched_pages(seq->tokens) && seq->page_count >= sched_pages(seq->done),
               "%u pages for %u tokens, %u done", seq->page_count, seq->tokens, seq->done);
    ASSERT_SEQ(s, seq, seq->node_pages <= seq->page_count && seq->node_pages <= seq->key_count,
               "%u pages, %u of them in the index", seq->page_count, seq->node_pages);
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        pages[g] += check_table(s, seq, g);
    check_nodes(s, seq);
    ASSERT_SEQ(s, seq, s->opts.states ? block_pool_is_taken(s->opts.states, seq->state) : seq->state == NONE,
               "its state %u is not taken", seq->state);
    return (seq->state != NONE) + (seq->boundary != NONE);
}

static uint32_t check_parked(const struct sched *s, uint64_t *pages)
{
    uint32_t states = 0, count = 0;
    for (const struct list *it = s->queue.next; it != &s->queue; it = it->next) {
        if (SEQ(it)->phase != SCHED_PARKED)
            continue;
        ASSERT_SEQ(s, SEQ(it), SEQ(it)->goes_on == SCHED_PREFILLING || SEQ(it)->goes_on == SCHED_DECODING,
                   "parked from phase %d", (int)SEQ(it)->goes_on);
        states += check_holder(s, SEQ(it), pages);
        count++;
    }
    ASSERT_OF(count == s->parked_count, "%u sequences are parked, %u counted", count, s->parked_count);
    return states;
}

/* Returns the pages of one table of such a sequence. Of its windows there are gaps where a read has not
 * arrived or has failed. */
static uint32_t check_fetched_table(const struct sched *s, const struct sched_seq *seq, uint32_t group)
{
    uint32_t count = 0;
    for (uint32_t i = seq->first[group]; i < MAX_OF(seq->page_count, seq->fetch_pages); i++) {
        if ((group > 0 || i >= seq->page_count) && seq->pages[group][i] == NONE)
            continue;
        uint32_t refs = refs_in_table(s, seq, group, i);
        ASSERT_SEQ(s, seq, i < seq->page_count ? refs >= 1 : refs == 1,
                   "entry %u of its table of group %u is page %u, fetched, which has %u references", i, group,
                   seq->pages[group][i], refs);
        count++;
    }
    return count;
}

/* Adds up the pages, and the states, of sequences that have a fetched prefix or fetch one. */
static void count_fetched(const struct sched *s, const struct list *list, uint64_t *pages, uint32_t *states)
{
    for (const struct list *it = list->next; it != list; it = it->next) {
        const struct sched_seq *seq = SEQ(it);
        if (!seq_fetch_holds(seq))
            continue;
        for (uint32_t g = 0; g < s->opts.group_count; g++)
            pages[g] += check_fetched_table(s, seq, g);
        *states += seq->state != NONE;
    }
}

/* ---- all references ---- */

/* Entries of the sequence's table that reference the page. */
static uint32_t count_in_seq(const struct sched_seq *seq, uint32_t group, uint32_t page)
{
    bool fetches = seq_fetch_holds(seq);
    uint32_t count = 0, end = fetches ? MAX_OF(seq->page_count, seq->fetch_pages) : seq->page_count;
    for (uint32_t i = seq->first[group]; i < end; i++)
        count += seq->pages[group][i] == page;
    return count;
}

static uint32_t count_in_tables(const struct sched *s, uint32_t group, uint32_t page)
{
    const struct list *lists[] = {&s->running, &s->queue, &s->fetching};
    uint32_t count = 0;
    for (size_t l = 0; l < COUNT_OF(lists); l++)
        for (const struct list *it = lists[l]->next; it != lists[l]; it = it->next)
            count += count_in_seq(SEQ(it), group, page);
    return count;
}

static void name_wrong_page(const struct sched *s, uint32_t group)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    for (uint32_t page = 0; page < page_pool_pages_max(pool); page++) {
        uint32_t refs = page_pool_refs(pool, page), held = count_in_tables(s, group, page);
        held += page_pool_leases(pool, page) + page_pool_holds(pool, page);
        ASSERT_OF(refs == held, "page %u of group %u: %u references, %u of sequences, leases and agents",
                  page, group, refs, held);
    }
}

/* `held`: entries of all sequences' tables. */
static bool walk_references(const struct sched *s, uint32_t group, uint64_t held, struct walk *w)
{
    const struct page_pool *pool = s->opts.groups[group].pages;
    uint64_t refs = 0;
    struct page_pool_numbers n;
    page_pool_numbers(pool, &n);
    held += n.lease_refs + n.hold_refs;
    uint32_t end = walk_end(w, page_pool_end(pool), page_pool_pages_max(pool));
    for (uint32_t i = 0; i < end && walk_on(w); i++)
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
        const struct sched_seq *seq = SEQ(it);
        count++;
        paused += seq->paused;
        ASSERT_SEQ(s, seq, sched_has_place(seq), "has a place in phase %d", (int)seq->phase);
        ASSERT_SEQ(s, seq, it->next == &s->running || sched_goes_before(seq, SEQ(it->next)),
                   "rank %lld is out of order", (long long)seq->rank);
        ASSERT_SEQ(s, seq, seq->phase == SCHED_PREFILLING || seq->done == seq->tokens - 1,
                   "decodes with %u of %u tokens done", seq->done, seq->tokens);
        states += check_holder(s, seq, pages);
    }
    ASSERT_OF(count == s->running_count && count <= s->opts.seqs_max, "%u sequences run, %u counted", count,
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
    count_fetched(s, &s->queue, pages, &states_held);
    count_fetched(s, &s->fetching, pages, &states_held);
    for (uint32_t g = 0; g < s->opts.group_count; g++)
        if (!walk_references(s, g, pages[g], w))
            return false;
    if (s->opts.states) {
        struct pool_numbers states;
        block_pool_numbers(s->opts.states, &states);
        ASSERT_OF(states.taken == states_held + cached.snapshots,
                  "%u recurrent states are taken; sequences have %u, snapshots %u", states.taken, states_held,
                  cached.snapshots);
    }
    return true;
}

static void check_holds_nothing(const struct sched *s, const struct sched_seq *seq)
{
    ASSERT_SEQ(s, seq, seq->state == NONE && seq->done == 0, "waits with %u tokens done, state %u", seq->done,
               seq->state);
    ASSERT_SEQ(s, seq, seq->page_count == 0 || seq->phase == SCHED_QUEUED, "waits with %u pages",
               seq->page_count);
}

/* Sequences and places of each tenant, and of all. */
static void check_shares(const struct sched *s)
{
    uint32_t running = 0, seqs = 0;
    shares_check(&s->shares);
    for (const struct list *it = s->shares.present.next; it != &s->shares.present; it = it->next) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        running += x->running;
        seqs += x->seqs;
    }
    ASSERT_OF(running == s->running_count, "tenants have %u places, %u are taken", running, s->running_count);
    ASSERT_OF(seqs == s->running_count + s->waiting_count, "tenants have %u sequences, there are %u", seqs,
              s->running_count + s->waiting_count);
}

static uint32_t seqs_of(const struct list *list, const struct share *x)
{
    uint32_t count = 0;
    for (const struct list *it = list->next; it != list; it = it->next)
        count += SEQ(it)->share == x;
    return count;
}

static void check_share_seqs(const struct sched *s)
{
    for (const struct list *it = s->shares.present.next; it != &s->shares.present; it = it->next) {
        const struct share *x = LIST_ENTRY(it, const struct share, link);
        uint32_t running = seqs_of(&s->running, x);
        uint32_t seqs = running + seqs_of(&s->queue, x) + seqs_of(&s->fetching, x);
        ASSERT_OF(running == x->running && seqs == x->seqs,
                  "tenant %llx: %u sequences, %u with a place; counted are %u and %u", (ull)x->id, seqs,
                  running, x->seqs, x->running);
    }
}

static uint32_t check_fetching(const struct sched *s)
{
    uint32_t count = 0;
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next, count++) {
        const struct sched_seq *seq = SEQ(it);
        ASSERT_SEQ(s, seq,
                   seq->phase == SCHED_FETCHING && seq->done == 0 && seq->page_count <= seq->fetch_pages,
                   "fetches %u pages in phase %d", seq->fetch_pages, (int)seq->phase);
        ASSERT_SEQ(s, seq, seq->fetch_next <= seq->fetch_pages + 1 && seq->fetch_open <= seq->fetch_left,
                   "%u reads are open, %u of %u pages are left", seq->fetch_open, seq->fetch_left,
                   seq->fetch_pages);
    }
    ASSERT(count == s->fetching_count && count <= SCHED_FETCHING_MAX);
    return count;
}

/* Returns how many of them are paused. */
static uint32_t check_queue(const struct sched *s, uint32_t *waiting)
{
    uint32_t paused = 0;
    for (const struct list *it = s->queue.next; it != &s->queue; it = it->next) {
        const struct sched_seq *seq = SEQ(it);
        ASSERT_SEQ(s, seq, sched_waits(seq) && seq->phase != SCHED_FETCHING, "queued in phase %d",
                   (int)seq->phase);
        ASSERT_SEQ(s, seq, it->next == &s->queue || sched_queued_before(seq, SEQ(it->next)),
                   "rank %lld is out of order in the queue", (long long)seq->rank);
        if (seq->phase != SCHED_PARKED)
            check_holds_nothing(s, seq);
        paused += seq->paused;
        (*waiting)++;
    }
    return paused;
}

static void check_waiting(const struct sched *s)
{
    uint32_t waiting = 0, paused = check_queue(s, &waiting);
    waiting += check_fetching(s);
    for (const struct list *it = s->fetching.next; it != &s->fetching; it = it->next)
        paused += SEQ(it)->paused;
    ASSERT_OF(paused == s->waiting_paused, "%u sequences that wait are paused, %u counted", paused,
              s->waiting_paused);
    ASSERT_OF(waiting == s->waiting_count, "%u sequences wait, %u counted", waiting, s->waiting_count);
    ASSERT(s->running_count + waiting <= s->opts.seqs_max + s->opts.queue_max);
    for (const struct list *it = s->ended.next; it != &s->ended; it = it->next) {
        ASSERT_SEQ(s, SEQ(it), SEQ(it)->phase == SCHED_ENDED, "ended in phase %d", (int)SEQ(it)->phase);
        check_holds_nothing(s, SEQ(it));
    }
}

static void check_plan(const struct sched *s)
{
    ASSERT(s->seq_count <= s->opts.seqs_max);
    for (uint32_t i = 0; s->planned && i < s->seq_count; i++) {
        const struct sched_step_seq *r = &s->seqs[i];
        ASSERT_SEQ(s, r->seq, !r->seq->paused && r->from == r->seq->done && r->count > r->drafts,
                   "planned from %u, %u tokens, %u of them drafts", r->from, r->count, r->drafts);
        ASSERT_SEQ(s, r->seq, r->count - r->drafts <= r->seq->tokens - r->seq->done,
                   "planned %u tokens of %u", r->count - r->drafts, r->seq->tokens - r->seq->done);
        ASSERT_SEQ(s, r->seq, r->drafts == 0 || r->from + r->count < r->seq->tokens_limit,
                   "planned up to %u, limit %u", r->from + r->count, r->seq->tokens_limit);
        ASSERT_SEQ(s, r->seq, r->from + r->count <= r->seq->page_count * PAGE_TOKENS,
                   "planned up to %u with %u pages", r->from + r->count, r->seq->page_count);
    }
}

bool sched_walk(const struct sched *s, struct walk *w)
{
    if (!walk_held(s, w))
        return false;
    check_shares(s);
    check_share_seqs(s);
    check_waiting(s);
    check_plan(s);
    return true;
}

void sched_check(const struct sched *s)
{
    sched_walk(s, &(struct walk){0});
}
