/* family.h - a family of models as its differences from llama (contract 11).
 *
 * A family is constant data: zeros are llama's. One checker (config.c), one layer_bind and one layer_forward
 * (layer.c) walk it; blocks (blocks.h) do what a layer does. docs/adding-a-family.md shows how a family is
 * added: an entry in a file family_*.c. */
#ifndef PLATEAU_MODEL_FAMILY_H
#define PLATEAU_MODEL_FAMILY_H

#include "model/config.h"
#include "model/config_key.h"
#include "model/role.h"

#include "compute/ops.h"

/* Where norms stand around the mixer and the MLP (contract 10.1). */
enum norm_place {
    NORM_PRE,      /* h += mix(n(h)) */
    NORM_POST,     /* h += n(mix(h)) */
    NORM_SANDWICH, /* h += n(mix(n(h))) */
};

/* Norms whose files hold w - 1. */
enum norm_shift {
    SHIFT_NONE,
    SHIFT_HF, /* in Hugging Face's files, not in MLX's */
    SHIFT_ALL,
};

/* Norms of queries and keys, in front of the rotation. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,   /* of each head */
    QK_NORM_ALL,    /* of all heads together */
    QK_NORM_OPTION, /* of each head, with config.use_qk_norm */
};

/* A kind of layer, by its names in layer_types. */
enum kind_rope {
    KIND_ROPE_MAIN,
    KIND_ROPE_LOCAL, /* a second table, without scaling */
    KIND_ROPE_NONE,
};

struct layer_kind {
    const char *names[3];
    const struct block *mixer;
    bool windowed;
    enum kind_rope rope;
};
#define LAYER_KINDS_MAX 4

/* Which layers have which kind where the file lists none: of every `every` layers the last one is of the
 * family's first kind, the others of its second. The keys may give another number. */
struct layer_pattern {
    const char *keys[3];
    uint32_t every; /* 0: all layers are of the first kind */
};

/* Its layers' experts, unless a key of config.json says otherwise (contract 10.4). */
struct expert_form {
    enum route_score score;
    enum route_shared shared;
    bool correction; /* ROLE_ROUTER_CORRECTION chooses, the score weighs */
    bool normalise;
    float normalise_eps;
    bool mlp_only; /* mlp_only_layers lists dense layers */
};

struct family {
    const char *names[4];                     /* model_type, without "_text" */
    const struct tensor_name *tensors;        /* named otherwise; NULL: none */
    const struct config_key *keys;            /* declared in addition or otherwise; NULL: none */
    struct layer_kind kinds[LAYER_KINDS_MAX]; /* none: full attention */
    struct layer_pattern pattern;
    enum norm_place norm_place;
    enum norm_shift norm_shift;
    enum qk_norm qk_norm;
    bool attention_gate;                 /* q_proj holds query and gate of each head in turn */
    const struct expert_form *experts;   /* layers may have them instead of the dense MLP; NULL: none */
    double rotary_part;                  /* of a head; 0: all of it */
    double rope_theta, rope_theta_local; /* where the file has none; 0: 10000, and the main one's */
    bool rope_adjacent;                  /* pairs (2 j, 2 j + 1) turn together */
    bool embedding_sqrt;                 /* the embedding is times sqrt(hidden) */
    bool images;                         /* its checkpoints may have a vision encoder */
    bool deepstack;                      /* whose features also go to the first layers */
    bool mtp;                            /* or an MTP head, one of its full-attention layers */
};

/* A file's families; the last one has no names. */
extern const struct family families_llama[];
extern const struct family families_qwen[];
extern const struct family families_gemma[];
extern const struct family families_olmo[];
extern const struct family families_glm[];

/* By model_type. Returns NULL for an unknown one. */
const struct family *family_find(const char *model_type);
/* "llama, qwen3, ..." */
const char *family_list(char *ret, size_t bytes_max);

#endif
