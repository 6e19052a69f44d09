/* drafts.h - an MTP head against a golden case: what it says at known positions, and decoding with its
 * drafts. */
#ifndef PLATEAU_TOOLS_DRAFTS_H
#define PLATEAU_TOOLS_DRAFTS_H

#include "golden/compare.h"

#define DRAFTS_MAX     3 /* ahead: the model's drafts_max */
#define DRAFT_ROWS_MAX 8 /* cases at once: the model's seqs_max is at least that */

struct drafts {
    struct compare compare; /* errors of the head's logits; tokens of both */
    /* Decoding: drafts made and right, by how far ahead. */
    uint32_t made[DRAFTS_MAX], right[DRAFTS_MAX];
};

struct drafts_opts {
    struct model *model;
    uint32_t tokens_max; /* limit that the model was loaded with */
    uint32_t chunk;      /* tokens in a chunk of prompts */
    uint32_t ahead;      /* drafts of a step */
};

/* Runs the known tokens of each case before the first entry of the lists, in chunks and alone; then the other
 * known tokens, one of each case in a step. Then the greedy tokens once more with drafts: they must be the
 * same. 0, -ENOMEM, or an error of the model. */
int drafts_run(const struct drafts_opts *opts, const struct golden_case *const *cases, uint32_t count,
               struct drafts *ret /* [count] */);

#endif
