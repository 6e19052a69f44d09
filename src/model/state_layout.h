/* state_layout.h - where things lie inside a page and inside a slot. The only place that knows.
 *
 * Page: for each full-attention layer in order, then for each MTP layer, for each KV head: K transposed [head_dim][32], then V
 * [32][head_dim], f32. With MTP the hidden state behind the page's last token follows, [hidden] f32: the MTP layer's pair for token j
 * is (hidden state of token j - 1, token j), so a prompt that goes on behind a page begins with it.
 * Slot: for each linear-attention layer in order: the convolution's last inputs [taps - 1][channels], then the delta
 * state [value_heads][key_dim][value_dim], f32, each rounded up to 64 bytes. */
#ifndef PLATEAU_MODEL_STATE_LAYOUT_H
#define PLATEAU_MODEL_STATE_LAYOUT_H

#include "model/config.h"

#include "kernel/kern.h"

#include "base/check.h"

/* K or V of one KV head of one layer. */
static inline size_t page_half_bytes(const struct config *c)
{
    return (size_t)c->head_dim * KERN_PAGE_TOKENS * sizeof(float);
}

static inline size_t page_kv_bytes(const struct config *c)
{
    return 2 * page_half_bytes(c) * c->kv_heads * ((size_t)c->full_count + c->mtp_count);
}

static inline size_t page_bytes(const struct config *c)
{
    size_t hidden = c->mtp_count ? ROUND_UP(c->hidden * sizeof(float), (size_t)64) : 0;
    return page_kv_bytes(c) + hidden;
}

/* With MTP: where the hidden state behind the last token lies. */
static inline size_t page_hidden_offset(const struct config *c)
{
    ASSERT(c->mtp_count > 0);
    return page_kv_bytes(c);
}

/* `full_index` counts the full-attention layers, and from full_count on the MTP layers. V follows at page_half_bytes behind. */
static inline size_t page_k_offset(const struct config *c, uint32_t full_index, uint32_t kv_head)
{
    return 2 * page_half_bytes(c) * ((size_t)full_index * c->kv_heads + kv_head);
}

static inline size_t slot_conv_bytes(const struct config *c)
{
    return c->taps ? ROUND_UP((size_t)(c->taps - 1) * config_conv_channels(c) * sizeof(float), (size_t)64)
                   : 0;
}

/* One value head's state. */
static inline size_t slot_head_floats(const struct config *c)
{
    return (size_t)c->key_dim * c->value_dim;
}

static inline size_t slot_layer_bytes(const struct config *c)
{
    return slot_conv_bytes(c) + slot_head_floats(c) * sizeof(float) * c->value_heads;
}

static inline size_t slot_bytes(const struct config *c)
{
    return c->linear_count ? slot_layer_bytes(c) * c->linear_count : 0;
}

#endif
