/* seq_fetch.h - a sequence whose prefix is being read from the tier below the pools.
 *
 * It has no place yet and blocks nobody: what arrives is put into pages that it references, and those join
 * the index one by one from the beginning on, as if they had been computed. When all is there, or nothing
 * more will come, the sequence waits for a place like others and holds what it has until it gets one, or
 * until a sequence that runs needs the memory. With recurrent layers the snapshot at the prefix's end comes
 * with it, and only both together are of use. Reading has to take less than half of what computing would, by
 * what both took so far; it is given up when it has taken as long. What fails makes the prefix shorter, never
 * the tokens wrong. While a sequence fetches or waits with what came: page_count and node are the pages that
 * have joined the index, `state` a snapshot that has come before its pages, `pinned` the node whose snapshot
 * it holds. Models with one group only. Parts of the scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_SEQ_FETCH_H
#define PLATEAU_SCHED_SEQ_FETCH_H

#include "sched/sched.h"

struct seq_fetch_wish {
    uint32_t pages;    /* of the whole prefix */
    uint32_t in_index; /* of them; the others are read */
    uint64_t until_ns; /* when it is given up */
};
/* May the tier be asked for this sequence? A few times at most: what one look finds and cannot read, the next
 * one does not find. */
bool seq_fetch_may_look(const struct sched_seq *seq);
void seq_fetch_look_no_more(struct sched_seq *seq);
/* The longest prefix that index and tier have together. False: none that is longer than `hit` and worth
 * reading. */
bool seq_fetch_find(const struct sched_opts *o, const struct sched_seq *seq, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct seq_fetch_wish *ret);
/* References what the index has, asks for the rest under this tag. */
void seq_fetch_begin(const struct sched_opts *o, struct sched_seq *seq, const struct seq_fetch_wish *wish,
                     uint64_t tag);
/* Asks for more, as far as the tier has room. */
void seq_fetch_ask(const struct sched_opts *o, struct sched_seq *seq);
/* Takes an arrival in: returns its bytes. */
size_t seq_fetch_arrive(const struct sched_opts *o, struct sched_seq *seq, const struct tier_arrival *a);
/* All is there, nothing more will come, or it has taken too long. */
bool seq_fetch_is_over(const struct sched_opts *o, const struct sched_seq *seq, uint64_t now_ns);
/* Nothing more is wanted; what has joined the index stays referenced. */
void seq_fetch_end(const struct sched_opts *o, struct sched_seq *seq);
/* Gives up all it holds, fetching or behind that. */
void seq_fetch_drop(const struct sched_opts *o, struct sched_seq *seq);
/* Does it hold anything? */
static inline bool seq_fetch_holds(const struct sched_seq *seq)
{
    return seq->phase == SCHED_FETCHING || (seq->phase == SCHED_QUEUED && seq->page_count > 0);
}
/* As seq_cache_begin, for a sequence that may hold something: that goes when the hit has been taken. */
int seq_fetch_turn_into_place(const struct sched_opts *o, struct sched_seq *seq,
                              const struct prefix_hit *hit);

/* Will `other`, which fetches, soon have a longer prefix of `seq` than `hit`? */
bool seq_fetch_worth_waiting(const struct sched_opts *o, const struct sched_seq *seq,
                             const struct prefix_hit *hit, const struct sched_seq *other);

#endif
