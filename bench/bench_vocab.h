/* bench_vocab.h - vocabularies for measurements of masks, and texts cut into their tokens. */
#ifndef PLATEAU_BENCH_BENCH_VOCAB_H
#define PLATEAU_BENCH_BENCH_VOCAB_H

#include "grammar/grammar_vocab.h"

/* Words with and without a space before them, capitals, digits, runs of spaces, punctuation with quotes,
 * code, parts of UTF-8 and characters of three bytes: 151,643 tokens together, and an end token. */
struct grammar_vocab *bench_vocab_made_up(void);
/* A file in tiktoken's form: each line a token in base64 and its id, from 0 on. The end token is added. */
struct grammar_vocab *bench_vocab_read(const char *path);
/* The longest token at `at` that the mask allows, or UINT32_MAX. */
uint32_t bench_vocab_longest(const struct grammar_vocab *v, struct slice text, size_t at,
                             const uint32_t *bits);

#endif
