/* tower.h - the vision encoder's weights (contract 4.3), packed. Constant once bound; they lie in the
 * model's weight memory. */
#ifndef PLATEAU_MODEL_TOWER_H
#define PLATEAU_MODEL_TOWER_H

#include "model/binder.h"

struct tower_linear {
    struct projection w;
    const float *bias; /* [w.out] */
};

struct tower_norm {
    const float *weight, *bias;
};

struct tower_block {
    struct tower_norm mix, mlp;
    struct tower_linear query, key_value; /* of each: heads one behind the other; key_value: keys | values */
    struct tower_linear out, up, down;
};

/* Patches of a token become a feature. Its norm is over a patch's values, in DeepStack over the token's. */
struct tower_merger {
    struct tower_norm norm;
    struct tower_linear up, down;
};

struct tower {
    bool channels_last; /* a patch is [frame][y][x][channel]; else [channel][frame][y][x] */
    struct tower_linear patches;
    struct projection positions; /* [grid * grid][hidden]: only its rows are read */
    struct tower_block *blocks;  /* [depth] */
    struct tower_merger merger, deepstack[VISION_DEEPSTACK_MAX];
};

/* Binds everything below the prefix that the checkpoint has. `blocks`: [depth] of memory; NULL while
 * measuring. 0, -EINVAL, -ENOTSUP. */
int tower_bind(struct binder *b, struct tower_block *blocks, struct tower *ret);
/* Whether the checkpoint has a vision encoder, under any known prefix. */
bool tower_exists(const struct checkpoint *c);

#endif
