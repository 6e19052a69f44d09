/* layer.h - one layer's weights, packed. Constant once bound; they are in the model's weight memory. */
#ifndef PLATEAU_MODEL_LAYER_H
#define PLATEAU_MODEL_LAYER_H

#include "model/config.h"

#include "compute/ops.h"

struct attention_weights {
    struct projection in; /* q (with gates: per head q, gate) | k | v */
    struct projection kv; /* k | v, the last parts of `in`: of an MTP head, which also needs keys alone */
    struct projection out;
    dev_ptr q_norm, k_norm; /* [head_dim]; null: none */
    float scale;            /* of scores */
    bool gated;
};

struct delta_weights {
    struct projection in; /* qkv | z | b | a */
    struct projection out;
    dev_ptr conv;    /* [taps][channels] */
    dev_ptr decay;   /* [value_heads]: -exp(A_log) */
    dev_ptr dt_bias; /* [value_heads] */
    dev_ptr norm;    /* [value_dim] */
};

struct mlp_weights {
    struct projection in; /* gate | up */
    struct projection out;
};

struct moe_weights {
    enum route_shared shared;
    dev_ptr correction;   /* [experts]; null: none */
    struct projection in; /* router | shared expert's gate (1) | shared gate | shared up, as far as it has
                             them */
    struct projection shared_out;
    struct projection up, down; /* stacks: [experts] of gate | up, and of down */
};

/* Norms around a block, [hidden]; null: none. */
struct layer_norms {
    dev_ptr before, after;
};

struct layer {
    const struct layer_config *config;
    bool mtp; /* the MTP head's: nothing attends to its entry 0 */
    struct layer_norms norm_mixer, norm_mlp;
    /* By config->mixer and config->mlp. */
    union {
        struct attention_weights attention;
        struct delta_weights delta;
    };
    union {
        struct mlp_weights mlp;
        struct moe_weights moe;
    };
};

/* Multi-token prediction (contract 2.8): the pair for token j is (hidden state of token j - 1, embedding of
 * token j). */
struct mtp_weights {
    struct projection fc;                /* [hidden, 2 * hidden]: of embedding | hidden state */
    dev_ptr norm_embedding, norm_hidden; /* [hidden], in front of fc */
    dev_ptr norm;                        /* [hidden], after the layer */
    struct layer layer;
};

#endif
