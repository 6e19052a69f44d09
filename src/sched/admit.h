/* admit.h - second pass of a plan: which waiting sequences get a place.
 *
 * Each tenant offers its first sequence that can run. The tenant with the fewest places for its weight goes
 * first, and among equals the tenant that was served least. Where no place is free, a paused sequence is
 * parked; without one, the newest sequence of a tenant that has to yield a place (share_yields). A parked
 * sequence keeps its pages, stands first in its tenant's queue, and is preempted before any sequence with a
 * place.
 *
 * A sequence is admitted when there are pages for all its tokens, for the pages promised to prompts that are
 * being read, and one more per running sequence. Sequences that are parked and paused make room for any
 * sequence; a tenant without a place may also take pages from parked sequences and from tenants with several
 * places. A sequence that lacks pages holds back no other tenant's sequences for BLOCKED_NS, and all of them
 * after that, so that many small requests do not starve a large one. Internal to the scheduler, with the
 * rules of sched.h; engine thread only. */
#ifndef PLATEAU_SCHED_ADMIT_H
#define PLATEAU_SCHED_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

struct prefix_hit;
struct sched;
struct sched_seq;

void admit_queue(struct sched *s);

/* Pages of the group that all sequences with a place still need to read their prompts. */
uint64_t admit_promised(const struct sched *s, uint32_t group);
/* True: another sequence computes or fetches a longer prefix of this one than `hit`, so this one should
 * wait. */
bool admit_should_wait(const struct sched *s, const struct sched_seq *seq, const struct prefix_hit *hit);

#endif
