/* admit.h - second pass of a plan: which waiting sequences get a place.
 *
 * Of each tenant the first sequence that can run is asked for, and of those the sequence of the tenant with
 * the fewest places for its weight, then of the one that was served least. Where no place is free, a paused
 * sequence is parked, else the newest sequence of a tenant that has to yield one (share_yields). A parked
 * sequence keeps its pages, stands first in its tenant's queue, and is preempted before any sequence with a
 * place.
 *
 * A sequence is admitted when there are pages for all its tokens, for what prompts that are being read were
 * promised, and one more per running sequence. Sequences that are parked and paused make room for any
 * sequence; a tenant without a place may also take pages from parked sequences and from tenants with several
 * places. A sequence that lacks pages keeps back no other tenant's sequences for BLOCKED_NS, and all of them
 * after that, so that many small requests do not starve a large one. Parts of the scheduler; same thread,
 * same rules. */
#ifndef PLATEAU_SCHED_ADMIT_H
#define PLATEAU_SCHED_ADMIT_H

#include "cache/prefix_index.h"
#include "sched/sched_state.h"

void admit_queue(struct sched *s);

/* Pages of the group that the sequence will still take to read its prompt; and all sequences with a place
 * together. */
uint64_t admit_promised_to(const struct sched *s, const struct sched_seq *seq, uint32_t group);
uint64_t admit_promised(const struct sched *s, uint32_t group);
/* Is another sequence reading what this one would have to read too? */
bool admit_should_wait(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit);

#endif
