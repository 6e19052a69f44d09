/* forward.h - the forward pass of one step, from ids to logits.
 *
 * It computes nothing itself: each line names an operation, its arrays and weights, and the backend computes.
 * Engine thread only. */
#ifndef PLATEAU_MODEL_FORWARD_H
#define PLATEAU_MODEL_FORWARD_H

#include "model/blocks/layer_inputs.h"

#include "compute/ops.h"
#include "compute/weight.h"

#include <stdbool.h>

struct layer;
struct model_step;
struct mtp;

/* Weights outside the layers. */
struct model_ends {
    struct weight embedding;
    struct weight positions, types; /* tables of an encoder */
    struct projection head;         /* zeros of an encoder */
    struct norm final_norm;         /* [hidden] */
    struct norm embedding_norm;     /* [hidden] ones: norm of the embedding; null: none */
    struct layer_inputs layer_inputs;
};

/* All that a forward pass reads. */
struct forward {
    const struct config *config;
    const struct layer *layers; /* [config->layers] */
    const struct model_ends *ends;
    const struct mtp *mtp; /* NULL: none */
};

/* Computes the step that step_begin() began. False: it was cancelled between two layers. */
bool forward_pass(struct step *s, const struct forward *f, const struct model_step *in);

#endif
