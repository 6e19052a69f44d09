/* secure.h - first pass of a plan: each sequence with a place gets a page for its next token, oldest first.
 *
 * Where there is no page, others make room in this order: prefixes that waiting sequences have fetched,
 * parked sequences (paused ones first), paused sequences, the newest sequence of a tenant with more places
 * for its weight, the newest sequence behind the one that asks. The oldest sequence that is not paused can
 * take from all others, so it never waits and is never preempted: something always finishes. A sequence for
 * which nothing makes room keeps its pages and waits for the next step. Parts of the scheduler; same thread,
 * same rules. */
#ifndef PLATEAU_SCHED_SECURE_H
#define PLATEAU_SCHED_SECURE_H

#include "sched/sched_state.h"

void secure_running(struct sched *s);

/* One more page for the sequence. False: there is none, or memory was refused. */
bool secure_page(struct sched *s, struct sched_seq *seq);
/* Memory was refused. True: others are about to give some back, so no sequence suffers for it in this
 * plan. */
bool secure_memory_requested(struct sched *s);
bool secure_waits_for_help(const struct sched *s);

#endif
