/* vision_encoder.h - encodes one image with the vision encoder, in pieces.
 *
 * Passes go over slices of patches. The first is the embedding. Then each block has two: keys and values of
 * all patches, and everything else of one slice after another. A slice's intermediate values are small and
 * stay in the cache. So of an image only the residual stream and one block's keys and values are kept.
 *
 * Passes consist of stages, stages of tiles; a piece is a few tiles of one stage, for each worker about as
 * much work. A tile's result depends on the image alone, not on pieces, workers or other work in between.
 * The engine's thread, inside a turn of the workers; the tiles run on the workers. */
#ifndef PLATEAU_MODEL_VISION_ENCODER_H
#define PLATEAU_MODEL_VISION_ENCODER_H

#include "compute/cpu/cpu.h"
#include "model/vision_weights.h"
#include "model/vision.h"

#include "memory/units.h"

/* Which stages a pass consists of. */
enum vision_encoder_sequence { ENCODER_EMBED, ENCODER_KEYS, ENCODER_MIX, ENCODER_MERGE };

struct vision_encoder_pass {
    uint8_t sequence;
    uint8_t feature; /* MERGE: which of a token's; 0 is the embedding, the others DeepStack's */
    uint16_t block;  /* KEYS, MIX */
};
#define ENCODER_PASSES_MAX (2 * VISION_DEPTH_MAX + VISION_DEEPSTACK_MAX + 2)

/* Arrays in the committed memory; an image's, then a slice's. */
struct vision_encoder_arrays {
    float *h;               /* [patches][hidden]: the residual stream */
    char *kv;               /* [heads][pages] pages of one head: K transposed, V */
    uint32_t *pages;        /* [pages]: 0, 1, 2, ... */
    float *cosines, *sines; /* [edge][head_dim / 4], of a row or a column */
    float *levels;          /* [channels][256]: value of a pixel's byte */
    float *x;               /* [slice][x_stride], and [slice's tokens][merged_stride] */
    float *y;               /* [slice][y_stride]: outputs of products; keys | values, queries */
    float *mid;             /* [slice][mid_stride], and [slice's tokens][merged_stride] */
    float *max, *sum;       /* [heads][slice]: of attention over the keys read until now */
    float *sums;            /* [slice][sums_stride]: group sums, where a matrix is quantised */
    const float **column_x, **column_sums; /* [slice] */
    float **column_y;
};

struct vision_encoder {
    /* Constant. */
    const struct vision_config *config;
    const struct vision_weights *weights;
    struct cpu *cpu; /* kernels, workers, and each worker's memory for attention */
    uint32_t slice_max;
    uint32_t x_stride, y_stride, mid_stride, merged_stride, sums_stride;
    struct vision_encoder_pass passes[ENCODER_PASSES_MAX];
    uint32_t pass_count;
    /* Memory: the first units_committed() units are there. */
    struct ledger *uncounted; /* used without an account */
    struct account *account;
    struct units *units;
    /* The image. */
    bool busy;
    struct model_image image;
    uint32_t rows, columns, patches; /* rows and columns of patches */
    uint32_t slices, page_count;
    struct vision_encoder_arrays a;
    /* The position in the work: pass, slice, stage within the sequence (attention has several, a range of
     * keys each), next tile. */
    uint32_t pass, slice, stage, range, tile;
    uint8_t op; /* enum vision_encoder_op of the stage that is being computed */
};

/* Fills the fields of model_vision that describe the cost of encoding. */
void vision_encoder_cost(const struct vision_config *v, struct model_vision *ret);
/* `e` is zeroed; its account is opened below `parent`, which may be NULL. 0 or -ENOMEM. Call
 * vision_encoder_done() in either case. */
int vision_encoder_init(struct vision_encoder *e, const struct config *c, const struct vision_weights *t,
                        struct compute *compute, struct account *parent);
/* Fine on a zeroed struct. */
void vision_encoder_done(struct vision_encoder *e);

int vision_encoder_begin(struct vision_encoder *e, const struct model_image *p);
bool vision_encoder_run(struct vision_encoder *e, uint64_t deadline_ns);
void vision_encoder_stop(struct vision_encoder *e);
void vision_encoder_progress(const struct vision_encoder *e, uint64_t *done, uint64_t *all);
bool vision_encoder_trim(struct vision_encoder *e);

/* ---- between vision_encoder.c and vision_tiles.c ---- */

enum vision_encoder_op {
    OP_PIXELS,     /* mid = patches of pixels */
    OP_EMBED,      /* h = product of mid */
    OP_PLACE,      /* h += bias and learned positions */
    OP_NORM,       /* x = norm of h */
    OP_KEY_VALUE,  /* y = product of x */
    OP_KEYS,       /* bias, rotate, into the pages */
    OP_QUERY,      /* y = product of x */
    OP_QUERIES,    /* bias, rotate */
    OP_ATTEND,     /* x = attention of y, a range of keys at a time */
    OP_OUT,        /* y = product of x */
    OP_MIX,        /* h += y and bias; x = norm of h */
    OP_UP,         /* mid = product of x */
    OP_GELU,       /* bias, gelu */
    OP_DOWN,       /* y = product of mid */
    OP_ADD,        /* h += y and bias */
    OP_GATHER,     /* x = norm of h, token by token */
    OP_MERGE_UP,   /* mid = product of x */
    OP_MERGE_GELU, /* bias, gelu */
    OP_MERGE_DOWN, /* features = product of mid */
    OP_FEATURE,    /* bias */
};

/* One stage of one slice. */
struct vision_encoder_stage {
    workers_fn *fn; /* its arg is the encoder */
    uint32_t tiles;
    uint64_t tile_cost; /* multiply-adds, about */
};
/* Prepares the stage `op` of the present slice. */
struct vision_encoder_stage vision_encoder_stage(struct vision_encoder *e, enum vision_encoder_op op);
/* Ranges of keys that attention takes one after another. */
uint32_t vision_encoder_ranges(const struct vision_encoder *e);

#endif
