/* secure.h - first pass of a plan: each sequence with a place gets a page for its next token, oldest first.
 *
 * Where there is no page, others make room in this order:
 *   1. prefixes that waiting sequences have fetched;
 *   2. parked sequences, paused ones first;
 *   3. paused sequences;
 *   4. the newest sequence of a tenant with more places for its weight;
 *   5. the newest sequence, if it is newer than the one that needs the page.
 *
 * The oldest sequence that is not paused can take from all others, so it never waits and is never preempted:
 * something always finishes. A sequence for which nothing makes room keeps its pages and waits for the next
 * step. Internal to the scheduler, with the rules of sched.h; engine thread only. */
#ifndef PLATEAU_SCHED_SECURE_H
#define PLATEAU_SCHED_SECURE_H

#include <stdbool.h>

struct sched;
struct sched_seq;

void secure_running(struct sched *s);

/* Takes one more page of each group for the sequence. False: all are referenced, or memory was refused. */
bool secure_page(struct sched *s, struct sched_seq *seq);
/* Notes a refusal of memory, of a page's or a state's. */
void secure_note_refusal(struct sched *s, bool page);
/* Memory was refused in this plan, and other holders are releasing some: no sequence is preempted or ended
 * for lack of it. */
bool secure_waits_for_help(const struct sched *s);

#endif
