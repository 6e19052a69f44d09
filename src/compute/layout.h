/* layout.h - the layout of a page and of a state. Only this file knows it.
 *
 * Page of a group: for each of its attention layers in order, then for each MTP layer, for each of its KV
 * heads: K transposed [k_width][32], then V [32][v_width], in the layer's form (tensor/kv_form.h). Where V
 * is the first part of K (kv_layer.v_in_k), K is all. On a GPU pieces of bf16 change places in a row
 * (key_in_page() of kernels/common.cuh), and codes of 8 bits lie as kernels/codes.cuh says. The MTP layer's
 * pair for token j is (hidden state of token j - 1, token j).
 *
 * State: for each recurrent layer in order its arrays. A delta net has the convolution's last inputs
 * [conv_width - 1][channels], then the delta state [value_heads][key_dim][value_dim], f32, each rounded up to
 * 64 bytes. Mamba-2 has the convolution's last inputs, then the state [heads][state][head_dim], likewise. A
 * short convolution has its last inputs alone.
 *
 * Where tokens may be drafted, pending tokens follow: for each recurrent layer the inputs of the 1 +
 * drafts_max tokens after the state (see delta_pending_token). With MTP the hidden states of those tokens
 * come next, [hidden] f32 each; a state without pending tokens has the hidden state of its last token in the
 * first place. How many of the pending tokens were accepted is not in the state: batch_seq.pending. */
#ifndef PLATEAU_COMPUTE_LAYOUT_H
#define PLATEAU_COMPUTE_LAYOUT_H

#include "compute/shape.h"

#include "base/check.h"

/* ---- pages ---- */

/* K of one KV head of one layer, and V. */
static inline size_t page_k_bytes(const struct kv_layer *l)
{
    return kv_form_bytes(l->form, l->k_width);
}
static inline size_t page_v_bytes(const struct kv_layer *l)
{
    return l->v_in_k ? 0 : kv_form_bytes(l->form, l->v_width);
}
/* The layer's K and V in a page; a multiple of 64. */
static inline size_t page_layer_bytes(const struct kv_layer *l)
{
    return ROUND_UP(l->heads * (page_k_bytes(l) + page_v_bytes(l)), (size_t)64);
}

/* V follows page_k_bytes later. */
static inline size_t page_k_offset(const struct kv_layer *l, uint32_t kv_head)
{
    return l->offset + (page_k_bytes(l) + page_v_bytes(l)) * kv_head;
}

/* Bytes of a page without layers, which stands for its tokens alone. */
#define PAGE_BYTES_LEAST ((size_t)64)

/* Sets the offsets of a shard's layers and the groups' bytes there; the layers' groups are set. */
static inline void page_lay_out_shard(struct kv_layer *layers, uint32_t count, uint32_t shard,
                                      struct kv_group *groups, uint32_t group_count)
{
    for (uint32_t g = 0; g < group_count; g++)
        groups[g].page_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(layers[i].group < group_count);
        if (layers[i].shard != shard)
            continue;
        layers[i].offset = groups[layers[i].group].page_bytes;
        groups[layers[i].group].page_bytes += page_layer_bytes(&layers[i]);
    }
    for (uint32_t g = 0; g < group_count; g++)
        groups[g].page_bytes = MAX_OF(groups[g].page_bytes, PAGE_BYTES_LEAST);
}
static inline void page_lay_out(struct kv_layer *layers, uint32_t count, struct kv_group *groups,
                                uint32_t group_count)
{
    page_lay_out_shard(layers, count, 0, groups, group_count);
}

/* ---- a convolution's part of a state ---- */

/* The last inputs: [taps - 1][channels]. */
static inline size_t conv_state_bytes(uint32_t taps, size_t channels)
{
    return ROUND_UP((taps - 1) * channels * sizeof(float), (size_t)64);
}

/* ---- a delta net's part of a state ---- */

static inline size_t delta_conv_bytes(const struct compute_shape *c)
{
    return conv_state_bytes(c->conv_width, shape_conv_channels(c));
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
    size_t alpha, beta; /* [value_heads][shape_decays()], [value_heads] */
    size_t floats;
};

static inline struct delta_pending_token delta_pending_token(const struct compute_shape *c)
{
    struct delta_pending_token r = {.k = shape_conv_channels(c)};
    r.v = r.k + (size_t)c->key_heads * c->key_dim;
    r.alpha = r.v + (size_t)c->value_heads * c->value_dim;
    r.beta = r.alpha + (size_t)c->value_heads * shape_decays(c);
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

/* ---- a Mamba-2 layer's part of a state ---- */

static inline size_t ssm_conv_bytes(const struct ssm_shape *s)
{
    return conv_state_bytes(s->conv_width, ssm_channels(s));
}

/* One head's state. */
static inline size_t ssm_head_floats(const struct ssm_shape *s)
{
    return (size_t)s->state * s->head_dim;
}

/* One token's inputs of one layer, in floats: the offset of each, and of the next token's. */
struct ssm_pending_token {
    size_t u;         /* [channels] as they enter the convolution */
    size_t x, b;      /* [heads][head_dim], [groups][state] as they enter the recurrence */
    size_t dt, decay; /* [heads] each */
    size_t floats;
};

static inline struct ssm_pending_token ssm_pending_token(const struct ssm_shape *s)
{
    struct ssm_pending_token r = {.x = ssm_channels(s)};
    r.b = r.x + ssm_inner(s);
    r.dt = r.b + (size_t)s->groups * s->state;
    r.decay = r.dt + s->heads;
    r.floats = ROUND_UP(r.decay + s->heads, (size_t)16);
    return r;
}

/* Its offsets are state_lay_out()'s. */
static inline struct recurrent_layer ssm_recurrent_layer(const struct compute_shape *c)
{
    size_t state = ssm_head_floats(&c->ssm) * sizeof(float) * c->ssm.heads;
    return (struct recurrent_layer){.bytes = ssm_conv_bytes(&c->ssm) + ROUND_UP(state, (size_t)64),
                                    .token_floats = ssm_pending_token(&c->ssm).floats};
}

/* ---- a short convolution's part of a state ---- */

/* Returns the layout of a short convolution's state; a pending token keeps its input. */
static inline struct recurrent_layer short_conv_recurrent_layer(uint32_t taps, uint32_t channels)
{
    return (struct recurrent_layer){.bytes = conv_state_bytes(taps, channels),
                                    .token_floats = ROUND_UP((size_t)channels, (size_t)16)};
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

/* With MTP and no state, pages of the first group have hidden states behind K and V: of the last tokens that
 * are computed, as many as a draft and its known token, each at its position's remainder. */
static inline size_t page_hidden_bytes(const struct compute_shape *c)
{
    size_t one = ROUND_UP(c->hidden * sizeof(float), (size_t)64);
    return c->mtp_count && c->recurrent_count == 0 ? (1 + c->drafts_max) * one : 0;
}
static inline size_t page_hidden_offset(const struct compute_shape *c, uint32_t position)
{
    size_t one = ROUND_UP(c->hidden * sizeof(float), (size_t)64);
    return c->page_hidden + position % (1 + c->drafts_max) * one;
}

/* Bytes of a state in a shard without recurrent layers, where the model has some. */
#define STATE_BYTES_LEAST ((size_t)64)

/* Sets the offsets of the shard's layers, and in `c` what is known of a state then. */
static inline void state_lay_out(struct compute_shape *c, struct recurrent_layer *layers)
{
    size_t at = 0;
    for (uint32_t i = 0; i < c->recurrent_count; i++) {
        if (layers[i].shard != c->shard)
            continue;
        layers[i].offset = at;
        at += layers[i].bytes;
    }
    for (uint32_t i = 0; i < c->recurrent_count; i++) {
        if (layers[i].shard != c->shard)
            continue;
        layers[i].pending_offset = at;
        at += layers[i].token_floats * sizeof(float) * state_pending_max(c);
    }
    c->recurrent = layers;
    c->hidden_offset = at;
    c->state_bytes = state_hidden_offset(c, c->mtp_count && c->shard == 0 ? state_pending_max(c) : 0);
    if (c->recurrent_count > 0)
        c->state_bytes = MAX_OF(c->state_bytes, STATE_BYTES_LEAST);
}

#endif
