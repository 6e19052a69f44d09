/* cuda_args.h - what kernels take from the host: plain structs, read by C and by CUDA C++.
 *
 * Pointers are addresses of the device; host code only hands them on. A kernel takes its operation's struct
 * by value, and the step's. */
#ifndef PLATEAU_COMPUTE_CUDA_ARGS_H
#define PLATEAU_COMPUTE_CUDA_ARGS_H

#include "compute/row_sample.h"
#include "compute/row_top.h"

#include <stdbool.h>
#include <stdint.h>

#define CUDA_NONE        UINT32_MAX
#define CUDA_GROUPS_MAX  8   /* groups of pages, at most */
#define CUDA_THREADS     256 /* threads of a block, unless a kernel says otherwise */
#define CUDA_PAGE_TOKENS 32
#define CUDA_PANEL       16 /* rows of weights that lie together */

/* Rows of floats: row i begins i * stride floats after `at`. */
struct cuda_rows {
    float *at;
    uint32_t stride, width;
};

/* A product's inputs as bf16, in the order of tensor cores (kernels/fragment.cuh): unit after unit of 64 k.
 * In a unit all `rows` have 128 bytes side by side, with zeros past a row's width. `first` is the product's
 * row 0. */
struct cuda_rounded {
    uint16_t *at; /* NULL: none */
    uint32_t rows, first;
};

/* Values of enum matrix_form, enum code_map and enum bias_kind. */
enum cuda_form {
    CUDA_BF16,
    CUDA_F16,
    CUDA_F32,
    CUDA_AFFINE,
    CUDA_QUADS,
    CUDA_E8M0,
    CUDA_E4M3,
    CUDA_I8,
    CUDA_FRAGMENTS = 16 /* kernels/fragment.cuh: 4, 8 or 16 bits */
};
enum cuda_codes { CUDA_CODES_WHOLE, CUDA_CODES_E2M1, CUDA_CODES_IQ4, CUDA_CODES_E4M3 };
enum cuda_biases { CUDA_BIASES_STORED, CUDA_BIASES_CENTRED, CUDA_BIASES_ZEROS };

/* struct weight, layout of kernel/matrix.h or kernels/fragment.cuh. */
struct cuda_matrix {
    const uint8_t *data;
    uint64_t expert_bytes;
    uint32_t n, k, experts;
    uint32_t form, qparams, bits, group, codes, biases, super;
};

/* struct batch_seq. */
struct cuda_seq {
    uint32_t first, count, position, second;
    uint32_t state_in, state_out, pending, keep_pending;
    uint32_t pages[CUDA_GROUPS_MAX]; /* where its table of each group begins in cuda_step.tables */
    uint32_t previous[3];
};

/* struct batch, on the device. */
struct cuda_step {
    uint32_t tokens, seqs, logits, values;
    const struct cuda_seq *seq;
    const uint32_t *ids, *token_seq, *logit_columns, *hidden_columns, *tables;
    const uint32_t *ends;      /* [tokens]: see struct batch; NULL: queries see no later tokens */
    const uint32_t *positions; /* [tokens][3] */
    const uint64_t *features;
    char *pages[CUDA_GROUPS_MAX];
    uint64_t page_bytes[CUDA_GROUPS_MAX];
    char *states;
    uint64_t state_bytes;
    const float *pair_weight, *shared_gate; /* results of route */
    uint32_t top_k, experts;
    uint32_t segments; /* most segments of a sequence: room in cuda_split, in powers of two */
    uint32_t few;      /* tokens [0, few) are of sequences with few tokens each */
    uint32_t keeps;    /* 1: a sequence leaves its tokens pending */
};

struct cuda_norm {
    const float *weight, *bias;
    float eps;
    uint32_t layer_norm;
};

enum cuda_residual_kind { CUDA_RESIDUAL_NONE, CUDA_RESIDUAL_ADD, CUDA_RESIDUAL_EXPERTS };
struct cuda_residual {
    uint32_t kind;
    struct cuda_rows out, pairs, sum;
    struct cuda_norm norm;
    const float *norm_pairs, *layer_scale;
    float scale, eps;
};

/* ---- rows ---- */

#define CUDA_HALF_MAX 320
struct cuda_rope {
    uint32_t half;
    uint8_t axis[CUDA_HALF_MAX];
    float inv_freq[CUDA_HALF_MAX];
    double magnitude;
};
struct cuda_ropes {
    uint32_t count;
    struct cuda_rope table[2];
};

struct cuda_embed {
    struct cuda_matrix table, positions, types; /* data NULL: none */
    struct cuda_rows h, angles;
    const struct cuda_ropes *ropes;
    float scale;
};

struct cuda_layer_inputs {
    struct cuda_matrix table;
    struct cuda_rows x;
    uint32_t width;
    const float *norm;
    float input_scale, row_scale, scale, eps;
};

/* Values of a row that the usual norm takes, at most. */
#define CUDA_NORM_WIDTH (32u * CUDA_THREADS)
/* As `CUDA_NORM_WIDTH`, but of a norm that sums experts. */
#define CUDA_NORM_SUMS (16u * CUDA_THREADS)
/* The usual case: h += out, y = rmsnorm(h), four values at a time. */
#ifdef __CUDACC__
static __device__ __forceinline__
#else
static inline
#endif
    bool
    cuda_norm_is_usual(const struct cuda_residual *add, const struct cuda_norm *norm,
                       const struct cuda_rows *h, const struct cuda_rows *y)
{
    uintptr_t places = (uintptr_t)h->at | (uintptr_t)y->at | (uintptr_t)add->out.at |
                       (uintptr_t)norm->weight | (uintptr_t)add->pairs.at | add->pairs.stride * 4;
    uint32_t most = add->kind == CUDA_RESIDUAL_EXPERTS ? CUDA_NORM_SUMS : CUDA_NORM_WIDTH;
    return !add->norm_pairs && !add->norm.weight && !add->layer_scale && norm->weight && !norm->layer_norm &&
           y->width == h->width && h->width % 4 == 0 && places % 16 == 0 && h->width <= most;
}
struct cuda_norm_op {
    struct cuda_residual add;
    struct cuda_rows h, y, keep;
    struct cuda_norm norm;
    struct cuda_rounded rounded; /* y as bf16, too */
    uint32_t stream;
    uint64_t hidden_offset, hidden_step;
};

struct cuda_features {
    struct cuda_residual add;
    struct cuda_rows h;
    uint32_t from;
};

#define CUDA_SCALES_MAX 5
struct cuda_scale {
    struct cuda_rows x;
    uint32_t count;
    uint32_t width[CUDA_SCALES_MAX];
    float factor[CUDA_SCALES_MAX];
};

struct cuda_head_gate {
    struct cuda_rows gate, out;
    uint32_t each;               /* values of out for a gate */
    uint32_t softplus;           /* else a sigmoid */
    struct cuda_rounded rounded; /* out as bf16, too */
};

/* Values of enum glu_function. */
enum cuda_glu_function { CUDA_SILU, CUDA_GELU_TANH, CUDA_GELU_ERF, CUDA_RELU_SQUARE, CUDA_SWIGLU_CLIP };
struct cuda_glu {
    uint32_t function, has_up;
    float alpha, limit;
    struct cuda_rows in, up, out;
    struct cuda_rounded rounded; /* out as bf16, too */
};

struct cuda_gather {
    struct cuda_residual add;
    struct cuda_rows h, y;
    struct cuda_norm norm;
    struct cuda_rounded rounded; /* y as bf16, too */
};

struct cuda_finish {
    struct cuda_rows x;
    float scale, cap;
};

struct cuda_copy_row {
    struct cuda_matrix to, from;
    uint32_t to_row, from_row;
};

/* ---- products ---- */

/* Pairs of a token and its expert, sorted by expert. Columns [first, first + count) of `order` have one
 * expert and share its weights. Their order within an expert changes no bits. */
struct cuda_expert_group {
    uint32_t expert, first, count;
};
struct cuda_sorted {
    const uint32_t *order; /* [pairs]: a pair's number; NULL: columns are not sorted */
    const struct cuda_expert_group *groups;
    const uint32_t *group_count; /* at most the number of pairs */
};

enum cuda_columns { CUDA_COLUMNS_ROWS, CUDA_COLUMNS_EXPERTS, CUDA_COLUMNS_HEADS };
struct cuda_product {
    struct cuda_matrix w;
    struct cuda_rows x, y;
    const float *bias;
    uint32_t count;              /* columns */
    uint32_t x_div;              /* experts: column / x_div is the row of x */
    uint32_t x_step, y_step;     /* heads: from one head's values to the next */
    uint32_t bias_step;          /* experts: from one expert's bias to the next */
    const uint32_t *expert;      /* experts: [columns] */
    struct cuda_sorted sorted;   /* experts: several columns at a time */
    struct cuda_rounded rounded; /* x as bf16, where it is there */
    /* 1: w is gate | up, and y = silu(gate) * up; y_rounded is y as bf16, y.at may be NULL then. */
    uint32_t glu;
    struct cuda_rounded y_rounded;
    /* Few columns and 8 chains: h = fma(add_scale, y, h), and there is no y. at NULL: not so. */
    struct cuda_rows add;
    float add_scale;
    /* One column: x = rmsnorm(normed), which one block leaves in x and rounded. at NULL: x is there. */
    struct cuda_rows normed;
    const float *norm;
    float norm_eps;
    /* Kernels of up to 16 columns: 1: the product reads nothing that the kernel in front writes, and waits
     * for that one at its own end. The one in front has called grid_wait_next(), or is beside another. */
    uint32_t beside;
    uint32_t deep; /* few columns, 16 bits, 8 chains: a warp has CUDA_RING_DEEP units on their way */
};

/* Products in f32 (kernels/project.cu): threads of a block with one column; columns from which on blocks take
 * tiles; a tile's columns, its most panels, and k values of a step. */
#define CUDA_PRODUCT_THREADS 512u
#define CUDA_PRODUCT_MANY    256u
#define CUDA_PRODUCT_COLUMNS 32u
#define CUDA_PRODUCT_PANELS  4u
#define CUDA_PRODUCT_STEP    32u
/* Where rows are few: columns from which on blocks share them, and bytes of shared memory. */
#define CUDA_PRODUCT_DEEP        24u
#define CUDA_PRODUCT_DEEP_SHARED 192512u

/* A matrix of so many rows has 1 chain, else 8 (kernels/bf16.cu). */
#define CUDA_CHAINS         8u
#define CUDA_ONE_CHAIN_ROWS 16384u
/* Columns of one block: of the kernel for few columns, and of that for many. */
#define CUDA_NARROW_COLUMNS 16u
/* Warps of a block of the kernel for few columns, with 1 chain, at most. */
#define CUDA_NARROW_WARPS_1 16u
#define CUDA_TILE_COLUMNS   128u
#define CUDA_TILE_ROWS      128u
/* Columns of a tile of wgmma, with 1 chain and with 8, at most; and threads. */
#define CUDA_WIDE_COLUMNS_1 256u
#define CUDA_WIDE_COLUMNS_8 128u
#define CUDA_WIDE_THREADS   384u
/* Few columns (kernels/few.cu): the most; groups of four warps of a block with 1 chain and with 8, beside
 * which two warps of another bring; stages of weights at most, and units of one; units of inputs. */
#define CUDA_FEW_MOST            256u
#define CUDA_FEW_GROUPS_1        3u
#define CUDA_FEW_GROUPS_8        2u
#define CUDA_FEW_THREADS(chains) (128u * CUDA_FEW_GROUPS_##chains + 128u)
#define CUDA_FEW_STAGES          16u
#define CUDA_FEW_UNITS(bits)     (16u / (bits))
#define CUDA_FEW_INPUTS_MOST     8u
#define CUDA_FEW_INPUTS(columns) ((columns) <= 64 ? 8u : 4u)
/* Bytes in which gates meet their values with 1 chain, and of all chains' sums of a row with 8. */
#define CUDA_FEW_GLU_BYTES(columns) ((columns) / 4 * CUDA_FEW_GROUPS_1 * 128u * 4u)
#define CUDA_FEW_ROW_BYTES(columns) (CUDA_CHAINS * (columns)*4u)
/* Blocks of a cluster, which have the same columns. */
#define CUDA_WIDE_DOWN   2u
#define CUDA_WIDE_STAGES 8u
/* Units of weights that a warp of the first one has on their way, by bits of a value. */
#define CUDA_RING_16 4u
#define CUDA_RING_8  6u
#define CUDA_RING_4  8u
/* Ring of 16 bits where 8 chains are long enough and one block has the room. */
#define CUDA_RING_DEEP 8u
/* k values of experts' matrices up to which a warp has all chains of a panel. */
#define CUDA_SERIAL_K 1024u
/* Columns of experts (kernels/experts.cu): warps of a block, units of a stage of a warp's ring, and stages,
 * by bits of a value. */
#define CUDA_EXPERTS_WARPS        16u
#define CUDA_EXPERTS_GROUPS       4u /* whose inputs a block has, at most */
#define CUDA_EXPERTS_UNITS(bits)  ((bits) == 4 ? 2u : 1u)
#define CUDA_EXPERTS_STAGES(bits) ((bits) == 16 ? 2u : 4u)
/* k steps of a unit (kernels/fragment.cuh), and of one where inputs are small floats, too. */
#define CUDA_UNIT       64u
#define CUDA_SMALL_UNIT 128u
/* Bytes in which gates meet their values, in tiles of experts and in others. */
#define CUDA_WALK_GLU_BYTES (CUDA_TILE_COLUMNS / 2 * CUDA_TILE_ROWS * 4)
#define CUDA_WIDE_GLU_BYTES 32768u
/* Bytes of shared memory that those kernels have in any case, at most. */
#define CUDA_STATIC_SHARED 16512u

/* Rows of x become bf16; `units` of each. */
struct cuda_round {
    struct cuda_rows x;
    struct cuda_rounded to;
    uint32_t units;
};

/* Rows of x become small floats: [units of 128][rows][128], with scales. */
struct cuda_quantise {
    struct cuda_rounded x;
    uint8_t *to;
    float *scales; /* [rows] */
    uint32_t rows, units;
};

/* A product by tiles: x is rounded. */
struct cuda_tiles {
    struct cuda_matrix w;
    struct cuda_rounded x;
    uint32_t count;
    uint32_t stages;  /* kernels/experts.cu: groups whose inputs a block has */
    uint32_t columns; /* a tile has 64, 128 or 256 (kernels/wide.cu), a group 8 or 16 (kernels/experts.cu) */
    struct cuda_rows y;
    const float *bias;
    uint32_t glu; /* see cuda_product.glu; of tiles of 64 rows of each */
    struct cuda_rounded y_rounded;
    /* Experts: as of cuda_product. x has all rows then, and `count` is the number of pairs. */
    struct cuda_sorted sorted;
    uint32_t x_div, bias_step;
    /* Few columns and 8 chains: where chains' sums are, and two words where blocks meet. */
    float *parts;
    uint32_t *meet;
    const float *scales; /* [count]: scales of x, which has small floats; NULL: x has bf16 */
};

/* Rows [lane, lane + count) of `from`, in panels of kernel/matrix.h, become fragments from `panel` on. */
struct cuda_repack {
    struct cuda_matrix from, to;
    uint32_t panel, lane, count;
};

struct cuda_best {
    struct cuda_rows logits;
    const uint32_t *ids;
    const uint64_t *valid;
    float *best_logit; /* [tokens][2]: logit, id as bits */
    uint32_t n;
};

#define CUDA_TOP_THREADS 1024 /* threads of a block */
#define CUDA_TOP_BLOCKS  8u   /* blocks of a row, on GPUs that have clusters */
struct cuda_top {
    const float *logits; /* [rows][vocab] */
    const uint64_t *valid;
    const struct row_sample *rows; /* [rows] */
    struct row_top *tops;          /* [rows] */
    uint32_t vocab;
};

#define CUDA_SAMPLE_THREADS 1024 /* threads of a row's block */
#define CUDA_SAMPLE_BLOCKS  2048 /* blocks of ids of a row, at most */
struct cuda_sample {
    float *logits; /* [rows][vocab]; edits are taken back */
    const uint64_t *valid, *masks;
    const struct row_sample *rows; /* [rows] */
    struct row_edit *edits;
    struct row_sampled *sampled; /* [rows] */
    float *most;                 /* [rows][blocks]: the largest logit of a block of ids */
    double *weights;             /* [rows][blocks]: of its candidates */
    uint32_t vocab, blocks;
    uint32_t raw; /* rows that want sums, of all valid ids */
};

struct cuda_pair {
    struct cuda_residual add;
    struct cuda_matrix table;
    struct cuda_rows h, pair, angles;
    const struct cuda_ropes *ropes;
    const float *final_norm, *norm_embedding, *norm_hidden;
    float eps;
    uint32_t draft, from_states;
    uint64_t hidden_offset, hidden_step;
};

/* ---- attention ---- */

#define CUDA_KV_F32  0u
#define CUDA_KV_BF16 1u
#define CUDA_KV_INT8 2u
#define CUDA_KV_FP8  3u

struct cuda_kv {
    uint32_t group, heads, k_width, v_width, v_in_k;
    uint32_t form; /* form of a page's values: CUDA_KV_* */
    uint64_t offset, k_bytes,
        head_bytes; /* in a page: of the layer, of a head's K, from one head to the next */
};

struct cuda_attention {
    struct cuda_kv kv;
    uint32_t heads, q_stride, window;
    float scale, cap, growth, eps;
    uint32_t growth_every;
    uint32_t both_ways, norm_rotated, norm_heads, adjacent, gated, mtp, image_ends, with_queries, with_keys;
    const float *q_norm, *k_norm, *v_norm, *sinks;
    struct cuda_rows qkv, out, angles;
    struct cuda_rounded rounded; /* out as bf16, too */
};

/* Threads that take a token's head; of many tokens, what a block takes. */
#define CUDA_APPEND_THREADS 128u
#define CUDA_APPEND_TOKENS  32u
#define CUDA_APPEND_HEADS   4u

/* Segments of queries' keys apart from each other, of tokens [first, first + tokens) of the step. */
#define CUDA_SEGMENT 256u
struct cuda_split {
    float *parts; /* [tokens][heads][segments][v_width + 2]; NULL: a block joins its segments itself */
    /* Few tokens: how many blocks have ended of each token and heads that share keys, 0 before and after. */
    uint32_t *ended;
    uint32_t first, tokens, segments, stages;
    uint32_t append; /* few tokens: the kernel appends them, too */
};
#define CUDA_ATTEND_ENDS 4096u
/* Bytes of shared memory: of 64 keys and values of `d` numbers, a stage; of a block's queries where there are
 * many. */
#define CUDA_KEYS_BYTES(d)    (256u * (d))
#define CUDA_ATTEND_TEAMS(d)  (256 / (d))
#define CUDA_QUERIES_BYTES(d) (CUDA_ATTEND_TEAMS(d) * 16 * (2 * (d) + 16))
#define CUDA_ATTEND_THREADS   128u
/* Few tokens that are few blocks: warps of a block; rows for a group of heads; bytes beside the blocks of 64
 * keys, of queries, weights (of codes twice) and each warp's largest score. Before there are weights, rows of
 * queries, keys and values are there, to be normed and turned. */
#define CUDA_PARTS_WARPS       16u
#define CUDA_PARTS_ROWS(group) ((group) > 8 ? 16u : 8u)
#define CUDA_PARTS_ROOM(d, rows, blocks, coded)                                                              \
    ((rows) * (2 * (d) + 16) + (rows) * (128 * (blocks) * ((coded) ? 2 : 1) + 16) + 64 * CUDA_PARTS_WARPS)
/* Few tokens that are many blocks: heads of a block; stages, a page each, at most; bytes of a page, and of a
 * row of queries. */
#define CUDA_WARP_HEADS      8u
#define CUDA_WARP_STAGES_MAX 16u
#define CUDA_WARP_PAGE(d)    (128u * (d))
#define CUDA_WARP_QUERY(d)   (2u * (d) + 16u)
/* By wgmma: 64 rows, two stages, and what aligns them. */
#define CUDA_ATTEND_WIDE_SHARED(d) (128u * (d) + 2 * CUDA_KEYS_BYTES(d) + 1024u)
/* Pages of 8 bits: bytes of one; a block of 64 keys as tensor cores take it, the pages that come meanwhile,
 * and both scales of its tokens. */
#define CUDA_CODED_PAGE(d)        (64u * (d) + 256u)
#define CUDA_CODED_KEYS(d)        (CUDA_KEYS_BYTES(d) + 2 * CUDA_CODED_PAGE(d) + 512u)
#define CUDA_CODED_WIDE_SHARED(d) (128u * (d) + CUDA_CODED_KEYS(d) + 2 * CUDA_CODED_PAGE(d) + 1024u)
/* Bytes of a block's shared memory that kernels have left for their own variables. */
#define CUDA_ATTEND_STATIC 12288u

/* Norms over all heads together, and copies of K as V, before the heads go their ways. */
struct cuda_attention_rows {
    struct cuda_rows x;
    const float *weight; /* NULL: a copy */
    uint32_t from, to, width;
    float eps;
};

struct cuda_latent {
    struct cuda_kv kv;
    uint32_t heads, adjacent, q_step;
    struct cuda_norm norm;
    struct cuda_rows in, q, query, angles;
    float growth;
    uint32_t growth_every;
};

/* ---- recurrent layers ---- */

/* Offsets into a state are in bytes, into a pending token in floats. */
struct cuda_conv {
    const float *weight, *bias;
    struct cuda_rows u, y;
    uint32_t channels, taps, linear;
    uint32_t each;  /* tokens of a block */
    uint32_t gated; /* short convolution: u is the last third of its row, and gates are the first two */
    uint64_t state_offset, pending_offset, pending_floats;
};

/* Chains of a sum over a column of the state in bf16 mode, else 1 (kernels/recurrent.cu). */
#define CUDA_DELTA_PARTS 4u
/* A head's state and what else its block has, where each sequence has one token; threads of that block. */
#define CUDA_DELTA_ONE_SHARED  71680u
#define CUDA_DELTA_ONE_THREADS 512u
struct cuda_delta {
    struct cuda_conv conv;
    uint32_t parts, key_heads, value_heads, key_dim, value_dim, channels;
    float eps;
    const float *decay, *dt_bias, *norm;
    struct cuda_rows in, conv_out, gates, out;
    struct cuda_rounded rounded; /* out as bf16, too */
    uint64_t state_offset, pending_offset, pending_floats, k_at, v_at, alpha_at, beta_at;
};

struct cuda_ssm {
    uint32_t heads, head_dim, groups, state, norm_kind;
    float eps, dt_min, dt_max;
    const float *a, *dt_bias, *skip, *norm;
    struct cuda_rows in, conv_out, gates, out;
    uint64_t state_offset, pending_offset, pending_floats, x_at, b_at, dt_at, decay_at;
};

/* ---- experts ---- */

#define CUDA_ROUTE_THREADS 32u /* a warp for each token */
struct cuda_route {
    uint32_t score, shared, normalise, groups, groups_top, group_max;
    float normalise_eps, scale, jitter;
    const float *correction, *expert_scale;
    struct cuda_rows in;
    uint32_t *pair_expert;
    float *pair_weight, *shared_gate;
};

/* Sorts pairs by expert, in groups of at most `columns`. One block; dynamic shared memory: two words for each
 * expert. */
#define CUDA_SORT_THREADS 1024u
struct cuda_sort {
    const uint32_t *expert; /* [pairs] */
    uint32_t pairs, experts, columns;
    uint32_t *order;
    struct cuda_expert_group *groups;
    uint32_t *group_count;
};

/* ---- an image ---- */

/* Values of enum encode_positions. */
enum cuda_positions {
    CUDA_POSITIONS_SQUARE,
    CUDA_POSITIONS_CUBIC,
    CUDA_POSITIONS_AXES,
    CUDA_POSITIONS_PAIRS
};
struct cuda_encode {
    struct cuda_rows x, y, z;
    uint32_t from, count, width, parts;
    const float *bias, *norm_weight, *norm_bias;
    float eps, factor;
    uint32_t rms, by_value; /* see op_encode */
    uint32_t heads, head_dim, merge, rows, columns, grid;
    uint32_t function, gated;    /* encode_act: of enum cuda_glu_function */
    uint32_t add, norm;          /* add to y; then norm to z */
    uint32_t keep;               /* keys and values */
    uint32_t patches, class_row; /* rows that attention reads; 1: the last one is the class token's */
    uint32_t window, in_windows; /* tokens of a window's edge, 0: there are none; attention stays in them */
    float scale;
    const float *cosines, *sines; /* [edge][head_dim / 4], of rows and of columns; NULL: no rotation */
    uint32_t columns_at;          /* where those of columns begin */
    uint32_t apart;               /* each half of a head rotates by itself, the first one by the column */
    const float *value_norm;      /* keys: norm of each head's value; NULL: none */
    const float *factors, *class_values; /* [width]; NULL: none */
    const float *clip_min, *clip_max;    /* a number each; NULL: none */
    float *keys;                         /* [heads][pages]: K transposed, V; tensor cores: see `heads_at` */
    /* Tensor cores: K, then V of each head: [key_rows][key_width], bf16 with zeros past head_dim. NULL: the
     * plain kernel attends. */
    uint16_t *heads_at;
    uint32_t key_rows, key_width;
    struct cuda_rounded rounded; /* the result as bf16, and nowhere else */
    const uint8_t *pixels[2];    /* frames: [height][image_width][3] */
    const float *levels;         /* [3][256]: values of a channel's bytes */
    uint32_t patch, frames, image_width, channels_last;
    struct cuda_matrix table; /* table of learned positions */
    uint32_t positions;       /* its layout, a value of enum cuda_positions */
};

/* A block of attention on tensor cores: queries, threads, keys of a stage, and stages for heads of so many
 * values in memory. */
#define CUDA_ENCODE_QUERIES       128u
#define CUDA_ENCODE_THREADS       (2 * CUDA_ENCODE_QUERIES)
#define CUDA_ENCODE_STAGES(width) ((width) > 80 ? 2u : 3u)
#define CUDA_ENCODE_KEYS          64u
/* Bytes of a row of keys in shared memory: 8 rows take all banks. */
#define CUDA_ENCODE_PITCH(width) (2 * (width) + 16)
#define CUDA_ENCODE_SHARED(width)                                                                            \
    (CUDA_ENCODE_STAGES(width) * 2 * CUDA_ENCODE_KEYS * CUDA_ENCODE_PITCH(width))

#endif
