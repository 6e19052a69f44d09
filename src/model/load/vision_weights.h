/* vision_weights.h - the vision encoder's weights (contract 4.3), packed. Constant once bound; they lie in
 * the model's weight memory. */
#ifndef PLATEAU_MODEL_VISION_WEIGHTS_H
#define PLATEAU_MODEL_VISION_WEIGHTS_H

#include "model/config/vision_config.h"

#include "compute/weight.h"
#include "memory/dev.h"

#include <stdbool.h>

struct binder;
struct checkpoint;
struct vision_family;

/* A number each. */
struct vision_clip {
    dev_ptr least, most;
};

struct vision_linear {
    struct projection w;
    dev_ptr bias;                     /* [w.out] */
    struct vision_clip input, result; /* with vision_config.clipped */
};

struct vision_norm {
    dev_ptr weight, bias;
};

struct vision_block {
    struct vision_norm mix, mix_post, mlp, mlp_post;
    dev_ptr query_norm, key_norm, value_norm; /* [head_dim]; null: none */
    struct vision_linear query, key_value;    /* one head after the other; key_value: keys | values */
    struct vision_linear out, up, down;       /* up: gate | up where there is a gate */
    /* With vision_config.clipped: key_value and up are keys and the gate alone. */
    struct vision_linear value, up_alone;
    dev_ptr mix_factors, mlp_factors; /* [hidden]: of both parts' results; null: none */
};

/* Patches of a token become a feature. Its norm is over a patch's values, in DeepStack over the token's. */
struct vision_merger {
    struct vision_norm norm;
    struct vision_linear squeeze; /* with VISION_ROLE_MERGE_SQUEEZE, in front of `up` */
    struct vision_linear proj;    /* with VISION_ROLE_MERGE_PROJ, between the two */
    struct vision_norm proj_norm;
    struct vision_linear up, down; /* up: gate | up with VISION_ROLE_MERGE_GATE */
};

struct vision_weights {
    bool channels_last; /* a patch is [frame][y][x][channel]; else [channel][frame][y][x] */
    struct vision_linear patches;
    struct vision_norm pixels, embedded; /* norms of a patch's pixels, and of its embedding */
    struct vision_norm first, last;      /* norms in front of the blocks and after them */
    struct vision_norm standard;         /* [hidden]: scale and bias of means of patches */
    struct projection positions;         /* [rows, the class token's first][hidden]: only rows are read */
    struct vision_block *blocks;         /* [depth] */
    dev_ptr class_values;                /* [hidden]: the class token's row; null: none */
    struct vision_merger merger, deepstack[VISION_DEEPSTACK_MAX];
};

/* Binds everything below the prefix that the checkpoint has. `blocks`: [depth] of memory; NULL while
 * measuring. 0, -EINVAL, -ENOTSUP. */
int vision_bind(struct binder *b, struct vision_block *blocks, struct vision_weights *ret);
/* Whether the checkpoint has an encoder of that family, under any of its prefixes. */
bool vision_exists(const struct vision_family *t, const struct checkpoint *c);

#endif
