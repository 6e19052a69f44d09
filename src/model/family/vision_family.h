/* vision_family.h - a family of vision encoders as data: names of its tensors, and what differs from others.
 *
 * A family is constant. The reader of vision_config, the binder (vision_weights.c) and the encoder
 * (vision_ops.c) walk it, and no code looks for a family's name. A part exists if its tensor has a name:
 * positions, a gate, a norm in front of the blocks. docs/adding-a-family.md says how a family is added. */
#ifndef PLATEAU_MODEL_VISION_FAMILY_H
#define PLATEAU_MODEL_VISION_FAMILY_H

#include "model/model.h"

#include "compute/encode.h"

#include <stdbool.h>
#include <stdint.h>

/* Tensors by role. '#' in a name is the number of a block, or of a DeepStack merger. */
enum vision_role {
    VISION_ROLE_PIXEL_NORM, /* norm of a patch's pixels */
    VISION_ROLE_PATCHES,    /* filters of the patch embedding */
    VISION_ROLE_EMBED_NORM, /* norm of the patch embedding */
    VISION_ROLE_CLASS,      /* row of the class token, which only attention reads */
    VISION_ROLE_POSITIONS,  /* table of learned positions (vision_family.positions) */
    VISION_ROLE_FIRST_NORM, /* norm of the embedding with its position */
    VISION_ROLE_MIX_NORM,
    VISION_ROLE_QKV, /* queries | keys | values in one tensor, or the next three */
    VISION_ROLE_Q,
    VISION_ROLE_K,
    VISION_ROLE_V,
    VISION_ROLE_Q_NORM, /* norms of each head's query and key */
    VISION_ROLE_K_NORM,
    VISION_ROLE_OUT,
    VISION_ROLE_MIX_POST,    /* norms of what a block's attention and MLP add */
    VISION_ROLE_MIX_FACTORS, /* factors of attention's result */
    VISION_ROLE_MLP_FACTORS, /* factors of the MLP's result */
    VISION_ROLE_MLP_NORM,
    VISION_ROLE_GATE, /* down(f(gate x) * up x); without it down(f(up x)) */
    VISION_ROLE_UP,
    VISION_ROLE_DOWN,
    VISION_ROLE_MLP_POST,
    VISION_ROLE_LAST_NORM, /* norm of a patch after the last block */
    VISION_ROLE_STD_BIAS,  /* a mean of patches becomes (mean - bias) * scale */
    VISION_ROLE_STD_SCALE,
    VISION_ROLE_MERGE_NORM,    /* norm of a patch, or of a mean, in front of the merger */
    VISION_ROLE_MERGE_SQUEEZE, /* the patches of a token become as wide as one */
    VISION_ROLE_MERGE_PROJ,    /* a product after the squeeze, with a LayerNorm and GELU */
    VISION_ROLE_MERGE_PROJ_NORM,
    VISION_ROLE_MERGE_GATE,        /* the merger has a gate, as an MLP */
    VISION_ROLE_MERGE_UP,          /* without it the merger is one product */
    VISION_ROLE_MERGE_DOWN,        /* the last product, whose result is a token's embedding */
    VISION_ROLE_MERGE_DOWN_TURNED, /* the tensor [in, out], whose name has no ".weight" */
    VISION_ROLE_DEEP_NORM,         /* norm of DeepStack's mergers, over the patches of a token together */
    VISION_ROLE_DEEP_UP,
    VISION_ROLE_DEEP_DOWN,
    VISION_ROLES
};

/* A key of the preprocessor's file, and its default. */
struct vision_number {
    const char *key;
    uint32_t absent;
};

/* How images become tiles. With `longest`, the default of size.longest_edge, max_image_size.longest_edge is a
 * tile's edge and do_image_splitting wants them; else as many as these keys allow, of the nearest ratio. */
struct vision_tiles {
    bool beside; /* these keys are in config.json, as is use_thumbnail */
    uint32_t longest;
    uint32_t
        edge; /* default of tile_size: images have as many tokens as their area, or tiles beyond a limit */
    struct vision_number min, max;
};

/* A key of vision_config with the only value that is computed. */
struct vision_only {
    const char *key;
    const char *word; /* NULL: the value is `flag` */
    bool flag;
};

struct vision_family {
    const char *names[6];    /* model_type of config.json */
    const char *prefixes[4]; /* in front of all names: the checkpoint has one of them */
    const char *roots[3];    /* stands for '@' in names, and some name begins so: the first that the
                              * checkpoint has. None: any name will do */
    const char *tensors[VISION_ROLES];
    uint32_t frames;                 /* frames of a patch, 1 or 2 */
    enum encode_positions positions; /* layout of the table of positions */
    bool biases;                     /* products must have biases; else they may */
    bool rms;                        /* norms are RMSNorms, without biases */
    double eps;                      /* default epsilon of norms */
    enum encode_rotation rotation;   /* rotation of queries and keys by row and column */
    bool named_pairs;                /* GGUF files have rows that rotate together side by side */
    bool plain_scores;               /* scores have no factor; else one by the head's size */
    bool v_norm;                     /* each head of the values is normed, without a weight */
    bool pools;                      /* tokens are means of patches, else patches side by side */
    bool pool_sqrt;                  /* the means are times the root of their width */
    bool merge_plain;                /* the merger's norm is an RMSNorm without a weight */
    bool budget;            /* images have max_soft_tokens tokens at most, merged by pooling_kernel_size */
    bool no_blocks;         /* patches of a token are one, and there are no blocks */
    double theta;           /* default base of the rotation */
    const char *activation; /* default activation of the MLP */
    bool everywhere;        /* GPUs compute it, too */
    bool text_eps;          /* the merger's norm has the text's epsilon */
    bool text_norm;         /* the merger's norm is an RMSNorm as the text's, which may hold w - 1 */
    const char *eps_key;    /* key of the epsilon; NULL: none */
    const char *merge_key;  /* key beside vision_config of patches of a token's edge, or of one part
                                      * of them; NULL: spatial_merge_size */
    const char *mid_key;    /* key of the merger's middle width; NULL: none */
    const char *merge_norm_key; /* key beside vision_config: whether the merger has a norm; NULL: it has */
    bool patches_flat;          /* the patch embedding is a matrix, its input pixel by pixel */
    double merge_eps;           /* epsilon of the merger's norm; 0: that of norms */
    bool token_norm;            /* the merger's norm is over a token's patches together */
    bool mid_of_text;           /* the merger's middle is as wide as the text */
    struct vision_only only[6];
    struct vision_only only_beside[6]; /* the only values of keys beside vision_config */
    const char *image_word;            /* text of the image token; NULL: config.json has its id */
    uint32_t filter;                   /* model_vision.filter */
    bool windows;                      /* attention of most blocks stays in windows of tokens (window_size) */
    bool patches_unbiased;             /* the patch embedding has no bias, although blocks have some */
    bool wide_merger;                  /* intermediate_size is the merger's, out_hidden_size the blocks' */
    bool sections_apart;               /* sections of the text's rotation lie one after the other */
    bool counts_frames;                /* bounds of an image's area are of both its frames together */
    bool no_videos;                    /* videos have positions in time that are not computed */
    bool video_images;                 /* model_vision.video_images, and frames at fixed times */
    uint64_t video_pixels_min, video_pixels_max; /* where the preprocessor's file has none */
    uint64_t pixels_min, pixels_max;             /* IMAGE_BY_AREA: where the preprocessor's file has none */
    uint32_t patches_max;                        /* IMAGE_PADDED: where the preprocessor's file has none */
    uint32_t merge;                              /* default of patches of a token's edge */
    enum model_image_size size;
    float mean[ENCODE_CHANNELS], std[ENCODE_CHANNELS]; /* defaults for pixels as numbers of 0 to 1 */
    const struct model_image_marks *marks;
    const struct vision_tiles *tiles; /* NULL: none */
    bool linear;                      /* model_vision.linear; such a model reads no videos */
    bool both_ways;                   /* model_vision.both_ways */
    bool windowed_ways; /* model_vision.both_ways if use_bidirectional_attention asks, in windows alone */
};

/* The family of a model_type; NULL: its images are not computed. */
const struct vision_family *vision_family_find(const char *model_type);
/* Row `index` of the table; NULL behind the last one. */
const struct vision_family *vision_family_at(size_t index);

static inline bool vision_family_reads_videos(const struct vision_family *t)
{
    return !t->linear && !t->no_videos;
}

#endif
