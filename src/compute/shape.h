/* shape.h - the numbers of a model that its operations and the layout of its memory depend on. */
#ifndef PLATEAU_COMPUTE_SHAPE_H
#define PLATEAU_COMPUTE_SHAPE_H

#include <stdint.h>

struct compute_shape {
    uint32_t hidden, vocab;
    float eps; /* of every norm */
    /* Attention. */
    uint32_t heads, kv_heads, head_dim, rot;
    uint32_t full_count, mtp_count; /* layers whose K and V lie in the pages: the model's, the MTP head's */
    /* Recurrent layers; zeros without. */
    uint32_t linear_count, conv_width, key_heads, value_heads, key_dim, value_dim;
    /* Experts; zeros without. */
    uint32_t experts, top_k, expert_intermediate, shared_intermediate;
    /* Drafts. */
    uint32_t drafts_max;  /* the longest after a known token */
    uint32_t draft_vocab; /* ids among which the MTP head drafts */
};

/* Channels of the delta net's convolution: q, k and v of all heads. */
static inline uint32_t shape_conv_channels(const struct compute_shape *s)
{
    return 2 * s->key_heads * s->key_dim + s->value_heads * s->value_dim;
}

#endif
