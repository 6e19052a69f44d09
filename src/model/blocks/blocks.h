/* blocks.h - what layers are made of.
 *
 * A block binds its tensors to weights; its forward reads the normed tokens and leaves the result as the
 * pending residual. A layer has two: a mixer of tokens, and an MLP. */
#ifndef PLATEAU_MODEL_BLOCKS_H
#define PLATEAU_MODEL_BLOCKS_H

#include "model/blocks/step.h"
#include "model/config/config.h"

struct binder;
struct config_key;
struct layer;
struct moe_weights;

enum block_state {
    BLOCK_NO_STATE,
    BLOCK_KV,        /* keeps K and V in the pages */
    BLOCK_RECURRENT, /* keeps arrays in a state */
};

struct block {
    enum block_state state;
    /* Keys of config.json that it needs, unless the family declares them otherwise; NULL: none. */
    const struct config_key *keys;
    /* Numbers that follow from others; NULL: none. */
    void (*derive)(struct config *c);
    /* Whether those fit each other; NULL: whatever their bounds allow. */
    void (*check)(struct json_read *r, const struct config *c);
    /* Sets numbers of a layer that follow from those keys; NULL: none do. */
    void (*numbers)(const struct config *c, struct layer_config *l);
    /* Raises the widths of the step's arrays to what it uses in layer `l`. */
    void (*arrays)(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS]);
    /* BLOCK_RECURRENT: bytes of its arrays and of a pending token. */
    struct recurrent_layer (*recurrent_layer)(const struct compute_shape *s);
    int (*bind)(struct binder *b, uint32_t layer, struct layer *ret);
    /* The projections that read the normed tokens first; the second may be NULL. */
    void (*readers)(const struct layer *l, const struct projection *ret[OP_READERS_MAX]);
    void (*forward)(struct step *s, const struct layer *l);
    /* Writes only K and V of the normed tokens to the pages, in the layer of an MTP head. NULL: no head has
     * such a layer. */
    void (*put)(struct step *s, const struct layer *l);
};

extern const struct block block_attention;      /* softmax attention over pages (attention.c) */
extern const struct block block_latent;         /* multi-head latent attention, contract 10.3 (latent.c) */
extern const struct block block_delta_net;      /* the gated delta net, contract 2.7 (delta_net.c) */
extern const struct block block_kda;            /* Kimi delta attention, contract 10.9 (kda.c) */
extern const struct block block_mamba;          /* Mamba-2, contract 10.5 (mamba.c) */
extern const struct block block_short_conv;     /* the short convolution, contract 10.6 (short_conv.c) */
extern const struct block block_mlp;            /* down(silu(gate x) * (up x)) (mlp.c) */
extern const struct block block_mlp_plain;      /* down(f(up x)), without a gate (mlp.c) */
extern const struct block block_experts;        /* a mixture of experts with a shared expert (moe.c) */
extern const struct block block_layer_input;    /* a token's own input to each layer (layer_inputs.c) */
extern const struct block block_experts_beside; /* experts and an MLP, both normed, added (mlp_beside.c) */

/* All of them; ends with NULL (layer.c). */
extern const struct block *const blocks[];

/* The projection that reads the normed tokens before block_attention.put. */
const struct projection *attention_put_reader(const struct layer *l);

/* Returns the growth of queries with position / *every; 0 for ROPE_ABSENT. */
float attention_growth(const struct config *c, uint32_t rope, uint32_t *every);

/* Stacks of all experts. */
int moe_bind_experts(struct binder *b, uint32_t layer, struct moe_weights *ret);
/* Routes by the router's logits in `in`. */
void moe_route(struct step *s, const struct moe_weights *w, struct act in, struct act out);
/* The chosen experts' results of the normed tokens, in ARRAY_PAIR_OUT; and with a shared one its own, of
 * `mid`. */
void moe_compute(struct step *s, const struct moe_weights *w, struct act mid);

/* ---- layers (layer.c) ---- */

/* Binds layer `index` of the text model, or with ret->mtp of the MTP head. *ret has config and mtp alone. */
int layer_bind(struct binder *b, uint32_t index, struct layer *ret);
void layer_forward(struct step *s, const struct layer *l);
/* Its MLP alone, with the norms around it. */
void layer_forward_mlp(struct step *s, const struct layer *l);

/* The mixer that keeps this state; NULL: the layer has none. */
static inline const struct block *layer_block(const struct layer_config *l, enum block_state state)
{
    if (l->mixer->state == state)
        return l->mixer;
    return l->beside && l->beside->state == state ? l->beside : NULL;
}

/* Raises an array's width, and how much of it products read. */
static inline void array_raise(struct array_spec *p, uint32_t width, uint32_t read)
{
    p->width = width > p->width ? width : p->width;
    p->read = read > p->read ? read : p->read;
}

#endif
