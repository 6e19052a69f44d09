/* wordpiece.h - WordPiece: the longest token that starts a word, then the longest continuation, and so on.
 *
 * Filled while the tokenizer is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_WORDPIECE_H
#define PLATEAU_TOKENIZER_WORDPIECE_H

#include "tokenizer/token_trie.h"

#include <stdint.h>

struct bpe_ids;
struct slice;
struct wanted;

struct wordpiece {
    struct token_trie trie;
    uint32_t inner;   /* the node of the continuing prefix; TOKEN_TRIE_NONE: no token continues a word */
    uint32_t unknown; /* the token of a word without tokens, or with too many characters */
    uint32_t chars_max;
};

/* Appends the tokens of a word. 0, -E2BIG, or the result of `w`. */
int wordpiece_encode(const struct wordpiece *p, struct slice word, const struct wanted *w,
                     struct bpe_ids *out);

#endif
