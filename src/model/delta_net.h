/* delta_net.h - the gated delta net: linear layers of the qwen3_5 family (contract: HF qwen3_5). */
#ifndef PLATEAU_MODEL_DELTA_NET_H
#define PLATEAU_MODEL_DELTA_NET_H

#include "model/binder.h"
#include "model/step.h"

int delta_net_bind(struct binder *b, uint32_t layer, struct delta_weights *ret);
/* Reads the normed tokens; leaves the result as the pending residual. Each sequence's state goes from
 * state_in to state_out. */
void delta_net_forward(struct step *s, const struct layer *l);

#endif
