/* layer_inputs.h - what each layer gets of a token beside the residual stream (contract 10.7).
 *
 * Constant once bound; zeros where the model has none. Engine thread only. */
#ifndef PLATEAU_MODEL_LAYER_INPUTS_H
#define PLATEAU_MODEL_LAYER_INPUTS_H

#include "model/load/binder.h"

#include "compute/weight.h"
#include "memory/dev.h"

struct step;

struct layer_inputs {
    struct weight table;          /* [vocab, layers * width] */
    struct projection projection; /* [layers * width, hidden] */
    dev_ptr norm;                 /* [width] */
};

int layer_inputs_bind(struct binder *b, struct layer_inputs *ret);
/* Inputs of all layers go to ARRAY_LAYER_INPUTS: of the embeddings in the residual stream. */
void layer_inputs_compute(struct step *s, const struct layer_inputs *w);

#endif
