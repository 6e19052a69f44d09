/* eagle.h - the head of an EAGLE-3 checkpoint (contract 2.9): an MTP head that reads outputs of three layers.
 *
 * Its hidden state of a token is one product with those outputs. The pair for token j is at token j and
 * rotated as for token j - 1, see mtp.h. K and V lie in the pages, and pages or states have the hidden states
 * that drafts begin from. The layer reads the pair itself. Its output matrix has a part of the vocabulary. */
#ifndef PLATEAU_MODEL_EAGLE_H
#define PLATEAU_MODEL_EAGLE_H

#include "model/config/config.h"

#include "compute/ops.h"
#include "compute/weight.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct binder;
struct checkpoint;
struct model_files;
struct mtp;
struct mtp_weights;
struct step;

#define EAGLE_LAYERS 3

/* Constant once read; in the arena of the model's configuration. */
struct eagle {
    struct config config;          /* its layer's: a llama's */
    uint32_t layers[EAGLE_LAYERS]; /* layers whose outputs it reads, in the order of fc's columns */
    uint32_t tokens;               /* tokens of the model */
    uint32_t vocab;                /* rows of its output matrix */
    bool norm_first;               /* the residual stream begins with the normed hidden state */
};

struct eagle_weights {
    struct projection fuse;  /* [hidden, 3 * hidden] */
    struct weight embedding; /* the head's table; zeros: the model's is used */
    struct projection head;  /* [vocab, hidden] */
    uint32_t *ids;           /* [vocab]: the model's id of each row; NULL: its number */
};

/* eagle_bind.c. Reads the head's config.json, and makes its layer the one after the layers of `c`, which has
 * its backend, form and mode. `tables` keeps *ret. 0, -EINVAL, -ENOTSUP (what differs from a head of this
 * form), -ENOMEM. */
int eagle_read(struct arena *tables, struct model_files *files, struct config *c, struct eagle **ret,
               struct err *e);
/* Binds its tensors; `b` is a binder of its checkpoint and its config. 0, -EINVAL, -ENOTSUP. */
int eagle_bind(struct binder *b, const struct eagle *g, struct mtp_weights *weights,
               struct eagle_weights *ret);
/* Reads the ids of its rows. 0, -EINVAL, -ENOMEM, or what reading said. */
int eagle_read_ids(struct arena *tables, const struct checkpoint *c, const struct eagle *g, uint32_t **ret,
                   struct err *e);

/* After layer `index`: keeps its output, if the head reads it. */
void eagle_keep(struct step *s, const struct eagle *g, uint32_t index);
/* After the logits: the hidden states, their pairs, K and V. */
void eagle_put(struct step *s, const struct mtp *m);
/* A pass of a draft, as in mtp.c. */
void eagle_draft_pass(struct step *s, const struct mtp *m, bool first);

#endif
