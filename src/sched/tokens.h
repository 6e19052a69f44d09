/* tokens.h - third pass of a plan: tokens for the sequences that have a place and a page.
 *
 * One for each decoding sequence and its drafts; the rest of the budget to prompts, in chunks of whole pages:
 * first those of the tenant that was served less, of one tenant those that waited too long, then the one with
 * the fewest tokens left. Parts of the scheduler; same thread, same rules. */
#ifndef PLATEAU_SCHED_TOKENS_H
#define PLATEAU_SCHED_TOKENS_H

#include "sched/sched_state.h"

/* `budget`: tokens of the step, decoding sequences included. */
void tokens_plan(struct sched *s, uint32_t budget);

/* Does a's prompt come before b's? */
bool tokens_prompt_before(const struct sched_seq *a, const struct sched_seq *b, uint64_t now_ns);

#endif
