/* ngram.h - n-gram drafter: proposes a sequence's next tokens from earlier occurrences of its last tokens.
 *
 * Finds the longest match among the latest few places that end as the sequence does now, two tokens at
 * least, and copies the tokens after it: no more than the match is long, so that a chance match costs
 * little. A draft that reaches the sequence's end continues with itself, as a repetition does. Each token
 * costs one insertion and a draft a bounded number of comparisons, whatever the tokens are. Lives in a
 * sequence's arena; one thread at a time. */
#ifndef PLATEAU_SPEC_NGRAM_H
#define PLATEAU_SPEC_NGRAM_H

#include "base/arena.h"

struct ngram;

/* Bytes of arena for sequences of up to `tokens_max` tokens: at most 12 per token, and 512. */
size_t ngram_bytes(uint32_t tokens_max);
/* Knows no token. 0 or -ENOMEM. */
int ngram_create(struct arena *a, uint32_t tokens_max, struct ngram **ret);
/* The sequence now has `count` tokens; the earlier ones are unchanged. */
void ngram_see(struct ngram *n, const uint32_t *tokens, uint32_t count);
/* Drafts tokens after the known ones; returns how many, at most `wanted`. */
uint32_t ngram_draft(const struct ngram *n, const uint32_t *tokens, uint32_t wanted, uint32_t *ret);

#endif
