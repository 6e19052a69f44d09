/* family.h - a family of models as its differences from llama (contract 11).
 *
 * A family is constant data: zeros are llama's. One checker (config.c), one layer_bind and one layer_forward
 * (layer.c) walk it; blocks (blocks.h) do what a layer does. docs/adding-a-family.md shows how a family is
 * added: an entry in a file family_*.c. */
#ifndef PLATEAU_MODEL_FAMILY_H
#define PLATEAU_MODEL_FAMILY_H

#include "model/config/config.h"

#include "compute/ops.h"

struct config_key;
struct key_word;
struct tensor_name;

/* Where norms stand around the mixer and the MLP (contract 10.1). */
enum norm_position {
    NORM_PRE,      /* h += mix(n(h)) */
    NORM_POST,     /* h += n(mix(h)) */
    NORM_SANDWICH, /* h += n(mix(n(h))) */
    NORM_PARALLEL, /* h += mix(n(h)) + mlp(n(h)), of one norm */
    NORM_STREAM,   /* h = n(h + mix(h)), and of the embedding h = n(h) */
};

/* Norms whose files hold w - 1. */
enum norm_shift {
    SHIFT_NONE,
    SHIFT_HF, /* in Hugging Face's files, not in MLX's */
    SHIFT_ALL,
};

/* Norms of queries and keys, in front of the rotation unless said otherwise. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,    /* each head is normed */
    QK_NORM_ALL,     /* all heads are normed together */
    QK_NORM_OPTION,  /* each head is normed with config.use_qk_norm */
    QK_NORM_ROTATED, /* each head is normed after the rotation */
    QK_NORM_PLAIN,   /* each head is normed, without a weight */
};

/* A kind of layer, by its names in layer_types. */
enum kind_rope {
    KIND_ROPE_MAIN,
    KIND_ROPE_LOCAL, /* a second table, without scaling */
    KIND_ROPE_NONE,
    KIND_ROPE_WINDOWED, /* none in a model with windows, whose other layers rotate */
};

struct layer_kind {
    const char *names[3];
    const struct block *mixer;
    const struct block *beside; /* a second mixer; NULL: none */
    bool alone;                 /* no MLP follows the mixer, which may be one */
    bool windowed;
    enum kind_rope rope;
};
#define LAYER_KINDS_MAX 4

/* Which layers have which kind where the file lists none: of every `every` layers the last one is of the
 * family's first kind, the others of its second. The keys may give another number. */
struct layer_pattern {
    const char *keys[3];
    uint32_t every;       /* 0: all layers are of the first kind */
    const char *first;    /* a key that lists the layers of the first kind instead; NULL: none */
    bool from_one;        /* it counts them from 1; without it layers have no kinds */
    bool last;            /* the last layer is of the first kind, too */
    bool also_first;      /* and layer 0 */
    bool listed_if_dense; /* files with dense layers list the kinds */
    bool leads;           /* the first of every `every` layers is, not the last */
};

/* How stacks of experts lie in Hugging Face's files (MLX has rows of outputs everywhere). */
enum stack_order {
    STACK_ROWS,                /* [experts, out, in] */
    STACK_ANY,                 /* that, or [experts, in, out] */
    STACK_COLUMNS_INTERLEAVED, /* [experts, in, out]; a gate and its up side by side */
};

/* Its layers' experts, unless a key of config.json says otherwise (contract 10.4). */
struct expert_form {
    enum route_score score;
    enum route_shared shared;
    bool correction; /* ROLE_ROUTER_CORRECTION chooses, the score weighs */
    bool normalise;
    float normalise_eps;
    bool mlp_only; /* mlp_only_layers lists dense layers */
    enum stack_order order;
    bool beside; /* they stand beside a dense MLP */
    bool plain;  /* down(f(up x)), without a gate, the shared one too */
};

/* Where its checkpoints may have an MTP head (mtp_bind.c). */
enum mtp_form {
    MTP_NONE,
    MTP_LAYERS, /* names of their own, "mtp.": one full-attention layer */
    MTP_PAIR,   /* below "mtp.", too; its mixer and its MLP are layers 0 and 1 there */
    MTP_BLOCK,  /* beside the model's tensors, with a dense MLP; its norm is the model's final one */
    MTP_NEXT,   /* the layer after the model's */
};

#define FAMILY_NAMES_MAX 4

struct family {
    const char *names[FAMILY_NAMES_MAX];   /* model_type, without "_text" */
    const char *parents[FAMILY_NAMES_MAX]; /* model_type of a file whose text_config is of this family */
    const struct tensor_name *tensors;     /* named otherwise; NULL: none */
    const struct config_key *keys;         /* declared in addition or otherwise; NULL: none */
    const char *defaults; /* values of keys that config.json leaves out, as JSON with ' for "; NULL: none */
    const char *layers;   /* in front of a layer's number; NULL: "layers" */
    struct layer_kind kinds[LAYER_KINDS_MAX]; /* none: full attention */
    struct layer_pattern pattern;
    enum norm_position norm_position;
    enum norm_shift norm_shift;
    bool layer_norm;     /* norms of the residual stream take the mean off */
    bool rms_norm_named; /* unless the file has rms_norm_eps */
    enum qk_norm qk_norm;
    bool sinks;                   /* ROLE_SINKS takes part in the softmax of scores */
    bool sinks_windowed;          /* in layers with a window alone */
    bool attention_gate;          /* q_proj holds query and gate of each head in turn */
    enum attention_gate own_gate; /* ROLE_ATTENTION_GATE is their matrix */
    enum head_gate own_gate_function;
    const struct block *mlp;           /* the dense one; NULL: block_mlp */
    const struct expert_form *experts; /* layers may have them instead of the dense MLP; NULL: none */
    double rotary_part; /* the part of a head that rotates where the file does not say; 0: all of it, and no
                           other part with the default rotation */
    double rope_theta, rope_theta_local; /* where the file has none; 0: 10000, and the main one's */
    const struct key_word *rope_types;   /* names of its own for types of rotation; NULL: none */
    uint32_t rope_except;   /* every so many layers one does not rotate, unless no_rope_layers says which; 0:
                             all do */
    bool query_growth;      /* queries grow with their position by llama_4_scaling_beta */
    bool rope_mscales;      /* longrope's factors of cosines and sines are short_mscale and long_mscale */
    bool rope_listed;       /* rope_theta and partial_rotary_factors may be lists of layers */
    bool thetas_listed;     /* layer_rope_theta has each layer's theta; 0: it does not rotate */
    bool rope_part_of_head; /* latent attention: partial_rotary_factor is a part of a head's whole key */
    bool rope_adjacent;     /* pairs (2 j, 2 j + 1) turn together */
    bool rope_proportional; /* the main table's type where the file has none */
    float score_scale;      /* factor of scores; 0: by the head's size */
    bool v_norm;            /* each head of the values is normed, without a weight */
    bool layers_padded;     /* lists of layers may have the MTP head's, too */
    bool limits_listed;     /* swiglu_limits and swiglu_limits_shared have bounds of each layer */
    bool heads_listed;      /* num_attention_heads_per_layer has the heads of queries of each layer */
    bool kv_twice_windowed; /* layers with a window have twice as many KV heads */
    bool single_layers;     /* per_layer_config has numbers of single layers */
    bool layer_scale;       /* the residual stream is times a number after each layer */
    bool embedding_norm;    /* the embedding is normed, without a weight */
    bool final_norm_plain;  /* the final norm's file holds w, whatever the others hold */
    bool embedding_sqrt;    /* the embedding is times sqrt(hidden) */
    bool encoder;           /* all of a text sees all of it, positions have rows of a table, and nothing is
                             generated */
    bool positions_after_pad; /* the first position's row is the one after the pad token's id, and a pad
                               token has the row of its id */
    enum mtp_form mtp;
};

/* A file's families; the last one has no names. */
extern const struct family families_llama[];
extern const struct family families_qwen[];
extern const struct family families_gemma[];
extern const struct family families_olmo[];
extern const struct family families_glm[];
extern const struct family families_mamba[];
extern const struct family families_lfm[];
extern const struct family families_cohere[];
extern const struct family families_granite[];
extern const struct family families_hunyuan[];
extern const struct family families_phi[];
extern const struct family families_gpt_oss[];
extern const struct family families_mixtral[];
extern const struct family families_deepseek[];
extern const struct family families_gated[];
extern const struct family families_kda[];
extern const struct family families_bert[];

/* By model_type. Returns NULL for an unknown one. */
const struct family *family_find(const char *model_type);
/* The family's name that a model_type or its parent's says. */
const char *family_name(const struct family *f, const char *model_type);
/* Why a known family is not computed; NULL: it is no such family. */
const char *family_refused(const char *model_type);
/* "llama, qwen3, ..." */
const char *family_list(char *ret, size_t bytes_max);

#endif
