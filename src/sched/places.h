/* places.h - the moves of a sequence between the queue, a place in the batch, and the end.
 *
 * Each keeps the scheduler's lists and counts together; nothing else changes them. A sequence that is parked
 * has lost its place and keeps its pages and state; a sequence that is preempted has lost both. Parts of the
 * scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_PLACES_H
#define PLATEAU_SCHED_PLACES_H

#include "sched/sched_state.h"

/* Arrival and priority. */
void places_rank(struct sched *s, struct sched_seq *seq, uint64_t arrival_ns);

/* Into the queue, in its order. The sequence is in no list. */
void places_enqueue(struct sched *s, struct sched_seq *seq, enum sched_phase phase);
/* Out of the queue, or of those that fetch. */
void places_leave_queue(struct sched *s, struct sched_seq *seq);
/* A sequence that waits and may run again: behind all others of its tenant that wait, as if it came now. */
void places_enqueue_last(struct sched *s, struct sched_seq *seq);

/* Into a place: the sequence is in no list. */
void places_enter(struct sched *s, struct sched_seq *seq, enum sched_phase phase);
/* Out of its place or the queue; gives back its pages and state. */
void places_leave(struct sched *s, struct sched_seq *seq);
/* Gives up its place and keeps pages and state. */
void places_park(struct sched *s, struct sched_seq *seq);
/* Gives up pages and state, and its place if it has one. */
void places_preempt(struct sched *s, struct sched_seq *seq);
/* The scheduler ends it. */
void places_end(struct sched *s, struct sched_seq *seq, enum sched_end why);

/* The newest sequence with a place that is paused, or the newest parked one (paused ones first); not `but`.
 * NULL: none. */
struct sched_seq *places_newest_paused(struct sched *s, const struct sched_seq *but);
struct sched_seq *places_newest_parked(struct sched *s, const struct sched_seq *but, bool paused_only);
/* The oldest sequence with a place that is not paused: it always goes on, so something always finishes. NULL:
 * none. */
const struct sched_seq *places_oldest(const struct sched *s);
/* The newest sequence with a place of a tenant, but never the oldest of all, now or when the plan began.
 * NULL: none. */
struct sched_seq *places_newest_of(struct sched *s, const struct share *tenant);

#endif
