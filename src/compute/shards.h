/* shards.h - the compute of a model over several devices, each of which has some of its layers.
 *
 * It takes the operations of a step and gives each to the workspace of its shard. The step begins in the
 * first shard. With compute_hand_over() a part of it ends, the rows of the residual stream go to the next
 * device, and a part begins there. The last part is in the first shard again, and has logits, values and
 * samples. Each part is a step of its device, whose operations it may record under the step's key.
 *
 * A failure ends the step: the parts behind it are not begun. One thread, the engine's. */
#ifndef PLATEAU_COMPUTE_SHARDS_H
#define PLATEAU_COMPUTE_SHARDS_H

#include "compute/ops.h"

struct arena;

struct shards_opts {
    struct compute *of[SHARDS_MAX]; /* workspaces of one backend and equal arrays, closed with it */
    uint32_t count;
    uint32_t tokens_max, seqs_max;
};

/* Bytes of arena that shards_open() takes: fixed, for each token, and for each sequence of a step. */
struct compute_bytes shards_bytes(void);
/* In `a`, which frees it. 0 or -ENOMEM; the workspaces are the caller's then. */
int shards_open(struct arena *a, const struct shards_opts *opts, struct compute **ret);

#endif
