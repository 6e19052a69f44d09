/* layer.h - one layer's weights, packed. Constant once bound; they are in the model's weight memory. */
#ifndef PLATEAU_MODEL_LAYER_H
#define PLATEAU_MODEL_LAYER_H

#include "compute/ops.h"
#include "compute/weight.h"
#include "memory/dev.h"

#include <stdbool.h>

struct layer_config;

struct attention_weights {
    struct projection in; /* q (with gates: per head q, gate) | k | v */
    struct projection kv; /* k | v, the last parts of `in`: of an MTP head, which also needs keys alone */
    struct projection out;
    dev_ptr q_norm, k_norm; /* [head_dim]; null: none */
    dev_ptr sinks;          /* [heads]; null: none */
    dev_ptr v_norm;         /* [head width] ones; null: none */
    float scale;            /* factor of scores */
    bool gated;
    uint32_t gates; /* gates by a matrix of their own, the last rows of `in`; 0: none */
};

struct latent_weights {
    struct projection in;           /* q, or its low-rank form | c | r */
    struct projection q;            /* from the low-rank form, if there is one */
    struct norm q_norm, kv_norm;    /* norm of the low-rank form, if there is one, and of c */
    struct projection query, value; /* stacks: [heads] of queries to c's space, and of c to values */
    struct projection out;
    struct projection gate; /* gates of the heads' results; out 0: none */
    float scale;            /* factor of scores */
};

struct delta_weights {
    struct projection in; /* qkv | z | b | a; block_kda: qkv | b | decays | z, or the low ranks of both */
    struct projection out;
    struct projection decay_high, gate_high; /* block_kda: from low ranks; out 0: none */
    dev_ptr conv;                            /* [taps][channels] */
    dev_ptr decay;                           /* [value_heads]: -exp(A_log) */
    dev_ptr dt_bias;                         /* [value_heads]; block_kda: [key_heads][key_dim] */
    dev_ptr norm;                            /* [value_dim] */
};

struct ssm_weights {
    struct projection in; /* z | x | B | C | dt */
    struct projection out;
    dev_ptr conv, conv_bias;     /* [taps][channels], [channels]; null: no bias */
    dev_ptr decay;               /* [heads]: -exp(A_log) */
    dev_ptr dt_bias, skip, norm; /* [heads] each, [heads * head_dim]; norm null: none */
};

struct short_conv_weights {
    struct projection in; /* b | c | u */
    struct projection out;
    dev_ptr conv; /* [taps][hidden] */
    dev_ptr bias; /* [hidden]; null: none */
};

struct mlp_weights {
    struct projection in; /* gate | up; up alone */
    struct projection out;
    dev_ptr xielu; /* [3]: glu_clip.xielu; null: another activation */
    float limit;   /* bound of the activation; 0: none */
};

struct moe_weights {
    enum route_shared shared;
    bool machine;              /* up and down lie in the machine's memory; the model is on a device */
    dev_ptr correction;        /* [experts]; null: none */
    dev_ptr expert_scale;      /* [experts]; null: none */
    float limit, shared_limit; /* bounds of activations: of experts, and of the shared one; 0: none */
    struct projection in; /* router | shared expert's gate (1) | shared gate | shared up, as far as it has
                             them */
    struct projection shared_out;
    struct projection latent_in, latent_out; /* with config.expert_latent, around the experts */
    struct projection up, down;              /* stacks: [experts] of gate | up, and of down */
};

struct beside_weights {
    struct mlp_weights mlp; /* first, where the block of the MLP has it, too */
    struct moe_weights moe;
    dev_ptr norm_router, norm_experts; /* [hidden]: in front of the router, and of the experts */
    dev_ptr norm_mlp, norm_sum;        /* [hidden]: norms of both results */
};

struct layer_input_weights {
    struct projection gate; /* [width, hidden] */
    struct projection out;
};

/* Norms around a block, of [hidden]. */
struct layer_norms {
    struct norm before, after;
};

struct layer {
    const struct layer_config *config;
    bool mtp; /* the MTP head's: nothing attends to its entry 0 */
    struct layer_norms norm_mixer, norm_mlp, norm_extra;
    dev_ptr scale; /* [1]: of the residual stream after the layer; null: none */
    /* By config->mixer, config->beside and config->mlp. */
    union {
        struct attention_weights attention;
        struct latent_weights latent;
        struct delta_weights delta;
        struct short_conv_weights short_conv;
    };
    struct ssm_weights ssm;
    union {
        struct mlp_weights mlp;
        struct moe_weights moe;
        struct beside_weights beside;
    };
    struct layer_input_weights input; /* with config->extra */
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
