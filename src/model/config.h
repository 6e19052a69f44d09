/* config.h - config.json as checked numbers.
 *
 * Text fields come from text_config first, then from the top level. Every number is within the bounds below,
 * so that products of a few of them fit 64 bits. Keys are declared as data (config_key.h). Constant once
 * read. */
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
struct block;
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

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

#define ROPE_ABSENT UINT32_MAX

/* One layer. */
struct layer_config {
    const struct block *mixer, *mlp; /* blocks.h */
    uint32_t index;                  /* where its state lies: in compute_shape.kv or .recurrent */
    /* Attention. */
    uint32_t heads, kv_heads, head_dim;
    uint32_t rope;   /* its table in config.ropes; ROPE_ABSENT: no rotation */
    uint32_t window; /* keys that a query sees, its own counted; 0: all */
    /* Dense MLP. */
    uint32_t intermediate;
};

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    enum rope_type type;
    uint32_t rot; /* leading dimensions that rotate; even */
    double part;  /* of a head: rot of its dimensions */
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
    /* Windows: of the layers from window_from on whose kind has one. */
    uint32_t window, window_from;
    bool use_window, use_qk_norm;
    /* Factors and caps; 0: none. */
    float embedding_scale, residual_scale, score_scale, score_scalar, logits_scale, logits_divisor;
    float score_cap, logits_cap;
    uint32_t activation;      /* of the MLP: enum activation */
    uint32_t gate_activation; /* of the delta net's gate, likewise */
    struct rope_config ropes[ROPES_MAX];
    uint32_t rope_count;
    struct layer_config *layer;         /* [layers] */
    uint32_t kv_count, recurrent_count; /* layers with K and V in the pages, and with a state */
    struct layer_config mtp_layer;      /* the MTP head's; index kv_count */
    /* Set by the caller; 0 after config_parse: */
    uint32_t mtp_count;   /* MTP layers that are computed, whose K and V lie in the pages */
    uint32_t drafts_max;  /* the longest draft after a known token */
    uint32_t draft_vocab; /* tokens among which the head looks for them; 0: all */
    /* Experts; 0 = none. */
    uint32_t experts, top_k, expert_intermediate, shared_intermediate;
    uint32_t shared_experts; /* of expert_intermediate each, where shared_intermediate is not given */
    uint32_t dense_layers, sparse_step; /* the first layers, and of those after them all but each n-th, are
                                           dense */
    bool normalise;                     /* the weights of the chosen experts sum to routed_scale */
    float routed_scale;
    uint32_t groups, groups_top; /* of experts; 0: one group */
    /* Linear attention; 0 without such layers. */
    uint32_t conv_width, key_heads, value_heads, key_dim, value_dim;
    struct quantization quantization;
    /* Set by config_lay_out. */
    struct compute_shape shape;
    /* Not set by config_parse: vision_config_load sets it, for a loaded vision encoder. Zeros: none. */
    struct vision_config vision;
};

/* Parses `text`, config.json's content. `a` keeps layer kinds and quantisation entries. 0, -EINVAL,
 * -ENOTSUP (unknown family, quantisation or feature), -ENOMEM; e names key, value and limit. */
int config_parse(struct arena *a, struct slice text, struct config *ret, struct err *e);
int config_load(struct arena *a, const char *dir, struct config *ret, struct err *e);

/* What the model's operations depend on, into c->shape: all numbers are set by now. `a` keeps the layouts of
 * pages and states. 0 or -ENOMEM. */
int config_lay_out(struct arena *a, struct config *c);

/* What a page and a state hold, after that. */
void config_fill_layouts(const struct config *c, struct model_shape *s);

/* The frequencies of a rotary position embedding. */
void rope_init(struct rope *r, const struct rope_config *c);

/* Channels of the delta net's convolution: q, k and v of all heads. */
static inline uint32_t config_conv_channels(const struct config *c)
{
    return 2 * c->key_heads * c->key_dim + c->value_heads * c->value_dim;
}

/* ---- parts of the reading ---- */

struct json_read;

/* Each layer's kind and numbers (config_layers.c). */
void config_layers_read(struct json_read *r, struct arena *a, struct config *c);
/* The tables of rotation, after the layers (config_rope.c). */
void config_rope_read(struct json_read *r, struct config *c);
/* (config_quantization.c) */
void config_quantization_read(struct json_read *r, struct arena *a, struct config *c);

#endif
