/* places.h - the moves of a sequence between the queue, a place in the batch, and the end.
 *
 * Each move keeps the scheduler's lists and counts together. Outside this file they change in three places
 * only. begin_fetch() in fetching.c puts a sequence that has left the queue into s->fetching. sched_remove()
 * and sched_take_ended() take a sequence out of s->ended. sched_pause() and sched_resume() count paused
 * sequences. A sequence that is parked has lost its place and keeps its pages and state; a sequence that is
 * preempted has lost both. Internal to the scheduler, with the rules of sched.h; engine thread only. */
#ifndef PLATEAU_SCHED_PLACES_H
#define PLATEAU_SCHED_PLACES_H

#include "sched/sched.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets rank and order from arrival and priority. */
void places_rank(struct sched *s, struct sched_seq *seq, uint64_t arrival_ns);

/* Puts the sequence into the queue, in its order. The sequence is in no list. */
void places_enqueue(struct sched *s, struct sched_seq *seq, enum sched_phase phase);
/* Takes the sequence out of the queue, or out of s->fetching. */
void places_leave_queue(struct sched *s, struct sched_seq *seq);
/* Puts a waiting sequence that may run again after all others of its tenant that wait, as if it came now.
 * The sequence is in no list. */
void places_enqueue_last(struct sched *s, struct sched_seq *seq);

/* Gives the sequence a place. The sequence is in no list. */
void places_enter(struct sched *s, struct sched_seq *seq, enum sched_phase phase);
/* Takes the sequence out of its place or the queue, and releases its pages and state. */
void places_leave(struct sched *s, struct sched_seq *seq);
/* Takes the sequence's place; it keeps pages and state and is queued. */
void places_park(struct sched *s, struct sched_seq *seq);
/* Takes the sequence's pages and state, and its place if it has one; it is queued. */
void places_preempt(struct sched *s, struct sched_seq *seq);
/* Ends the sequence: sched_take_ended() returns it. */
void places_end(struct sched *s, struct sched_seq *seq, enum sched_end why);

/* Releases the fetched pages of one sequence without a place, which computes the tokens instead; `but` is
 * the last choice (NULL: no preference). False: none has any. */
bool places_drop_fetched(struct sched *s, struct sched_seq *but);

/* Returns the newest paused sequence with a place, or the newest parked one (paused ones first); not `but`.
 * NULL: none. */
struct sched_seq *places_newest_paused(struct sched *s, const struct sched_seq *but);
struct sched_seq *places_newest_parked(struct sched *s, const struct sched_seq *but, bool paused_only);
/* Returns the oldest sequence with a place that is not paused: it is never preempted, so something always
 * finishes. NULL: none. */
const struct sched_seq *places_oldest(const struct sched *s);
/* Returns the newest sequence of a tenant with a place, but never the oldest of all, now or when the plan
 * began. NULL: none. */
struct sched_seq *places_newest_of(struct sched *s, const struct share *tenant);

#endif
