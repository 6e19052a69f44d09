/* blocks.h - what layers are made of. A block binds its tensors to weights; its forward reads the normed
 * tokens and leaves the result as the pending residual. */
#ifndef PLATEAU_MODEL_BLOCKS_H
#define PLATEAU_MODEL_BLOCKS_H

#include "model/binder.h"
#include "model/step.h"

/* ---- softmax attention over pages: full layers of all families ---- */

/* What a family's attention has. */
struct attention_form {
    bool gated;    /* q_proj holds query and gate of each head in turn */
    bool qk_norm;  /* over each head, before the rotation */
    bool kv_apart; /* k and v are also needed alone */
};

int attention_bind(struct binder *b, uint32_t layer, struct attention_form form,
                   struct attention_weights *ret);
void attention_forward(struct step *s, const struct layer *l);
/* Reads the normed tokens; writes only K and V to the pages: for a layer with kv_apart. */
void attention_put(struct step *s, const struct layer *l);

/* ---- the gated delta net: linear layers of the qwen3_5 family (contract: HF qwen3_5) ---- */

int delta_net_bind(struct binder *b, uint32_t layer, struct delta_weights *ret);
/* Each sequence's state goes from state_in to state_out. */
void delta_net_forward(struct step *s, const struct layer *l);

/* ---- the dense SwiGLU block: down(silu(gate x) * (up x)) ---- */

int mlp_bind(struct binder *b, uint32_t layer, struct mlp_weights *ret);
void mlp_forward(struct step *s, const struct layer *l);

/* ---- a mixture of experts with a shared expert: the qwen3_5_moe family's MLP ---- */

/* Experts fused (gate_up_proj [E, 2 Im, H]), stacked (switch_mlp) or one by one. */
int moe_bind(struct binder *b, uint32_t layer, struct moe_weights *ret);
void moe_forward(struct step *s, const struct layer *l);

#endif
