/* layout.h - the layout of a page and of a state. Only this file knows it.
 *
 * Page: for each full-attention layer in order, then for each MTP layer, for each KV head: K transposed
 * [head_dim][32], then V [32][head_dim], f32. The MTP layer's pair for token j is (hidden state of token j -
 * 1, token j).
 *
 * State: for each linear-attention layer in order, the convolution's last inputs [conv_width - 1][channels],
 * then the delta state [value_heads][key_dim][value_dim], f32, each rounded up to 64 bytes.
 *
 * Where tokens may be drafted, pending tokens follow: for each linear-attention layer the inputs of the 1 +
 * drafts_max tokens after the state (see state_pending_token). With MTP the hidden states of those tokens
 * come next, [hidden] f32 each; a state without pending tokens has the hidden state of its last token in the
 * first place. How many of the pending tokens were accepted is not in the state: batch_seq.pending. */
#ifndef PLATEAU_COMPUTE_LAYOUT_H
#define PLATEAU_COMPUTE_LAYOUT_H

#include "compute/shape.h"

#include "kernel/kern.h"

#include "base/check.h"

/* K or V of one KV head of one layer. */
static inline size_t page_half_bytes(const struct compute_shape *c)
{
    return (size_t)c->head_dim * PAGE_TOKENS * sizeof(float);
}

static inline size_t page_bytes(const struct compute_shape *c)
{
    return 2 * page_half_bytes(c) * c->kv_heads * ((size_t)c->full_count + c->mtp_count);
}

/* `full_index` counts the full-attention layers, and from full_count on the MTP layers. V follows
 * page_half_bytes later. */
static inline size_t page_k_offset(const struct compute_shape *c, uint32_t full_index, uint32_t kv_head)
{
    return 2 * page_half_bytes(c) * ((size_t)full_index * c->kv_heads + kv_head);
}

static inline size_t state_conv_bytes(const struct compute_shape *c)
{
    return c->conv_width
               ? ROUND_UP((size_t)(c->conv_width - 1) * shape_conv_channels(c) * sizeof(float), (size_t)64)
               : 0;
}

/* One value head's state. */
static inline size_t state_head_floats(const struct compute_shape *c)
{
    return (size_t)c->key_dim * c->value_dim;
}

static inline size_t state_layer_bytes(const struct compute_shape *c)
{
    return state_conv_bytes(c) + state_head_floats(c) * sizeof(float) * c->value_heads;
}

static inline size_t state_matrices_bytes(const struct compute_shape *c)
{
    return state_layer_bytes(c) * c->linear_count;
}

/* One token's inputs of one linear-attention layer, in floats: the offset of each, and of the next
 * token's. */
struct state_pending_token {
    size_t u;           /* [channels] as they enter the convolution */
    size_t k, v;        /* [key_heads][key_dim], [value_heads][value_dim] as they enter the delta rule */
    size_t alpha, beta; /* [value_heads] each */
    size_t floats;
};

static inline struct state_pending_token state_pending_token(const struct compute_shape *c)
{
    struct state_pending_token r = {.k = shape_conv_channels(c)};
    r.v = r.k + (size_t)c->key_heads * c->key_dim;
    r.alpha = r.v + (size_t)c->value_heads * c->value_dim;
    r.beta = r.alpha + c->value_heads;
    r.floats = ROUND_UP(r.beta + c->value_heads, (size_t)16);
    return r;
}

static inline uint32_t state_pending_max(const struct compute_shape *c)
{
    return c->linear_count && c->drafts_max ? 1 + c->drafts_max : 0;
}

/* Where the pending tokens of a linear-attention layer begin. */
static inline size_t state_pending_offset(const struct compute_shape *c, uint32_t linear_index)
{
    return state_matrices_bytes(c) +
           state_pending_token(c).floats * sizeof(float) * state_pending_max(c) * (size_t)linear_index;
}

/* With MTP: where the hidden state of pending token `index` lies. */
static inline size_t state_hidden_offset(const struct compute_shape *c, uint32_t index)
{
    return state_pending_offset(c, c->linear_count) + index * ROUND_UP(c->hidden * sizeof(float), (size_t)64);
}

static inline size_t state_bytes(const struct compute_shape *c)
{
    return state_hidden_offset(c, c->mtp_count ? state_pending_max(c) : 0);
}

#endif
