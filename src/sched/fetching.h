/* fetching.h - sequences that read their prefix from the tier below: which begin, what has come, who gives it
 * back.
 *
 * A sequence that fetches has no place and blocks no other sequence; seq_fetch.h has one sequence's part of
 * it. At most SCHED_FETCHING_MAX sequences fetch at once, of each tenant its share. Parts of the scheduler;
 * same thread, same rules. */
#ifndef PLATEAU_SCHED_FETCHING_H
#define PLATEAU_SCHED_FETCHING_H

#include "sched/sched_state.h"

/* Takes in what has come since the last plan. */
void fetching_go_on(struct sched *s);
/* The first sequences in the queue begin, whether there is a place for them yet or not. */
void fetching_begin(struct sched *s);
/* Takes from a sequence without a place what it has fetched, `but` last (NULL: from none in particular); it
 * computes that, then. False: none has anything. */
bool fetching_drop(struct sched *s, struct sched_seq *but);

#endif
