/* row_fetch.h - a row whose prefix is being read from the tier below the pools.
 *
 * It has no place yet and blocks nobody: what arrives is put into pages that it references, and those join
 * the index one by one from the beginning on, as if they had been computed. When all is there, or nothing
 * more will come, the row waits for a place like others and holds what it has until it gets one, or until a
 * row that runs needs the memory. With recurrent layers the snapshot at the prefix's end comes with it, and
 * only both together are of use. Reading has to take less than half of what computing would, by what both
 * took so far; it is given up when it has taken as long. What fails makes the prefix shorter, never the
 * tokens wrong. While a row fetches or waits with what came: page_count and node are the pages that have
 * joined the index, `state` a snapshot that has come before its pages, `pinned` the node whose snapshot it
 * holds. Models with one group only. Parts of the scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_ROW_FETCH_H
#define PLATEAU_SCHED_ROW_FETCH_H

#include "sched/sched.h"

struct row_fetch_wish {
    uint32_t pages;    /* of the whole prefix */
    uint32_t in_index; /* of them; the others are read */
    uint64_t until_ns; /* when it is given up */
};
/* May the tier be asked for this row? A few times at most: what one look finds and cannot read, the next one
 * does not find. */
bool row_fetch_may_look(const struct sched_row *row);
void row_fetch_look_no_more(struct sched_row *row);
/* The longest prefix that index and tier have together. False: none that is longer than `hit` and worth
 * reading. */
bool row_fetch_find(const struct sched_opts *o, const struct sched_row *row, const struct prefix_hit *hit,
                    const struct sched_events *ev, struct row_fetch_wish *ret);
/* References what the index has, asks for the rest under this tag. */
void row_fetch_begin(const struct sched_opts *o, struct sched_row *row, const struct row_fetch_wish *wish,
                     uint64_t tag);
/* Asks for more, as far as the tier has room. */
void row_fetch_ask(const struct sched_opts *o, struct sched_row *row);
/* Takes an arrival in: returns its bytes. */
size_t row_fetch_arrive(const struct sched_opts *o, struct sched_row *row, const struct tier_arrival *a);
/* All is there, nothing more will come, or it has taken too long. */
bool row_fetch_is_over(const struct sched_opts *o, const struct sched_row *row, uint64_t now_ns);
/* Nothing more is wanted; what has joined the index stays referenced. */
void row_fetch_end(const struct sched_opts *o, struct sched_row *row);
/* Gives up all it holds, fetching or behind that. */
void row_fetch_drop(const struct sched_opts *o, struct sched_row *row);
/* Does it hold anything? */
static inline bool row_fetch_holds(const struct sched_row *row)
{
    return row->phase == SCHED_FETCHING || (row->phase == SCHED_QUEUED && row->page_count > 0);
}
/* As row_cache_begin, for a row that may hold something: that goes when the hit has been taken. */
int row_fetch_turn_into_place(const struct sched_opts *o, struct sched_row *row,
                              const struct prefix_hit *hit);

/* Will `other`, which fetches, soon have a longer prefix of `row` than `hit`? */
bool row_fetch_worth_waiting(const struct sched_opts *o, const struct sched_row *row,
                             const struct prefix_hit *hit, const struct sched_row *other);

#endif
