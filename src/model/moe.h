/* moe.h - a mixture of experts with a shared expert: the qwen3_5_moe family's MLP. */
#ifndef PLATEAU_MODEL_MOE_H
#define PLATEAU_MODEL_MOE_H

#include "model/binder.h"
#include "model/step.h"

/* Experts fused (gate_up_proj [E, 2 Im, H]), stacked (switch_mlp) or one by one. */
int moe_bind(struct binder *b, uint32_t layer, struct moe_weights *ret);
/* Reads the normed tokens; leaves the result as the pending residual. */
void moe_forward(struct step *s, const struct layer *l);

#endif
