/* guesses.h - an MTP head against a golden case: what it says at known positions, and decoding with its
 * guesses. */
#ifndef PLATEAU_TOOLS_GUESSES_H
#define PLATEAU_TOOLS_GUESSES_H

#include "golden/compare.h"

#define GUESSES_MAX 3 /* ahead: the model's drafts_max */

struct guesses {
    struct compare compare; /* errors of the head's logits; tokens of both */
    uint64_t hash;          /* of all guesses at known positions and their logits */
    /* Decoding: guesses made and right, by how far ahead. */
    uint32_t made[GUESSES_MAX], right[GUESSES_MAX];
};

/* Alone, the known tokens before the first entry of the lists in chunks of `chunk`. Then the greedy tokens
 * once more, `ahead` guesses a step: they must be the same. 0, -ENOMEM, or what the model said. */
int guesses_run(struct model *m, uint32_t tokens_max, const struct golden_case *c, uint32_t chunk,
                uint32_t ahead, struct guesses *ret);

#endif
