/* mtp.h - the MTP head: one more full-attention layer, which drafts the token after the next one (contract
 * 2.8).
 *
 * Its K and V are in the pages, after those from the full layers. The pair for token j is at token j,
 * rotated as for token j - 1. So a page depends on no token outside its key. A sequence's entry 0, which has
 * no hidden state, is zeros that no query sees. Every forward pass writes the pairs of its tokens, so cached
 * pages are complete. A draft token's pair is overwritten when its token is computed. */
#ifndef PLATEAU_MODEL_MTP_H
#define PLATEAU_MODEL_MTP_H

#include "model/blocks/eagle.h"
#include "model/blocks/layer.h"
#include "model/draft_vocab.h"

#include "memory/dev.h"

#include <stdbool.h>
#include <stdint.h>

struct checkpoint;
struct model_files;
struct config;
struct model_draft;
struct model_step;
struct step;

struct mtp {
    struct mtp_weights weights;
    const struct eagle *eagle; /* the head is an EAGLE-3 checkpoint's; NULL: the model's own */
    struct eagle_weights eagle_weights;
    /* The model's own, but of an EAGLE-3 head its. */
    const struct weight *embedding;
    const struct projection *head;
    dev_ptr final_norm;
    struct draft_vocab *draft_vocab;
    /* Rows that this step copies into the draft vocabulary. */
    struct {
        uint32_t id, place;
    } rows[DRAFT_VOCAB_NEW_MAX];
    uint32_t row_count;
};

/* Whether a checkpoint has tensors of a head. */
bool mtp_exists(const struct checkpoint *c, const struct config *config);
/* Turns `b`, which binds the text model and has been measured, into a binder of the head's tensors: under
 * either prefix, inside or beside the checkpoint. 0, or -ENOENT: there is no head; -EINVAL. */
int mtp_bind_init(struct binder *b, struct model_files *files);
/* All of the head or a failure: nothing stands in for a tensor that is missing. */
int mtp_bind(struct binder *b, struct mtp_weights *ret);

/* Before a step begins: its tokens are in use. mtp_copy_rows() follows in the step. */
void mtp_see(struct mtp *m, const struct model_step *in);
void mtp_copy_rows(struct step *s, const struct mtp *m);

/* Runs after the last layer: adds the pending residual and leaves in the residual stream each token's hidden
 * state after the final norm. Returns the pairs' product, which the caller runs. After it mtp_put() writes
 * the pairs to the pages, and to the states the hidden states that the next step starts from. */
struct op_product mtp_pair(struct step *s, const struct mtp *m);
void mtp_put(struct step *s, const struct mtp *m);
/* Do model_draft_begin() and model_draft_end() of model.h. */
void mtp_draft_begin(struct step *s, const struct mtp *m, const struct model_draft *d);
int mtp_draft_end(struct step *s, const struct mtp *m);

#endif
