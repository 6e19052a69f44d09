/* grammar_vocab.h - the insides of a vocabulary, for the files of this folder. */
#ifndef PLATEAU_GRAMMAR_GRAMMAR_VOCAB_H
#define PLATEAU_GRAMMAR_GRAMMAR_VOCAB_H

#include "grammar/matcher.h"

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TOKEN_BYTES_MAX = 1023, /* longer tokens are in no mask */
    VOCAB_TOKENS_MAX = (1 << 21) - 1,
    VOCAB_SLICES = 2
};

/* A trie in the order of a walk: the children of a node follow it. */
struct trie_node {
    uint32_t size : 24; /* nodes of its subtree, itself among them */
    uint32_t byte : 8;
    uint32_t token : 21; /* VOCAB_TOKENS_MAX: none ends here */
    uint32_t same : 1;   /* further tokens have the same bytes */
    uint32_t depth : 10; /* 1: first byte */
};

struct trie {
    struct trie_node *nodes;
    uint32_t count;
};

/* Tokens of at most `chars` plain characters of strings, as a mask, and the trie of all others. */
struct vocab_slice {
    uint32_t chars, count; /* count: tokens */
    const uint32_t *bits;
    struct trie rest;
};

struct same_bytes {
    uint32_t token, other;
};

struct grammar_vocab {
    struct arena *arena;
    uint32_t size, words;
    uint32_t longest;        /* bytes of a token in the trie */
    const uint32_t *text_at; /* [size + 1] */
    const char *text;
    const uint32_t *ends;
    uint32_t end_count;
    struct trie all;
    struct vocab_slice slices[VOCAB_SLICES]; /* the larger one first */
    const struct same_bytes *same;           /* by token */
    uint32_t same_count;
};

static inline struct slice grammar_vocab_text(const struct grammar_vocab *v, uint32_t token)
{
    return (struct slice){v->text + v->text_at[token], v->text_at[token + 1] - v->text_at[token]};
}

static inline bool grammar_vocab_ends(const struct grammar_vocab *v, uint32_t token)
{
    for (uint32_t i = 0; i < v->end_count; i++)
        if (v->ends[i] == token)
            return true;
    return false;
}

/* Sets the bits of the node's token and of those with the same bytes. Returns how many they are. */
uint32_t grammar_vocab_set(const struct grammar_vocab *v, const struct trie_node *node, uint32_t *bits);

#endif
