/* role.h - what a tensor of the text model is for.
 *
 * Blocks ask for tensors by role. Names differ between families and between kinds of checkpoints: a family
 * lists those that differ from llama's (tensor_name). '#' in a name is the expert's number. */
#ifndef PLATEAU_TENSOR_ROLE_H
#define PLATEAU_TENSOR_ROLE_H

#include <stdbool.h>
#include <stdint.h>

enum tensor_role {
    ROLE_NONE, /* ends a list */
    ROLE_EMBEDDING,
    ROLE_FINAL_NORM,
    ROLE_POSITIONS,
    ROLE_TOKEN_TYPES,
    ROLE_EMBEDDING_NORM,
    ROLE_SCORE_DENSE, /* a classifier's first layer, if it has two; it and its scores lie beside the text
                       * model */
    ROLE_SCORE,
    ROLE_HEAD, /* beside the text model: without its prefix */
    ROLE_LAYER_INPUT_TABLE,
    ROLE_LAYER_INPUT_MODEL,
    ROLE_LAYER_INPUT_NORM,
    /* Tensors of a layer. */
    ROLE_MIXER_NORM,       /* in front of the mixer */
    ROLE_MIXER_NORM_AFTER, /* norm of the mixer's result */
    ROLE_MLP_NORM,
    ROLE_MLP_NORM_AFTER,
    ROLE_LAYER_SCALE,
    /* Inputs per layer. */
    ROLE_LAYER_INPUT_GATE,
    ROLE_LAYER_INPUT_OUT,
    ROLE_LAYER_INPUT_NORM_AFTER,
    /* Attention. */
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_O,
    ROLE_QKV, /* q | k | v in one tensor */
    ROLE_ATTENTION_GATE,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_SINKS,
    /* Latent attention. */
    ROLE_LATENT_Q_A,
    ROLE_LATENT_Q_NORM,
    ROLE_LATENT_Q_B,
    ROLE_LATENT_KV_A,
    ROLE_LATENT_KV_NORM,
    ROLE_LATENT_KV_B,
    ROLE_LATENT_K, /* its halves as stacks of heads */
    ROLE_LATENT_V,
    /* Delta net. */
    ROLE_DELTA_QKV,
    ROLE_DELTA_Z,
    ROLE_DELTA_QKVZ, /* q | k | v | z of each key head in turn */
    ROLE_DELTA_BA,   /* b | a likewise */
    ROLE_DELTA_B,
    ROLE_DELTA_A,
    ROLE_DELTA_CONV,
    ROLE_DELTA_DECAY,
    ROLE_DELTA_DT_BIAS,
    ROLE_DELTA_NORM,
    ROLE_DELTA_OUT,
    /* Kimi delta attention: with ROLE_Q, ROLE_K, ROLE_V and those of delta nets. */
    ROLE_KDA_CONV_Q,
    ROLE_KDA_CONV_K,
    ROLE_KDA_CONV_V,
    ROLE_KDA_DECAY,     /* decays of all channels from the input */
    ROLE_KDA_DECAY_LOW, /* decays by a low rank, and back from it */
    ROLE_KDA_DECAY_HIGH,
    ROLE_KDA_GATE, /* gates of the result, in the same three ways */
    ROLE_KDA_GATE_LOW,
    ROLE_KDA_GATE_HIGH,
    /* Mamba-2. */
    ROLE_SSM_IN, /* z | x | B | C | dt */
    ROLE_SSM_CONV,
    ROLE_SSM_CONV_BIAS,
    ROLE_SSM_DECAY,
    ROLE_SSM_DT_BIAS,
    ROLE_SSM_SKIP,
    ROLE_SSM_NORM,
    ROLE_SSM_OUT,
    /* Short convolution. */
    ROLE_SHORT_CONV_IN, /* b | c | u */
    ROLE_SHORT_CONV,
    ROLE_SHORT_CONV_BIAS,
    ROLE_SHORT_CONV_OUT,
    /* Dense MLP. */
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_GATE_UP,     /* gate | up in one tensor */
    ROLE_XIELU_ABOVE, /* numbers of xIELU */
    ROLE_XIELU_BELOW,
    ROLE_XIELU_BETA,
    ROLE_XIELU_EPS,
    /* Experts: one by one, or stacks of all. */
    ROLE_ROUTER,
    ROLE_ROUTER_CORRECTION,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_EXPERTS_GATE_UP, /* gate | up of each */
    ROLE_EXPERTS_GATE,
    ROLE_EXPERTS_UP,
    ROLE_EXPERTS_DOWN,
    ROLE_EXPERTS_DOWN_FUSED, /* beside ROLE_EXPERTS_GATE_UP */
    ROLE_EXPERTS_LATENT_IN,  /* in front of the experts, which are narrower than the residual stream */
    ROLE_EXPERTS_LATENT_OUT, /* behind their sum */
    ROLE_SHARED_SCALE,       /* the gate of the shared expert's result */
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_GATE_UP, /* both, gate | up */
    ROLE_SHARED_DOWN,
    /* Experts beside the MLP. */
    ROLE_ROUTER_NORM,
    ROLE_EXPERT_SCALE,
    ROLE_EXPERTS_NORM,
    ROLE_EXPERTS_NORM_AFTER,
    ROLE_MLP_RESULT_NORM,
    /* Tensors of the MTP head, beside its layer. */
    ROLE_MTP_PAIR,
    ROLE_MTP_NORM_EMBEDDING,
    ROLE_MTP_NORM_HIDDEN,
    ROLE_MTP_NORM,
    TENSOR_ROLES
};

struct tensor_name {
    enum tensor_role role;
    const char *name;
};

/* The name that `own` (ends with ROLE_NONE; may be NULL) has for it, else llama's. Writers may have several
 * names for one role: the one in `turn`, from 0; NULL after the last one. */
const char *role_name(const struct tensor_name *own, enum tensor_role role, uint32_t turn);

/* A matrix whose products are in f32 in every compute mode: routers and gates. They are a small part of the
 * work, and the choice of an expert or the decay of a state depends on them. */
bool role_is_exact(enum tensor_role role);

#endif
