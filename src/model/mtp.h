/* mtp.h - the MTP head: one more full-attention layer, which drafts the token after the next one (contract
 * 2.8).
 *
 * Its K and V lie in the pages after those of the full layers, the pair for token j at token j, rotated as
 * for token j - 1. So a page depends on no token outside its key, and a sequence's entry 0, which has no
 * hidden state, is zeros that no query sees. Every forward pass writes them for its tokens, so cached
 * pages are complete. A draft's pair is overwritten when its token is computed. */
#ifndef PLATEAU_MODEL_MTP_H
#define PLATEAU_MODEL_MTP_H

#include "model/draft_vocab.h"
#include "model/step.h"

struct mtp {
    struct mtp_weights weights;
    /* The model's own. */
    const struct matrix *embedding;
    const struct projection *head;
    const float *final_norm;
    struct draft_vocab *draft_vocab;
};

/* Makes `b`, which binds the text model and has been measured, one of the head's tensors, under either
 * prefix, inside or beside the checkpoint in `dir`. 0, or -ENOENT: there is no head; -EINVAL. */
int mtp_bind_init(struct binder *b, const char *dir);
/* All of the head or a failure: nothing stands in for a tensor that is missing. */
int mtp_bind(struct binder *b, struct mtp_weights *ret);

/* Behind the last layer: adds the pending residual, leaves in h each token's hidden state behind the final
 * norm, and begins a list of products with the pairs'; returns its length. When it has been run, mtp_put()
 * leaves the pairs in the pages, and in the states the hidden states that a next step begins with. */
uint32_t mtp_pair(struct step *s, const struct mtp *m);
void mtp_put(struct step *s, const struct mtp *m);
/* Fills in the drafts. 0 or -ECANCELED. */
int mtp_draft(struct step *s, const struct mtp *m, const struct model_draft *d);

#endif
