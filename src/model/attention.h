/* attention.h - softmax attention over pages: full layers of all families. */
#ifndef PLATEAU_MODEL_ATTENTION_H
#define PLATEAU_MODEL_ATTENTION_H

#include "model/binder.h"
#include "model/step.h"

/* What a family's attention has. */
struct attention_form {
    bool gated;    /* q_proj holds query and gate of each head in turn */
    bool qk_norm;  /* over each head, before the rotation */
    bool kv_apart; /* k and v are also needed alone */
};

int attention_bind(struct binder *b, uint32_t layer, struct attention_form form,
                   struct attention_weights *ret);
/* Reads the normed tokens; leaves the result as the pending residual. */
void attention_forward(struct step *s, const struct layer *l);
/* Reads the normed tokens; writes only K and V to the pages: for a layer with kv_apart. */
void attention_put(struct step *s, const struct layer *l);

#endif
