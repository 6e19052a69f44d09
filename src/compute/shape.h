/* shape.h - the numbers of a model that its operations and the layout of its memory depend on.
 *
 * Each layer has its own numbers. The tables are computed once at load (compute/layout.h) and then
 * constant. */
#ifndef PLATEAU_COMPUTE_SHAPE_H
#define PLATEAU_COMPUTE_SHAPE_H

#include "base/page_tokens.h"
#include "tensor/kv_form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Attention layers of equal reach, whose K and V lie in the same pages. The first group has no window: full
 * attention and the MTP head, or no layer. */
struct kv_group {
    uint32_t window;   /* keys that a query sees, its own counted; 0: all */
    size_t page_bytes; /* K and V of PAGE_TOKENS tokens of its layers; a multiple of 64, and not 0 */
};

/* One attention layer's K and V in a page of its group. */
struct kv_layer {
    uint32_t heads, k_width, v_width; /* numbers of a head's key and value */
    bool v_in_k;                      /* the value is the first v_width numbers of the key, stored once */
    enum kv_form form;                /* how they are stored */
    uint32_t group;                   /* index in compute_shape.groups */
    uint32_t shard;                   /* device that has the layer, see compute_shape */
    size_t offset;                    /* in bytes from the page's begin */
};

/* One recurrent layer's part of a state. */
struct recurrent_layer {
    size_t bytes;          /* its arrays; a multiple of 64 */
    size_t token_floats;   /* inputs of one pending token; a multiple of 16 */
    uint32_t shard;        /* device that has the layer, see compute_shape */
    size_t offset;         /* offset of its arrays, in bytes from the state's begin */
    size_t pending_offset; /* offset of its pending tokens, in bytes from the state's begin */
};

/* Mamba-2's numbers, the same in all its layers; zeros without. */
struct ssm_shape {
    uint32_t heads, head_dim;
    uint32_t groups, state; /* heads / groups of them share B and C, of `state` values each */
    uint32_t conv_width;
};

/* A model on several devices has a shape for each shard (memory/dev.h), with the bytes and offsets of its own
 * layers in pages and states. The MTP head is in the first one. */
struct compute_shape {
    uint32_t shard;
    uint32_t hidden, vocab;
    float eps;       /* epsilon of every norm */
    bool layer_norm; /* norms of the residual stream and of blocks' results are LayerNorms, not rmsnorms */
    uint32_t layers;
    uint32_t context_max; /* tokens of a sequence, at most */
    /* Layers whose K and V lie in the pages: the model's, then the MTP head's. */
    const struct kv_layer *kv; /* [kv_count] */
    uint32_t kv_count, mtp_count;
    struct kv_group groups[PAGE_GROUPS_MAX];
    uint32_t group_count;
    /* Recurrent layers; zeros without. */
    const struct recurrent_layer *recurrent; /* [recurrent_count] */
    uint32_t recurrent_count;
    size_t hidden_offset; /* with MTP: of the hidden states, in bytes from the state's begin */
    size_t state_bytes;
    size_t
        page_hidden; /* with MTP and no state: of the hidden states, in bytes from a page's begin; else 0 */
    /* Delta nets, short convolutions (conv_width alone); zeros without. */
    uint32_t conv_width, key_heads, value_heads, key_dim, value_dim;
    bool decay_channels; /* each channel of a key has its decay: key_heads and value_heads are the same */
    struct ssm_shape ssm;
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

/* Decays of one value head. */
static inline uint32_t shape_decays(const struct compute_shape *s)
{
    return s->decay_channels ? s->key_dim : 1;
}

/* Values of x, and channels of the convolution: x | B | C. */
static inline uint32_t ssm_inner(const struct ssm_shape *s)
{
    return s->heads * s->head_dim;
}
static inline uint32_t ssm_channels(const struct ssm_shape *s)
{
    return ssm_inner(s) + 2 * s->groups * s->state;
}

/* ---- cost of a workspace ---- */

/* Bytes of a workspace: fixed, and per token, sequence and worker; of its part in the memory of the device's
 * domain, and of what host code keeps beside it in the machine's. */
struct compute_bytes {
    uint64_t fixed, token, seq, worker;
};
struct compute_cost {
    struct compute_bytes device, host;
    /* Most bytes of recorded steps, in the device's domain and in the machine's; 0: it records none there. */
    uint64_t recorded_bytes, recorded_host_bytes;
};

#endif
