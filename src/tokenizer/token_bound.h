/* token_bound.h - the fewest tokens that a text can have, without tokenizing it.
 *
 * A token covers some bytes of the text, and is never longer than the longest token with one of them. So each
 * byte counts for at least 1/n of a token, where n is the length of the longest token with that byte. The sum
 * over all bytes is a lower bound. One pass over the text, about a nanosecond a byte. Filled once, then read
 * from any thread. */
#ifndef PLATEAU_TOKENIZER_TOKEN_BOUND_H
#define PLATEAU_TOKENIZER_TOKEN_BOUND_H

#include "base/slice.h"
#include "base/wanted.h"

struct vocab;

struct token_bound {
    uint32_t parts[256]; /* fraction of a token that an ASCII byte counts for; TOKEN_BOUND_ONE is a token */
    uint32_t other;      /* fraction for bytes that the normaliser may change */
};
#define TOKEN_BOUND_ONE ((uint32_t)1 << 24)

struct token_bound_opts {
    bool normalised; /* NFC: text beyond ASCII may become up to four times shorter */
    bool unbounded;  /* text may have no token at all, or one token for any length: there is no bound */
    const struct vocab *texts; /* the tokens as written, which may be longer than what they decode to */
    const uint32_t *byte_ids;  /* [256]: texts lose the bytes with BPE_NONE; NULL: none */
    bool strips; /* some added token takes the adjacent white space, which then has no token of its own */
};

void token_bound_init(struct token_bound *b, const struct vocab *v, const struct token_bound_opts *opts);

/* 1: every encoding of the text has more than `tokens` tokens; 0: it may have fewer; or the result of `w`.
 * Returns early when the answer is certain. */
int token_bound_exceeds(const struct token_bound *b, struct slice text, size_t tokens,
                        const struct wanted *w);

/* Any text of more bytes exceeds `tokens`; SIZE_MAX: no such bound is known. */
size_t token_bound_bytes(const struct token_bound *b, size_t tokens);

#endif
