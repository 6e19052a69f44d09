/* admit.h - second pass of a plan: which waiting rows get a place.
 *
 * Of each tenant the first row that can run is asked for, and of those the row of the tenant with the fewest
 * places for its weight, then of the one that was served least. Where no place is free, a paused row is
 * parked, else the newest row of a tenant that has to yield one (share_yields). A parked row keeps its pages,
 * stands first in its tenant's queue, and is preempted before any row with a place.
 *
 * A row is admitted when there are pages for all its tokens, for what prompts that are being read were
 * promised, and one more per running row. Rows that are parked and paused make room for any row; a tenant
 * without a place may also take pages from parked rows and from tenants with several places. A row that lacks
 * pages keeps back no other tenant's rows for BLOCKED_NS, and all of them after that, so that many small
 * requests do not starve a large one. Parts of the scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_ADMIT_H
#define PLATEAU_SCHED_ADMIT_H

#include "cache/prefix_index.h"
#include "sched/sched_state.h"

void admit_queue(struct sched *s);

/* Pages of the group that the row will still take to read its prompt; and all rows with a place together. */
uint64_t admit_promised_to(const struct sched *s, const struct sched_row *row, uint32_t group);
uint64_t admit_promised(const struct sched *s, uint32_t group);
/* Is another row reading what this one would have to read too? */
bool admit_should_wait(const struct sched *s, const struct sched_row *row, const struct prefix_hit *hit);

#endif
