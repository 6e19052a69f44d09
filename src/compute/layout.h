/* layout.h - the layout of a page and of a state. Only this file knows it.
 *
 * Page: for each attention layer in order, then for each MTP layer, for each of its KV heads: K transposed
 * [head_dim][32], then V [32][head_dim], f32. The MTP layer's pair for token j is (hidden state of token j -
 * 1, token j).
 *
 * State: for each recurrent layer in order its arrays. Those of a delta net are the convolution's last inputs
 * [conv_width - 1][channels], then the delta state [value_heads][key_dim][value_dim], f32, each rounded up to
 * 64 bytes.
 *
 * Where tokens may be drafted, pending tokens follow: for each recurrent layer the inputs of the 1 +
 * drafts_max tokens after the state (see delta_pending_token). With MTP the hidden states of those tokens
 * come next, [hidden] f32 each; a state without pending tokens has the hidden state of its last token in the
 * first place. How many of the pending tokens were accepted is not in the state: batch_seq.pending. */
#ifndef PLATEAU_COMPUTE_LAYOUT_H
#define PLATEAU_COMPUTE_LAYOUT_H

#include "compute/shape.h"

#include "kernel/kern.h"

#include "base/check.h"

/* ---- pages ---- */

/* K or V of one KV head of one layer. */
static inline size_t page_half_bytes(const struct kv_layer *l)
{
    return (size_t)l->head_dim * PAGE_TOKENS * sizeof(float);
}

/* V follows page_half_bytes later. */
static inline size_t page_k_offset(const struct kv_layer *l, uint32_t kv_head)
{
    return l->offset + 2 * page_half_bytes(l) * kv_head;
}

/* Sets the layers' offsets; returns the bytes of a page. */
static inline size_t page_lay_out(struct kv_layer *layers, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        layers[i].offset = bytes;
        bytes = page_k_offset(&layers[i], layers[i].heads);
    }
    return bytes;
}

/* ---- a delta net's part of a state ---- */

static inline size_t delta_conv_bytes(const struct compute_shape *c)
{
    return ROUND_UP((size_t)(c->conv_width - 1) * shape_conv_channels(c) * sizeof(float), (size_t)64);
}

/* One value head's state. */
static inline size_t delta_head_floats(const struct compute_shape *c)
{
    return (size_t)c->key_dim * c->value_dim;
}

/* One token's inputs of one delta net, in floats: the offset of each, and of the next token's. */
struct delta_pending_token {
    size_t u;           /* [channels] as they enter the convolution */
    size_t k, v;        /* [key_heads][key_dim], [value_heads][value_dim] as they enter the delta rule */
    size_t alpha, beta; /* [value_heads] each */
    size_t floats;
};

static inline struct delta_pending_token delta_pending_token(const struct compute_shape *c)
{
    struct delta_pending_token r = {.k = shape_conv_channels(c)};
    r.v = r.k + (size_t)c->key_heads * c->key_dim;
    r.alpha = r.v + (size_t)c->value_heads * c->value_dim;
    r.beta = r.alpha + c->value_heads;
    r.floats = ROUND_UP(r.beta + c->value_heads, (size_t)16);
    return r;
}

/* Its offsets are state_lay_out()'s. */
static inline struct recurrent_layer delta_recurrent_layer(const struct compute_shape *c)
{
    return (struct recurrent_layer){.bytes = delta_conv_bytes(c) +
                                             delta_head_floats(c) * sizeof(float) * c->value_heads,
                                    .token_floats = delta_pending_token(c).floats};
}

/* ---- states ---- */

static inline uint32_t state_pending_max(const struct compute_shape *c)
{
    return c->recurrent_count && c->drafts_max ? 1 + c->drafts_max : 0;
}

/* With MTP: where the hidden state of pending token `index` lies. */
static inline size_t state_hidden_offset(const struct compute_shape *c, uint32_t index)
{
    return c->hidden_offset + index * ROUND_UP(c->hidden * sizeof(float), (size_t)64);
}

/* Sets the layers' offsets, and in `c` what is known of a state then. */
static inline void state_lay_out(struct compute_shape *c, struct recurrent_layer *layers)
{
    size_t at = 0;
    for (uint32_t i = 0; i < c->recurrent_count; i++) {
        layers[i].offset = at;
        at += layers[i].bytes;
    }
    for (uint32_t i = 0; i < c->recurrent_count; i++) {
        layers[i].pending_offset = at;
        at += layers[i].token_floats * sizeof(float) * state_pending_max(c);
    }
    c->recurrent = layers;
    c->hidden_offset = at;
    c->state_bytes = state_hidden_offset(c, c->mtp_count ? state_pending_max(c) : 0);
}

#endif
