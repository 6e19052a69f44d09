/* unigram.h - SentencePiece's Unigram model: the row of tokens with the highest sum of scores.
 *
 * Filled while the tokenizer is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_UNIGRAM_H
#define PLATEAU_TOKENIZER_UNIGRAM_H

#include "tokenizer/token_trie.h"

#include "base/hash.h"

struct bpe_ids;
struct wanted;

#define UNIGRAM_NONE UINT32_MAX

struct unigram {
    struct token_trie trie;
    const struct hash_map *by_text;
    double *scores; /* [ids] */
    double unknown_score;
    uint32_t unknown;    /* UNIGRAM_NONE: a text with an unknown character has no tokens: -EINVAL */
    uint32_t bytes[256]; /* byte fallback; UNIGRAM_NONE: no such token */
};

/* Appends the tokens of `piece`, which is valid UTF-8. Time: its length times the longest token. Takes 16
 * bytes of scratch for each byte. 0, -E2BIG, -ENOMEM, or the result of `w`. */
int unigram_encode(const struct unigram *u, struct arena *scratch, struct slice piece, const struct wanted *w,
                   struct bpe_ids *out);

#endif
