/* rope.h - the angles of rotary position embedding.
 *
 * For text the three position rows of interleaved M-RoPE are equal, so it reduces to plain partial RoPE: this. */
#ifndef PLATEAU_MODEL_ROPE_H
#define PLATEAU_MODEL_ROPE_H

#include "model/config.h"

struct rope {
    uint32_t half;                           /* rot / 2 */
    float inv_freq[CONFIG_HEAD_DIM_MAX / 2]; /* radians per position, scaling applied */
    double magnitude;                        /* of cos and sin: yarn's attention factor, else 1 */
};

void rope_init(struct rope *r, const struct rope_config *c);
/* cos and sin of one position: [half] each. */
void rope_at(const struct rope *r, uint32_t position, float *cosines, float *sines);

#endif
