/* matching.h - the time of grammars: charged to tenants, bounded per step.
 *
 * A sequence with a grammar takes processor time beside the forward pass: for the mask of its next token and
 * for the step of its parser. Most grammars take some microseconds; ambiguous ones take milliseconds. All
 * sequences of a step wait for the slowest. Two rules bound the wait:
 *
 *  - A tenant owes the time that its grammars took, MATCHING_OWED_MAX_US at most. It pays with the time that
 *    passes, in proportion to its weight among the tenants that can run. While it owes and another tenant can
 *    run, its sequences with grammars are held back.
 *  - The sequences of a step have match_ns_max together, by what each took last. The one that waits longest
 *    for a token goes first, and one goes in any case. The others are held back.
 *
 * A sequence that is held back keeps its place, its pages and its state. Where only such sequences could run,
 * none is held back. Engine thread only. */
#ifndef PLATEAU_SCHED_MATCHING_H
#define PLATEAU_SCHED_MATCHING_H

#include "sched/sched.h"
#include "sched/sched_state.h"

#include <stdbool.h>
#include <stdint.h>

#define MATCHING_OWED_MAX_US 250000

/* Charges what the sequence took since the last plan. The sequence has a share. */
void matching_charge(struct sched_seq *seq);

/* Charges, lets tenants pay for `since_ns`, and holds sequences back. Called once per plan, after
 * admission. */
void matching_plan(struct sched *s, uint64_t since_ns, uint64_t match_ns_max);

/* True: the sequence gets no token in this plan. */
static inline bool matching_holds(const struct sched *s, const struct sched_seq *seq)
{
    return s->holds && seq->held == s->plan_number;
}

#endif
