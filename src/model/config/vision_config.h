/* vision_config.h - the vision encoder as checked numbers.
 *
 * From config.json (vision_config and the ids beside it) and the files of the image and video
 * preprocessors (contract 4.1), each of which may be missing. The bounds ensure that the sizes of all
 * tensors and of any image fit 64 bits. Constant once read. */
#ifndef PLATEAU_MODEL_VISION_CONFIG_H
#define PLATEAU_MODEL_VISION_CONFIG_H

#include "model/model.h"

#include "compute/encode.h"

#include <jansson.h>

struct config;
struct model_files;
struct vision_family;

#define VISION_DEPTH_MAX     256
#define VISION_HIDDEN_MAX    ENCODE_HIDDEN_MAX
#define VISION_DEEPSTACK_MAX 8
#define VISION_PATCH_MAX     64
#define VISION_MERGE_MAX     4
#define VISION_GRID_MAX      1024 /* largest edge of a grid of learned positions */
#define VISION_SMOOTH_MAX    32 /* edge of one that is resized: a small image reads many positions a patch */
#define VISION_AXIS_MAX      65536      /* most positions of one axis */
#define VISION_EDGE_MAX      8192       /* longer edge of an image */
#define VISION_TILES_MAX     64         /* tiles of an image */
#define VISION_PIXELS_MAX    (1u << 28) /* largest image */
/* Default limit of an image: 4 megapixels. */
#define VISION_PIXELS_USUAL 4194304u
#define VISION_CHANNELS     ENCODE_CHANNELS

struct vision_config {
    struct model_vision shape;
    const struct vision_family *family;
    uint32_t depth, hidden, heads, head_dim, intermediate;
    uint32_t frames;            /* frames of a patch */
    enum glu_function function; /* the MLP's activation */
    bool gated;                 /* the MLP has a gate */
    bool clipped;               /* matrices of blocks have bounds of what they read and of their results */
    bool standardizes;          /* means of patches are standardised */
    uint32_t pooling;           /* with vision_family.budget: patches of a token's edge */
    float eps, merge_eps;       /* epsilon of norms, and of the merger's */
    bool merge_bare;            /* the merger has no norm */
    uint32_t mid;               /* values of the merger's middle; 0: the family says */
    uint32_t grid;              /* edge of the table of learned positions, or rows of one axis */
    uint32_t out;               /* values of a token: the text model's hidden */
    uint32_t merge_mid;         /* values of a token that the merger's last product reads */
    double theta;
    uint32_t deepstack[VISION_DEEPSTACK_MAX]; /* blocks, ascending */
    uint32_t deepstack_count;
    uint32_t window;                /* tokens of a window's edge; 0: no windows */
    uint32_t all[VISION_DEPTH_MAX]; /* with windows: blocks whose attention sees the whole image */
    uint32_t all_count;
    char unknown_keys[MODEL_UNKNOWN_MAX];              /* keys that vision_config has (config_unknown.h) */
    float mean[VISION_CHANNELS], std[VISION_CHANNELS]; /* mean and deviation of pixels as numbers of 0 to 1 */
};

/* The limits of model_parts.image_pixels_max and image_tokens. */
struct vision_limits {
    uint64_t pixels_max;
    uint32_t tokens;
};

/* `image` and `video`: the preprocessors' files; NULL: missing. 0, -EINVAL, -ENOTSUP (another kind of vision
 * encoder), with key, value and limit in e. */
int vision_config_read(const json_t *config, const json_t *image, const json_t *video,
                       const struct config *text, const struct vision_limits *limits,
                       struct vision_config *ret, struct err *e);
/* As `vision_config_read()`, but from the model's files. Also the errors of reading them, but not -ENOENT. */
int vision_config_load(struct model_files *files, const struct config *text,
                       const struct vision_limits *limits, struct vision_config *ret, struct err *e);

/* Whether a block sees all of an image that has windows. */
bool vision_sees_all(const struct vision_config *v, uint32_t block);

static inline uint32_t vision_patch_values(const struct vision_config *v)
{
    return VISION_CHANNELS * v->frames * v->shape.patch * v->shape.patch;
}

/* Values that become of a token's patches with VISION_ROLE_MERGE_SQUEEZE. */
uint32_t vision_squeezed(const struct vision_config *v);

/* Values of a patch that a product reads, at most; one of the merger reads those of a token's patches. */
uint32_t vision_read_max(const struct vision_config *v);

/* Whether the merger has a norm although the patches have had the one after the last block. */
bool vision_norms_twice(const struct vision_config *v);

/* Values of the patches that make one token. */
static inline uint32_t vision_merged(const struct vision_config *v)
{
    return v->hidden * v->shape.merge * v->shape.merge;
}

#endif
