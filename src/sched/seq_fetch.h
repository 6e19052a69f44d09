/* seq_fetch.h - a sequence whose prefix is being read from the SSD tier, below the pools.
 *
 * The sequence has no place yet and blocks no other. Arrivals are put into pages that it references. Those
 * pages join the prefix index one by one from the front, as if they had been computed. When all have come,
 * or no more will come, the sequence waits for a place like others. It keeps its pages until it gets a
 * place, or until a running sequence needs the memory. Of each window the pages before the prefix's end are
 * read as well, and with recurrent layers the snapshot there. Only all of it together is of use.
 *
 * Reading has to take less than half of the time of computing, by the times of both as measured. The fetch
 * is given up when it has taken as long as computing would. After a query, both together have half of that
 * time, because another machine may be at fault. A failure makes the prefix shorter, never the tokens
 * wrong.
 *
 * While a sequence fetches or waits with a fetched prefix, page_count and node are the pages of the first
 * group that have joined the index, `state` is a snapshot that came before its pages, and `pinned` is the
 * node whose snapshot it references. `first` is where the windows before the prefix's end begin. Their
 * entries are NONE where a page has not come. */
#ifndef PLATEAU_SCHED_SEQ_FETCH_H
#define PLATEAU_SCHED_SEQ_FETCH_H

#include "sched/sched.h"

#include <stdint.h>

struct prefix_hit;

struct seq_fetch_wish {
    uint32_t pages;    /* pages of the whole prefix */
    uint32_t in_index; /* pages that the index has; the others are read */
    uint64_t until_ns; /* when the fetch is given up */
};
/* True: the tier may be searched for this sequence. That is allowed a few times: entries that one search
 * finds and cannot read, the next one does not find. seq_fetch_end_search() ends it. */
bool seq_fetch_may_search(const struct sched_seq *seq);
void seq_fetch_end_search(struct sched_seq *seq);
/* The longest prefix that index and tier have together. False: none that is longer than `hit` and worth
 * reading. */
bool seq_fetch_find(const struct sched_opts *o, const struct sched_seq *seq, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct seq_fetch_wish *ret);
/* Asks a tier that does not know its entries itself which of them it has, once for each sequence, if the
 * prompt beyond `hit` takes long enough to compute. False: no query began. */
bool seq_fetch_query(const struct sched_opts *o, struct sched_seq *seq, const struct prefix_hit *hit,
                     const struct sched_events *ev, uint64_t tag);
/* Begins the fetch: references the pages in the index, requests the others under this tag. Pages of an
 * earlier fetch that failed are released. */
void seq_fetch_begin(const struct sched_opts *o, struct sched_seq *seq, const struct seq_fetch_wish *wish,
                     uint64_t tag);
/* Requests further reads, as far as the tier has room. */
void seq_fetch_ask(const struct sched_opts *o, struct sched_seq *seq);
/* Takes an arrival in. Returns its bytes; 0: it failed, and so does the fetch. */
size_t seq_fetch_arrive(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a);
/* True: all has come, a read failed, or it has taken too long. */
bool seq_fetch_is_over(const struct sched_opts *o, const struct sched_seq *seq, uint64_t now_ns);
/* Ends the fetch: cancels its reads; pages that have joined the index stay referenced. */
void seq_fetch_end(const struct sched_opts *o, struct sched_seq *seq);
/* Releases all pages and the snapshot of the sequence, during the fetch or after it. */
void seq_fetch_drop(const struct sched_opts *o, struct sched_seq *seq);
/* True: the sequence fetches, or waits with a fetched prefix. */
static inline bool seq_fetch_holds(const struct sched_seq *seq)
{
    return seq->phase == SCHED_FETCHING || (seq->phase == SCHED_QUEUED && seq->page_count > 0);
}
/* As `seq_cache_begin()`, but for a sequence that may have a fetched prefix: that is released when the hit
 * has been taken. */
int seq_fetch_turn_into_place(const struct sched_opts *o, struct sched_seq *seq,
                              const struct prefix_hit *hit);

/* True: `other`, which fetches, will soon have a longer prefix of `seq` than `hit`. */
bool seq_fetch_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other);

#endif
