/* rope.h - the angles of rotary position embedding.
 *
 * A position has three numbers (interleaved M-RoPE); each frequency turns by one of them. For text the three
 * are equal, and so they are for every model without images. */
#ifndef PLATEAU_COMPUTE_ROPE_H
#define PLATEAU_COMPUTE_ROPE_H

#include <stdint.h>

#define ROPE_HALF_MAX 320 /* half of the longest head */

struct rope_position {
    uint32_t axis[3]; /* time, row, column */
};

struct rope {
    uint32_t half;                 /* pairs of values that rotate */
    uint8_t axis[ROPE_HALF_MAX];   /* axis of each frequency */
    float inv_freq[ROPE_HALF_MAX]; /* radians per position, scaling applied */
    double magnitude;              /* factor of cos and sin: yarn's attention factor, else 1 */
};

/* cos and sin of one position: [half] each. Angles are double: in f32, a position of 262143 times a frequency
 * would leave an angle with an error of 0.02 rad. */
void rope_at(const struct rope *r, struct rope_position position, float *cosines, float *sines);

/* The tables of a model: layers of different kinds may rotate by different ones. */
#define ROPES_MAX 2
struct rope_tables {
    uint32_t count;
    struct rope table[ROPES_MAX];
};

/* Where table `index` begins in the angles of a token: cos | sin of each table in turn. */
static inline uint32_t rope_tables_offset(const struct rope_tables *r, uint32_t index)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < index; i++)
        at += 2 * r->table[i].half;
    return at;
}

static inline uint32_t rope_tables_width(const struct rope_tables *r)
{
    return rope_tables_offset(r, r->count);
}

/* The angles of one position: [rope_tables_width]. */
void rope_tables_at(const struct rope_tables *r, struct rope_position position, float *angles);

/* Position of a token in text without images before it. */
static inline struct rope_position rope_text(uint32_t position)
{
    return (struct rope_position){{position, position, position}};
}

#endif
