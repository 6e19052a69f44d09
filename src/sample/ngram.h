/* ngram.h - guesses a sequence's next tokens from its own past: what followed where its end was met before.
 *
 * Finds the longest of the latest few places that end as the sequence does now, two tokens at least, and
 * copies what stands behind it: no more tokens than were alike, so that a chance meeting costs little. A
 * guess that reaches the sequence's end goes on with itself, which is what a repetition does. Each token
 * costs one insertion and a guess a bounded number of comparisons, whatever the tokens are. Lives in a row's
 * arena; one thread at a time. */
#ifndef PLATEAU_SAMPLE_NGRAM_H
#define PLATEAU_SAMPLE_NGRAM_H

#include "base/arena.h"

struct ngram;

/* Bytes of arena for sequences of so many tokens: at most 12 per token, and 512. */
size_t ngram_bytes(uint32_t tokens_max);
/* Knows no token. 0 or -ENOMEM. */
int ngram_create(struct arena *a, uint32_t tokens_max, struct ngram **ret);
/* The sequence has `count` tokens now; those it had before are as they were. */
void ngram_see(struct ngram *n, const uint32_t *tokens, uint32_t count);
/* Guesses behind the tokens that it has seen; returns how many there are, at most `wanted`. */
uint32_t ngram_guess(const struct ngram *n, const uint32_t *tokens, uint32_t wanted, uint32_t *ret);

#endif
