/* layer.h - one layer's weights, packed. Constant once bound; they are in the model's weight memory. */
#ifndef PLATEAU_MODEL_LAYER_H
#define PLATEAU_MODEL_LAYER_H

#include "model/config.h"

#include "kernel/matrix.h"

/* Group sizes whose sums a product needs of its input. */
enum { GROUP_32 = 1, GROUP_64 = 2, GROUP_128 = 4 };

/* Matrices that read the same input, their outputs one after the other: y = [part 0 | part 1 | ...]. Parts
 * with the same form, bits and group are packed as one. */
#define PROJECTION_PARTS_MAX 5
struct projection {
    uint32_t in, out;
    uint32_t part_count;
    unsigned groups; /* GROUP_*; 0 when all parts are dense */
    struct matrix parts[PROJECTION_PARTS_MAX];
};

struct attention_weights {
    struct projection in; /* q (with gates: per head q, gate) | k | v */
    struct projection kv; /* k | v, the last parts of `in`: of an MTP head, which also needs keys alone */
    struct projection out;
    const float *q_norm, *k_norm; /* [head_dim]; NULL: none */
    bool gated;
};

struct delta_weights {
    struct projection in; /* qkv | z | b | a */
    struct projection out;
    const float *conv;    /* [taps][channels] */
    const float *decay;   /* [value_heads]: -exp(A_log) */
    const float *dt_bias; /* [value_heads] */
    const float *norm;    /* [value_dim] */
};

struct mlp_weights {
    struct projection in; /* gate | up */
    struct projection out;
};

struct moe_weights {
    struct projection in; /* router | shared expert's gate (1) | shared gate | shared up; the last three only
                             with a shared one */
    struct projection shared_out;
    struct matrix up, down; /* stacks: [experts] of gate | up, and of down */
    unsigned up_groups, down_groups;
};

struct layer {
    enum layer_kind kind;
    bool has_experts;
    bool mtp;                           /* the MTP head's: nothing attends to its entry 0 */
    uint32_t kind_index;                /* among the layers of its kind: where its state lies */
    const float *norm_mixer, *norm_mlp; /* [hidden] */
    struct attention_weights attention;
    struct delta_weights delta;
    struct mlp_weights mlp;
    struct moe_weights moe;
};

/* Multi-token prediction (contract 2.8): the pair for token j is (hidden state of token j - 1, embedding of
 * token j). */
struct mtp_weights {
    struct projection fc;                      /* [hidden, 2 * hidden]: of embedding | hidden state */
    const float *norm_embedding, *norm_hidden; /* [hidden], in front of fc */
    const float *norm;                         /* [hidden], after the layer */
    struct layer layer;
};

#endif
