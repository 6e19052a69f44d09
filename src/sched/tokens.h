/* tokens.h - third pass of a plan: tokens for the sequences that have a place and a page.
 *
 * Each decoding sequence gets one token and its draft tokens. Prompts get the rest of the budget in chunks
 * of whole pages (chunked prefill). The prompt of the tenant that was served less goes first. Within a
 * tenant, prompts that have waited too long go first, then the prompt with the fewest tokens left. Internal
 * to the scheduler, with the rules of sched.h; engine thread only. */
#ifndef PLATEAU_SCHED_TOKENS_H
#define PLATEAU_SCHED_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct sched;
struct sched_seq;

/* Adds the sequences and their tokens to the plan. `budget`: tokens of the step, decoding sequences
 * included. */
void tokens_plan(struct sched *s, uint32_t budget);

/* True: a's prompt goes before b's. */
bool tokens_prompt_before(const struct sched_seq *a, const struct sched_seq *b, uint64_t now_ns);

#endif
