/* mlp.h - the dense SwiGLU block: down(silu(gate x) * (up x)). */
#ifndef PLATEAU_MODEL_MLP_H
#define PLATEAU_MODEL_MLP_H

#include "model/binder.h"
#include "model/step.h"

int mlp_bind(struct binder *b, uint32_t layer, struct mlp_weights *ret);
/* Reads the normed tokens; leaves the result as the pending residual. */
void mlp_forward(struct step *s, const struct layer *l);

#endif
