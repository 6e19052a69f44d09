/* rope.h - the angles of rotary position embedding.
 *
 * A position has three numbers (interleaved M-RoPE); each frequency turns by one of them. For text the three
 * are equal, and so they are for every model without images. */
#ifndef PLATEAU_MODEL_ROPE_H
#define PLATEAU_MODEL_ROPE_H

#include "model/config.h"

struct rope_position {
    uint32_t axis[3]; /* time, row, column */
};

struct rope {
    uint32_t half;                           /* rot / 2 */
    uint8_t axis[CONFIG_HEAD_DIM_MAX / 2];   /* of each frequency */
    float inv_freq[CONFIG_HEAD_DIM_MAX / 2]; /* radians per position, scaling applied */
    double magnitude;                        /* of cos and sin: yarn's attention factor, else 1 */
};

void rope_init(struct rope *r, const struct rope_config *c);
/* cos and sin of one position: [half] each. */
void rope_at(const struct rope *r, struct rope_position position, float *cosines, float *sines);

/* Position of a token in text without images before it. */
static inline struct rope_position rope_text(uint32_t position)
{
    return (struct rope_position){{position, position, position}};
}

#endif
