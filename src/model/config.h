/* config.h - config.json as checked numbers.
 *
 * Text fields come from text_config first, then from the top level. Every number is within the bounds below,
 * so that products of a few of them fit 64 bits; what the family needs is checked by the family. Constant
 * once read. */
#ifndef PLATEAU_MODEL_CONFIG_H
#define PLATEAU_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "compute/rope.h"
#include "compute/shape.h"
#include "model/vision_config.h"

struct backend;
struct family;

#define CONFIG_LAYERS_MAX       1024
#define CONFIG_HIDDEN_MAX       65536
#define CONFIG_INTERMEDIATE_MAX (1u << 20)
#define CONFIG_VOCAB_MAX        (1u << 22)
#define CONFIG_HEADS_MAX        1024
#define CONFIG_HEAD_DIM_MAX     256
#define CONFIG_EXPERTS_MAX      4096
#define CONFIG_TOP_K_MAX        64
#define CONFIG_CONV_WIDTH_MAX   8
#define CONFIG_CONTEXT_MAX      (1u << 24)

enum layer_kind { LAYER_FULL, LAYER_LINEAR };

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    enum rope_type type;
    uint32_t rot; /* leading dimensions that rotate; even */
    double theta, factor;
    double original_max;         /* llama3, yarn: positions the model was trained on */
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    double attention_factor;     /* yarn; 0: the default */
    uint32_t sections[3];        /* M-RoPE: frequencies of time, row and column; zeros: all are of time */
    bool interleaved;            /* T H W T H W ...; else one section after the other */
};

/* MLX affine parameters of one module. */
struct quantization_entry {
    uint32_t bits, group;
};

struct quantization {
    bool present;
    struct quantization_entry global;
    struct quantization_entry *entries; /* by module path */
    struct hash_map by_path;
};

struct config {
    const struct backend *backend; /* that computes it; its sizes are the plan's */
    const struct family *family;
    char family_name[32]; /* model_type without "_text" */
    uint32_t layers, hidden, vocab, context_max;
    uint32_t heads, kv_heads, head_dim;
    uint32_t intermediate; /* dense MLP; 0: not given */
    float eps;
    bool tied; /* as the file has it; whether an lm_head exists decides */
    struct rope_config rope;
    const uint8_t *kinds; /* [layers] enum layer_kind */
    uint32_t full_count, linear_count;
    /* Set by the caller; 0 after config_parse: */
    uint32_t mtp_count;   /* MTP layers that are computed, whose K and V lie in the pages */
    uint32_t drafts_max;  /* the longest draft after a known token */
    uint32_t draft_vocab; /* tokens among which the head looks for them; 0: all */
    /* Experts; 0 = none. */
    uint32_t experts, top_k, expert_intermediate, shared_intermediate;
    /* Linear attention; 0 without such layers. */
    uint32_t conv_width, key_heads, value_heads, key_dim, value_dim;
    struct quantization quantization;
    /* Not set by config_parse: vision_config_load sets it, for a loaded vision encoder. Zeros: none. */
    struct vision_config vision;
};

/* Parses `text`, config.json's content. `a` keeps layer kinds and quantisation entries. 0, -EINVAL,
 * -ENOTSUP (unknown family, quantisation or feature), -ENOMEM; e names key, value and limit. */
int config_parse(struct arena *a, struct slice text, struct config *ret, struct err *e);
int config_load(struct arena *a, const char *dir, struct config *ret, struct err *e);

/* What the model's operations depend on. */
struct compute_shape config_shape(const struct config *c);

/* The frequencies of its rotary position embedding. */
void rope_init(struct rope *r, const struct rope_config *c);

/* Channels of the delta net's convolution: q, k and v of all heads. */
static inline uint32_t config_conv_channels(const struct config *c)
{
    const struct compute_shape s = config_shape(c);
    return shape_conv_channels(&s);
}

#endif
