/* shape.h - the numbers of a model that its operations and the layout of its memory depend on.
 *
 * Each layer has its own numbers. The tables are computed once at load (compute/layout.h) and then
 * constant. */
#ifndef PLATEAU_COMPUTE_SHAPE_H
#define PLATEAU_COMPUTE_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* One attention layer's K and V in a page. */
struct kv_layer {
    uint32_t heads, head_dim;
    size_t offset; /* in bytes from the page's begin */
};

/* One recurrent layer's part of a state. */
struct recurrent_layer {
    size_t bytes;          /* its arrays; a multiple of 64 */
    size_t token_floats;   /* inputs of one pending token; a multiple of 16 */
    size_t offset;         /* of its arrays, in bytes from the state's begin */
    size_t pending_offset; /* of its pending tokens, likewise */
};

struct compute_shape {
    uint32_t hidden, vocab;
    float eps; /* of every norm */
    uint32_t layers;
    /* Layers whose K and V lie in the pages: the model's, then the MTP head's. */
    const struct kv_layer *kv; /* [kv_count] */
    uint32_t kv_count, mtp_count;
    size_t page_bytes;
    /* Recurrent layers; zeros without. */
    const struct recurrent_layer *recurrent; /* [recurrent_count] */
    uint32_t recurrent_count;
    size_t hidden_offset; /* with MTP: of the hidden states, in bytes from the state's begin */
    size_t state_bytes;
    /* Delta nets; zeros without. */
    uint32_t conv_width, key_heads, value_heads, key_dim, value_dim;
    /* Experts; zeros without. */
    uint32_t experts, top_k;
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
