/* config.h - config.json as checked numbers.
 *
 * Text fields come from text_config first, then from the top level. Every number is within the bounds below,
 * so that products of a few of them fit 64 bits. Keys are declared as data (config_key.h). Constant once
 * read. */
#ifndef PLATEAU_MODEL_CONFIG_H
#define PLATEAU_MODEL_CONFIG_H

#include "model/config/vision_config.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "compute/mode.h"
#include "compute/rope.h"
#include "compute/shape.h"

struct backend;
struct block;
struct eagle;
struct family;
struct model_files;
struct tensor_naming;

#define CONFIG_LAYERS_MAX       1024
#define CONFIG_HIDDEN_MAX       65536
#define CONFIG_INTERMEDIATE_MAX (1u << 20)
#define CONFIG_VOCAB_MAX        (1u << 22)
#define CONFIG_HEADS_MAX        1024
#define CONFIG_HEAD_DIM_MAX     640
#define CONFIG_STATE_DIM_MAX    256 /* keys and values of recurrent layers */
#define CONFIG_EXPERTS_MAX      4096
#define CONFIG_TOP_K_MAX        64
#define CONFIG_CONV_WIDTH_MAX   8
#define CONFIG_CONTEXT_MAX      (1u << 24)

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU_ERF,
    ACTIVATION_RELU_SQUARE,
    ACTIVATION_SWIGLU_CLIP,
    ACTIVATION_XIELU
};

/* How experts are chosen (contract 10.4). */
enum topk_method {
    TOPK_CORRECTED, /* by the family's correction if it has one; groups by their two best */
    TOPK_GREEDY,    /* by the scores, without groups */
    TOPK_GROUP_MAX, /* by the scores; groups by their best */
};

/* Gates of attention's results, by a matrix of their own. */
enum attention_gate { GATE_NONE, GATE_HEADS, GATE_VALUES }; /* one for each head, or for each value */

#define ROPE_ABSENT UINT32_MAX

/* One layer. */
struct layer_config {
    const struct block *mixer, *mlp; /* blocks.h; mlp NULL: the layer is its mixer alone */
    const struct block *beside;      /* a second mixer of the same normed tokens; NULL: none */
    const struct block *extra;       /* a third one; NULL: none */
    uint32_t index;                  /* where K and V lie: in compute_shape.kv */
    uint32_t recurrent;              /* where the state lies: in compute_shape.recurrent */
    /* Attention. */
    uint32_t heads, kv_heads;
    uint32_t head_dim, value_dim; /* width of a key, and of a value */
    bool v_in_k;                  /* the value is the first part of the key, stored once */
    uint32_t rope_dim;            /* values of a head that may rotate; 0: all */
    uint32_t rope;                /* its table in config.ropes; ROPE_ABSENT: no rotation */
    uint32_t window;              /* keys that a query sees, its own counted; 0: all */
    bool pair;                    /* it reads pairs of an EAGLE-3 head, twice as wide as a hidden state */
    uint32_t kv_from;             /* the layer whose K and V it reads; NONE: its own */
    bool v_is_k;                  /* values are keys before their norm and rotation */
    /* Dense MLP. */
    uint32_t intermediate;
    float mlp_limit, expert_limit; /* bounds of activations: of the dense MLP and the shared expert, and of
                                    * experts; 0: none */
    float xielu[4];                /* ACTIVATION_XIELU, of GGUF files: alpha_p, alpha_n, beta, eps */
};

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONG,
    ROPE_PROPORTIONAL,
    ROPE_FACTORS /* GGUF: frequencies divided by factors_short, numbers of the file */
};

struct rope_config {
    enum rope_type type;
    uint32_t rot; /* leading dimensions that rotate; even */
    double part;  /* share of a head's dimensions: rot of them */
    double theta, factor;
    double original_max;         /* llama3, yarn: positions the model was trained on */
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    double attention_factor;     /* yarn, longrope; 0: the default */
    double mscale;               /* yarn; 0: not given */
    double mscale_all;           /* every type but the default; 0: not given */
    bool untruncated;            /* yarn: the blend may begin and end between two indices */
    double alpha;                /* dynamic: theta is times alpha^(rot / (rot - 2)); 0: unscaled */
    double growth;               /* strength of queries' growth with position / original_max; 0: none */
    /* longrope: divisors of the frequencies, for contexts up to original_max and for longer ones */
    float factors_short[ROPE_HALF_MAX], factors_long[ROPE_HALF_MAX];
    uint32_t factors;                 /* length of each list */
    double mscale_short, mscale_long; /* longrope: attention_factor of each; 0: not given */
    bool beyond;                      /* the context is longer: config_serve */
    uint32_t sections[3]; /* M-RoPE: frequencies of time, row and column; zeros: all are of time */
    bool interleaved;     /* T H W T H W ...; else one section after the other */
};

/* MLX affine parameters of one module. */
/* Forms of MLX: whole numbers with scales and biases, or small floats with scales. */
enum quantization_mode { QUANTIZATION_AFFINE, QUANTIZATION_MXFP4, QUANTIZATION_NVFP4, QUANTIZATION_MXFP8 };

struct quantization_entry {
    uint32_t bits, group;
    enum quantization_mode mode;
};

/* The writers whose tensors' names tell the rest. */
enum quantization_method {
    QUANTIZATION_MLX,
    QUANTIZATION_AWQ,
    QUANTIZATION_GPTQ,
    QUANTIZATION_GPTQ_V2,
    QUANTIZATION_SCALED, /* FP8, compressed-tensors, modelopt, MXFP4 of gpt-oss */
};

struct quantization {
    bool present;
    enum quantization_method method;
    uint32_t block_rows, block_columns; /* rows and columns that share a scale of FP8; 0: not given */
    uint32_t group; /* columns of a group of AWQ and GPTQ; 0: not given, UINT32_MAX: the whole row */
    /* The rest: MLX. */
    struct quantization_entry global;
    struct quantization_entry *entries; /* by module path */
    struct hash_map by_path;
};

struct config {
    const struct backend *backend; /* that computes it; its sizes are the plan's */
    enum compute_mode compute;     /* how */
    enum kv_form kv_form;          /* form of K and V in pages */
    uint32_t quant;                /* bits of codes that matrices of floats become; 0: they stay */
    enum compute_mode shown;       /* `compute` after binding: f32 where no matrix takes it */
    unsigned sums;                 /* sums that products need beside their inputs (weight.sums), after
                                    * binding */
    bool experts_apart;            /* some experts lie in the machine's memory, and the model on a device */
    unsigned experts_sums;         /* sums that their products need */
    const struct family *family;
    const struct tensor_naming *naming;   /* names of tensors; NULL: those of Hugging Face's files */
    char family_name[32];                 /* model_type without "_text" */
    char unknown_keys[MODEL_UNKNOWN_MAX]; /* keys that the file has (config_unknown.h) */
    bool text_alone; /* the file has encoders of images or sound, which are not computed */
    uint32_t layers, hidden, vocab, context_max;
    uint32_t heads, kv_heads, head_dim;
    uint32_t intermediate; /* dense MLP; 0: not given */
    float eps;
    float eps_after; /* epsilon of norms behind mixers and MLPs; 0: eps */
    bool layer_norm; /* norms take the mean off */
    bool tied;       /* the file's word; whether an lm_head exists decides */
    /* False: the file says that such matrices have none. */
    bool attention_biases, attention_out_biases, mlp_biases;
    /* Windows: of the layers from window_from on whose kind has one. */
    uint32_t window, window_from;
    uint32_t window_heads; /* heads of queries in layers with a window; 0: those of the others */
    bool use_window, use_qk_norm, use_expert_bias;
    uint32_t attention_gate;  /* enum attention_gate */
    uint32_t attention_value; /* width of a head's value; 0: head_dim */
    uint32_t window_before;   /* keys before a query that a window has; 0: `window` says how many */
    /* Numbers of layers without a window; 0: those of the others. */
    uint32_t global_head_dim, global_kv_heads;
    bool global_v_is_k;
    uint32_t kv_shared_layers; /* the last ones, which read an earlier layer's K and V */
    bool double_wide;          /* the MLP of those is twice as wide */
    uint32_t bidirectional;    /* attention among an image's tokens alone */
    bool causal;               /* the file's word */
    bool both_ways;            /* queries see later tokens, too */
    /* Learned positions: rows of their table, and the first one's; of the table of token types. 0: none. */
    uint32_t position_rows, position_first, token_types;
    uint32_t position_type, pad;
    /* Inputs per layer: their width, and ids in their table; 0: none. */
    uint32_t layer_input, layer_input_vocab;
    bool embedding_sqrt; /* the embedding is times sqrt(hidden) */
    /* Factors and caps; 0: none. */
    float embedding_scale, residual_scale, score_scale, score_scalar, logits_scale, logits_divisor;
    float score_cap, logits_cap;
    uint32_t activation;        /* the MLP's: enum activation */
    uint32_t gate_activation;   /* the delta net's gate: enum activation */
    float glu_alpha, glu_limit; /* constants of ACTIVATION_SWIGLU_CLIP */
    uint32_t rotary_dim;        /* that rotate, of a head; 0: not given */
    struct rope_config ropes[ROPES_MAX];
    uint32_t rope_count;
    struct layer_config *layer;         /* [layers] */
    uint32_t kv_count, recurrent_count; /* layers with K and V in the pages, and with a state */
    struct layer_config mtp_layer;      /* the MTP head's; index kv_count */
    /* Set by the caller; 0 after config_parse: */
    uint32_t mtp_count;              /* MTP layers that are computed, whose K and V lie in the pages */
    uint32_t drafts_max;             /* the longest draft after a known token */
    size_t page_beside, page_stride; /* model_parts */
    struct model_shards shards;      /* model_parts; count >= 1 */
    struct eagle *eagle;             /* an EAGLE-3 head in place of the checkpoint's own; NULL: none */
    uint32_t draft_vocab;            /* tokens among which the head looks for them; 0: all */
    /* Latent attention; 0 without such layers. Of a head, head_dim values rotate. */
    uint32_t q_rank, kv_rank;            /* rank of queries (0: none), and of keys and values */
    uint32_t nope_dim, latent_value_dim; /* widths of a head's key without rotation, and of its value */
    bool rope_interleave;                /* adjacent pairs rotate together */
    /* Experts; 0 = none. */
    bool use_experts;
    uint32_t experts, top_k, expert_intermediate, shared_intermediate;
    uint32_t expert_latent;  /* width of what experts read and give; 0: hidden */
    uint32_t shared_experts; /* shared experts, expert_intermediate wide each, where shared_intermediate is
                              * not given */
    float sparse_last;       /* the last layer that may have experts; -1: none is the last */
    uint32_t dense_layers, sparse_step; /* the first layers, and of those after them all but each n-th, are
                                           dense */
    uint32_t route_score;               /* enum route_score */
    uint32_t topk_method;               /* enum topk_method */
    bool normalise;                     /* the weights of the chosen experts sum to routed_scale */
    float routed_scale, route_jitter;
    float moe_scale;             /* factor of what experts add, the shared one included; 0: none */
    uint32_t moe_average;        /* the shared expert and the chosen ones count half */
    uint32_t dense_pattern;      /* 1: layers without experts rotate, whatever their kind */
    uint32_t groups, groups_top; /* groups of experts; 0: one */
    /* Mamba-2; zeros without such layers. */
    struct ssm_shape ssm;
    uint32_t ssm_inner, ssm_expand; /* head_dim 0: all heads are so wide, or hidden times expand */
    bool ssm_normed, ssm_norm_first;
    float ssm_dt_limit[2];    /* bounds of time steps; [1] 0: none */
    float ssm_multipliers[5]; /* factors of z, x, B, C, dt; 0: none */
    /* Factors of a mixer's input and result, of keys, and of an MLP's gate and result; 0: none. */
    float ssm_in_scale, ssm_out_scale, attention_in_scale, attention_out_scale, key_scale, mlp_scales[2];
    uint32_t rope_absent; /* in spite of the layers' kinds */
    /* Widths of MLPs that follow from intermediate_size: two thirds of it, times a factor, rounded up. */
    bool mlp_two_thirds;
    float mlp_factor;
    uint32_t mlp_multiple;
    /* Linear attention and short convolutions (conv_width alone); 0 without such layers. */
    uint32_t conv_width, key_heads, value_heads, key_dim, value_dim;
    bool decay_channels; /* each channel of a key has its decay */
    bool decay_bounded;  /* and it is above exp(decay_bound) */
    float decay_bound;   /* 0: none */
    struct quantization quantization;
    /* Set by config_lay_out. */
    struct compute_shape shape, beside_shapes[SHARDS_MAX - 1];
    /* Not set by config_parse: vision_config_load sets it, for a loaded vision encoder. Zeros: none. */
    struct vision_config vision;
    const struct vision_family *vision_family; /* the vision encoder that its files may have; NULL: none */
};

/* Parses `text`, config.json's content. `a` keeps layer kinds and quantisation entries. 0, -EINVAL,
 * -ENOTSUP (unknown family, quantisation or feature), -ENOMEM; e names key, value and limit. */
int config_parse(struct arena *a, struct slice text, struct config *ret, struct err *e);
int config_load(struct arena *a, struct model_files *files, struct config *ret, struct err *e);

/* Returns the form of K and V that KV_AUTO means with c->compute on c->backend. */
enum kv_form config_own_kv_form(const struct config *c);

/* Writes the numbers that the operations depend on into c->shape: all are set by now. `a` keeps the layouts
 * of pages and states. 0 or -ENOMEM. */
int config_lay_out(struct arena *a, struct config *c);

/* Fills in, after config_lay_out(), the layouts of a page and a state and the forms that c->backend has for K
 * and V. */
void config_fill_layouts(const struct config *c, struct model_shape *s);

/* Decides what depends on the longest sequence that is served, of `context` tokens; 0: the model's own. */
void config_serve(struct config *c, uint32_t context);

/* The frequencies of a rotary position embedding. */
void config_rope_init(struct rope *r, const struct rope_config *c);

/* Returns the factor of scores beside 1 / sqrt(head_dim), where the family has one: mscale_all_dim. */
double config_score_factor(const struct config *c);

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
