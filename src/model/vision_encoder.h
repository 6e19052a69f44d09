/* vision_encoder.h - encodes one image with the vision encoder, in pieces.
 *
 * Passes go over slices of patches. The first is the embedding. Then each block has two: keys and values of
 * all patches, and everything else of one slice after another. A slice's intermediate values are small and
 * stay in the cache. So of an image only the residual stream and one block's keys and values are kept.
 *
 * The engine's thread, inside a turn of the workers. */
#ifndef PLATEAU_MODEL_VISION_ENCODER_H
#define PLATEAU_MODEL_VISION_ENCODER_H

#include "model/config/vision_config.h"
#include "model/vision.h"
#include "model/vision_ops.h"

#include "compute/encode.h"
#include "memory/dev.h"

struct account;
struct compute;
struct ledger;
struct units;
struct vision_weights;

struct vision_encoder_pass {
    uint8_t sequence;
    uint8_t feature; /* MERGE: which of a token's; 0 is the embedding, the others DeepStack's */
    uint16_t block;  /* KEYS, MIX */
};
#define ENCODER_PASSES_MAX (2 * VISION_DEPTH_MAX + VISION_DEEPSTACK_MAX + 2)

/* Arrays in the committed memory; an image's, then a slice's. */
struct vision_encoder_arrays {
    struct encode_rows h;   /* [patches][hidden]: the residual stream */
    struct encode_rows x;   /* [slice][hidden] */
    struct encode_rows y;   /* [slice][2 * hidden]: outputs of products; keys | values, queries */
    struct encode_rows mid; /* [slice][intermediate, twice with a gate, or a patch's values] */
    struct encode_rows merged, squeezed; /* [slice's tokens][merged] and [hidden], in the memory of x and y */
    struct encode_rows merged_mid;       /* [slice's tokens][what the merger's last product reads]: mid's */
};

struct vision_encoder {
    /* Constant. */
    const struct backend *backend;
    const struct vision_config *config;
    const struct vision_weights *weights;
    struct compute *compute;
    struct encode_shape shape;
    struct vision_encoder_pass passes[ENCODER_PASSES_MAX];
    uint32_t pass_count;
    struct vision_op_list lists[ENCODER_SEQUENCES];
    /* Memory: the first units_committed() units are there. */
    struct ledger *uncounted;       /* used without an account */
    struct account *uncounted_root; /* root of a device's domain */
    struct account *account;
    struct units *units;
    /* The image. */
    bool busy;
    dev_ptr features; /* the result */
    struct encode_image image;
    uint32_t patches, slices;
    struct vision_encoder_arrays a;
    /* The position in the work: pass, slice, operation of the sequence, and where in that. */
    uint32_t pass, slice, stage, at;
};

/* Fills the fields of model_vision that describe the cost of encoding. */
void vision_encoder_cost(const struct config *c, struct model_vision *ret);
/* `e` is zeroed; its account is opened below `parent`, which is of the domain or NULL. 0 or -ENOMEM. Call
 * vision_encoder_done() in either case. */
int vision_encoder_init(struct vision_encoder *e, const struct config *c, const struct vision_weights *t,
                        struct compute *compute, const struct domain *domain, struct account *parent);
/* Fine on a zeroed struct. The other functions are in model/vision.h. */
void vision_encoder_done(struct vision_encoder *e);

#endif
