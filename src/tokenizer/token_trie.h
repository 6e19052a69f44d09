/* token_trie.h - the tokens of a vocabulary by their bytes, for searches of all tokens that start at a place.
 *
 * Built once in an arena, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_TOKEN_TRIE_H
#define PLATEAU_TOKENIZER_TOKEN_TRIE_H

#include <stdint.h>

struct arena;
struct hash_map;
struct vocab;

#define TOKEN_TRIE_ROOT 0
#define TOKEN_TRIE_NONE UINT32_MAX

struct token_trie {
    uint32_t count;
    uint32_t *children; /* [count + 1]: the children of node n are from children[n] to children[n + 1] */
    uint32_t *tokens;   /* [count]: the token that ends here; TOKEN_TRIE_NONE */
    uint8_t *labels;    /* [count]: the byte that leads here, ascending among siblings */
};

/* The trie of all tokens of `v` that `in` has an entry for. Nine bytes for each node and four for
 * each token; twelve more for each node while it is built. 0 or -ENOMEM. */
int token_trie_init(struct token_trie *t, struct arena *a, const struct vocab *v, const struct hash_map *in);

/* The node that `byte` leads to; TOKEN_TRIE_NONE. */
uint32_t token_trie_step(const struct token_trie *t, uint32_t node, unsigned char byte);

#endif
