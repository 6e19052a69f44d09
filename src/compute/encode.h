/* encode.h - the compute contract, second part: the block operations of a vision encoder.
 *
 * An image is encoded beside other work, so an operation here is done piece by piece. A piece takes well
 * under a millisecond, or goes into the queue of a device, which holds little more than that. An operation
 * goes over rows: patches of the image, or tokens that merge some of them. A row's result depends on the
 * image alone, not on pieces, rows beside it or other work in between. Arrays lie in memory that the caller
 * has committed for the image. An operation fails with its device only. The engine's thread, inside a turn of
 * the device. */
#ifndef PLATEAU_COMPUTE_ENCODE_H
#define PLATEAU_COMPUTE_ENCODE_H

#include "compute/mode.h"
#include "compute/ops.h"
#include "memory/dev.h"

#include <stdbool.h>
#include <stdint.h>

#define ENCODE_CHANNELS   3
#define ENCODE_FRAMES     2 /* frames of one patch, at most */
#define ENCODE_HIDDEN_MAX 8192

/* Rows of an array: row i begins i * stride floats after `at`; sums_at: 0, or where a backend keeps what
 * products need of a row beside it. */
struct encode_rows {
    dev_ptr at;
    uint32_t stride, sums_at;
};

/* Rotation of queries and keys: the first half of a head turns by the row, the other one by the column. */
enum encode_rotation {
    ENCODE_ROTATE_NONE,
    ENCODE_ROTATE_EQUAL,     /* rows and columns have the same frequencies: every second one of a head's */
    ENCODE_ROTATE_ALTERNATE, /* rows have the even ones of a head's frequencies, columns the odd ones */
    ENCODE_ROTATE_PAIRS,     /* pairs (2 j, 2 j + 1) of a head turn, by the column and by the row in turn */
    ENCODE_ROTATE_APART,     /* each half of a head rotates by itself, the first one by the column */
};

/* Learned positions. */
enum encode_positions {
    ENCODE_POSITIONS_SQUARE, /* a row for each patch of a square grid, whose corners are the image's */
    ENCODE_POSITIONS_CUBIC,  /* a row for each patch of a square grid, between which a filter interpolates */
    ENCODE_POSITIONS_AXES,   /* rows of columns, then rows of rows: a patch has the sum of two */
    ENCODE_POSITIONS_PAIRS,  /* rows of columns and of rows alternate */
    ENCODE_POSITIONS_SMOOTH, /* a square, resized to the image with a bilinear filter and antialias */
};

/* Properties of an encoder that its private arrays depend on. */
struct encode_shape {
    uint32_t hidden, heads, head_dim; /* heads 0: there is no attention */
    uint32_t patch, merge;            /* pixels of a patch's edge; patches of a token's edge */
    uint32_t frames;                  /* frames of a patch, 1 or 2 */
    uint32_t window;                  /* tokens of a window's edge; 0: there are no windows */
    uint32_t slice_max;               /* patches of one operation */
    uint32_t read_max;                /* values of a patch that a product reads, at most */
    enum compute_mode mode;           /* mode of the weights */
    bool class_row;                   /* after all patches comes one row more, the class token's */
    bool channels_last;               /* a patch is [frame][y][x][channel]; else [channel][frame][y][x] */
    enum encode_rotation rotation;
    enum encode_positions positions;
    bool plain_scores;                                 /* scores have no factor */
    double theta;                                      /* base of the rotation */
    unsigned sums;                                     /* sums that its products need beside their inputs */
    float mean[ENCODE_CHANNELS], std[ENCODE_CHANNELS]; /* mean and deviation of pixels as numbers of 0 to 1 */
};

/* The image under way. Patches go token by token, and within one row by row: each run of merge * merge is a
 * token. Tokens go row by row, or with windows window by window: these tile the image from its first corner,
 * and the last ones may be smaller. */
struct encode_image {
    const struct encode_shape *shape;
    const uint8_t *frames[ENCODE_FRAMES]; /* host: [height][width][3] R, G, B */
    uint32_t width;                       /* pixels */
    uint32_t rows, columns;               /* rows and columns of patches */
    dev_ptr own;                          /* the backend's arrays for it: compute_encode_bytes() of them */
};

/* Rows that attention reads: patches, and the class token's. */
static inline uint32_t encode_image_rows(const struct encode_image *p)
{
    return p->rows * p->columns + p->shape->class_row;
}

/* Tables of angles: rows and columns may share one. */
static inline uint32_t encode_axes(const struct encode_shape *s)
{
    return s->rotation == ENCODE_ROTATE_NONE ? 0 : s->rotation == ENCODE_ROTATE_ALTERNATE ? 2 : 1;
}

enum encode_kind {
    ENCODE_TABLES,    /* the backend's tables for this image: once, first */
    ENCODE_PIXELS,    /* y = patches of pixels */
    ENCODE_PROJECT,   /* y = w x */
    ENCODE_POSITIONS, /* y += bias and learned positions, rows of w between which a patch lies. With a class
                       * token, whose row becomes class_values and the first row of w, they begin with the
                       * second one */
    ENCODE_NORM,      /* y = norm(x) */
    ENCODE_KEYS, /* x += bias: keys | values; norms and rotates the keys; both are kept for ENCODE_ATTEND */
    ENCODE_QUERIES,  /* x += bias; norms and rotates them */
    ENCODE_ATTEND,   /* y = attention of the queries x over all patches (kern_attn_part_fn) */
    ENCODE_ADD,      /* x += bias, times factors; y += x */
    ENCODE_ADD_NORM, /* x += bias, times factors; y += x; z = norm(y) */
    ENCODE_ACT,      /* x += bias; x = function(x); gated: of 2 * width values g | u, x = function(g) * u */
    ENCODE_BIAS,     /* x += bias */
    ENCODE_IN_ROWS,  /* x += bias; y, whose tokens go row by row, = x, whose tokens go by windows */
    ENCODE_POOL,     /* y = mean of norm_parts parts of x, of `width` values each, times factor */
    ENCODE_STANDARD, /* x = (x - norm_bias) * norm_weight */
    ENCODE_CLIP,     /* x = x within clip_min and clip_max */
};

/* Rows [from, from + count) of the image; x, y and z begin with the first of them. */
struct op_encode {
    enum encode_kind kind;
    bool by_token; /* rows are tokens; else patches */
    const struct encode_image *image;
    uint32_t from, count, width; /* width: values of a row that are changed */
    uint32_t norm_parts;         /* equal parts of a row, each with its norm */
    bool by_value;               /* y has the first value of each part, then the second one of each */
    bool rms;                    /* norms are RMSNorms; else LayerNorms */
    float eps;                   /* epsilon of norms */
    struct encode_rows x, y, z;
    const struct projection *w;
    /* The only reader of the result, which is the next product: a backend may leave the result in the form
     * that the product reads, and nowhere else. NULL: another operation reads it. */
    const struct projection *reader;
    enum glu_function function; /* ENCODE_ACT */
    bool gated;
    bool in_windows; /* ENCODE_ATTEND: a query sees the patches of its window */
    uint32_t grid;   /* ENCODE_POSITIONS: edge of the table of positions */
    float factor;    /* ENCODE_POOL */
    dev_ptr bias, norm_weight,
        norm_bias;                 /* bias: may be null; ENCODE_KEYS, ENCODE_QUERIES: so may be norms */
    dev_ptr value_norm;            /* ENCODE_KEYS: norm of each head's value; may be null */
    dev_ptr clip_min, clip_max;    /* ENCODE_CLIP: a number each */
    dev_ptr factors, class_values; /* [width]; null: none */
};

#endif
