/* draft_vocab.h - the tokens among which the MTP head drafts: the recently used ones.
 *
 * A draft token needs another product with the output matrix, of which only the best row counts. Nearly
 * every token of a conversation has occurred in its text or is common. So a copy of those rows, a small part
 * of the matrix, gives nearly all accepted drafts. A missing token makes the draft fail once, and then has
 * its row. Tokens count as used when they go through the model. Their places are a clock: a token used since
 * the last pass of the hand stays. At first they are the lowest ids, because a byte-pair vocabulary is
 * numbered by frequency. Bound: `size` rows of the matrix in the head's weight memory; 5 bytes
 * for each and 2 for each token of the vocabulary in the model's tables. The engine's thread only. */
#ifndef PLATEAU_MODEL_DRAFT_VOCAB_H
#define PLATEAU_MODEL_DRAFT_VOCAB_H

#include "compute/weight.h"

#include <stdint.h>

struct arena;
struct binder;

struct draft_vocab {
    uint32_t size, vocab; /* size 0: no list, drafts use the whole vocabulary */
    uint32_t hand;
    struct weight rows; /* [size][hidden], in the output matrix's form */
    uint32_t *ids;      /* [size]: whose row it is */
    uint16_t *places;   /* [vocab]: 1 + place, 0: not among them */
    uint8_t *used;      /* [size] */
};

/* Rows that one step may copy: the bound on the cost of a long prompt. */
#define DRAFT_VOCAB_NEW_MAX 64

/* The size for `vocab` tokens and a requested size (model_parts.draft_vocab); 0: all. */
uint32_t draft_vocab_size(uint32_t wanted, uint32_t vocab);
/* Bytes of its tables. */
uint64_t draft_vocab_tables_bytes(uint32_t size, uint32_t vocab);
/* Binds like the binder's other parts: measures first, then takes memory of the binder and of `tables`, and
 * fills it. `head`: the output matrix, not read while measuring. 0 or -ENOMEM. */
int draft_vocab_bind(struct binder *b, const struct weight *head, struct arena *tables,
                     struct draft_vocab *ret);
/* The list as it begins: the lowest ids. `v` has its sizes and tables; `rows` are the first of the output
 * matrix already. */
void draft_vocab_fill(struct draft_vocab *v);
/* A token is in use. The place whose row must become its own, or NONE: its row is there. */
uint32_t draft_vocab_see(struct draft_vocab *v, uint32_t id);

#endif
