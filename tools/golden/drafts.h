/* drafts.h - an MTP head against a golden case: what it says at known positions, and decoding with its
 * drafts. */
#ifndef PLATEAU_TOOLS_DRAFTS_H
#define PLATEAU_TOOLS_DRAFTS_H

#include "golden/compare.h"

#define DRAFTS_MAX 3 /* ahead: the model's drafts_max */

struct drafts {
    struct compare compare; /* errors of the head's logits; tokens of both */
    uint64_t hash;          /* of all drafts at known positions and their logits */
    /* Decoding: drafts made and right, by how far ahead. */
    uint32_t made[DRAFTS_MAX], right[DRAFTS_MAX];
};

/* Alone, the known tokens before the first entry of the lists in chunks of `chunk`. Then the greedy tokens
 * once more, `ahead` drafts a step: they must be the same. 0, -ENOMEM, or an error of the model. */
int drafts_run(struct model *m, uint32_t tokens_max, const struct golden_case *c, uint32_t chunk,
               uint32_t ahead, struct drafts *ret);

#endif
