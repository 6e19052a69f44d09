/* binder.h - from tensors in files to packed weights.
 *
 * Binding runs twice over the same family code: first to measure (memory == NULL: every tensor is found and
 * its shape checked, bytes are counted, nothing is read), then to pack. So a load fails for a reason in the
 * headers before a byte of weights is touched, and the bytes reserved are exactly the bytes used. Tensors are
 * asked for by role (role.h); a module's path is relative to the text model: "layers.3.self_attn.q_proj". The
 * prefix in front of it differs between writers and is found once. One thread, the loading one; its packers
 * (packers.h) share the packing of each matrix. */
#ifndef PLATEAU_MODEL_BINDER_H
#define PLATEAU_MODEL_BINDER_H

#include "model/config/weight_forms.h"
#include "tensor/role.h"

#include "base/arena.h"
#include "base/err.h"
#include "memory/dev.h"

struct checkpoint;
struct norm;
struct packers;
struct placement;
struct placement_sizes;
struct projection;
struct weight;
struct weight_memory;

/* The cost of one decoded token: of experts the chosen ones, of the embedding table nothing. */
struct binder_active {
    uint64_t bytes;        /* packed, read */
    uint64_t source_bytes; /* their bytes in the checkpoint's form */
    uint64_t products;     /* multiply-adds with matrices */
};

/* Memory that matrices are bound to, and the device that packs them. */
struct binder_memory {
    struct weight_memory *memory; /* NULL while measuring */
    struct device *device;        /* not used while measuring */
    uint64_t used, taken_from, ready;
    unsigned sums;
};

struct binder {
    /* Set by the caller. */
    const struct checkpoint *checkpoint;
    const struct config *config;
    struct arena *scratch;             /* rewound after every use */
    struct placement_sizes *sizes;     /* gets the bytes of layers and experts; NULL: not wanted */
    const struct placement *placement; /* the text model's; NULL: all is on the device */
    bool *found;                       /* [tensors of the checkpoint]: set once it is; NULL: not kept */
    struct weight_memory *memory;      /* NULL while measuring */
    uint64_t ready;          /* bytes at its begin that are packed already: there only places are bound */
    struct device *device;   /* that packs; not used while measuring */
    struct packers *packers; /* the threads that pack; not used while measuring */
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_arg;
    uint64_t source_bytes_total; /* the sum of the measuring pass */
    struct err *e;
    /* The memory that is not bound to now: the device's with in_machine, else the machine's, for experts. The
     * fields of these names above and below are of the other one. */
    struct binder_memory other;
    bool in_machine;
    /* Found by binder_init. */
    const char *prefix;
    bool add_one; /* to norms: the files hold w - 1 */
    /* Set while a vision encoder is bound: stands for '@' in its names (vision_family.h). */
    const char *root;
    /* Set while a head is bound whose layers have another name; NULL: the family's. */
    const char *layers;
    /* Set for a head that another program wrote beside the checkpoint, see mtp_bind.c. */
    bool add_one_by_mean;        /* to a norm whose mean shows that it is w - 1 */
    bool bits_by_shape;          /* tensors' shapes decide the quantisation, before config.json */
    struct linear_source output; /* the output matrix, found by binder_embedding */
    /* Counted. */
    uint64_t used;          /* bytes of packed memory */
    uint64_t taken_from;    /* begin of the last take: all bytes before it are complete */
    uint64_t digest;        /* digest of the layout of these bytes: places, sizes, forms of matrices */
    uint64_t vision_bytes;  /* part of it: the vision encoder's */
    uint64_t experts_bytes; /* bytes of packed experts */
    uint64_t source_bytes;  /* bytes of the tensors bound */
    uint64_t packed_bytes;  /* part of it: bytes read until now */
    struct binder_active active;
    uint64_t parameters;
    struct weight_forms forms; /* forms of the matrices */
    bool keeps_floats;         /* matrices bound now are exempt from config->quant */
    uint32_t quantised;        /* matrices that config->quant quantises */
    bool table;                /* a table of tokens is bound now: no part of the name */
    uint64_t stage_bytes;      /* bytes that packing needs of a stage */
    unsigned sums;             /* weight.sums of all projections */
    bool fast;                 /* some of them are in the compute mode, others may be in f32 */
    bool floats;               /* some of them multiply FP8 with FP8 */
    bool halves;               /* some of them are F16 in the files */
    /* The device whose part of the model is bound now, and the memory of the others. */
    uint32_t shard;
    struct binder_shard {
        struct weight_memory *memory;
        struct device *device;
        uint64_t used, taken_from;
    } places[SHARDS_MAX];
};

/* Weights that are bound from now on lie on that device. */
void binder_turn(struct binder *b, uint32_t shard);
/* 0, or -EINVAL: no embedding under any known prefix, or convolutions in no known layout. */
int binder_init(struct binder *b);

bool binder_has(const struct binder *b, const char *path);
/* Finds the weight of module `path`, [out, in], or a stack [experts, out, in]: dense, or affine if it has
 * scales; with its bias, if it has one. Shapes are checked. 0, -EINVAL, -ENOTSUP (a dtype). */
int binder_linear(struct binder *b, const char *path, uint64_t out, uint64_t in, struct linear_source *ret);
int binder_stack(struct binder *b, const char *path, uint64_t experts, uint64_t out, uint64_t in,
                 struct linear_source *ret);
/* A dense stack [experts, in, out]. */
int binder_stack_transposed(struct binder *b, const char *path, uint64_t experts, uint64_t out, uint64_t in,
                            struct linear_source *ret);
/* Whether tensor `path`, with ".weight" or without, has this shape. */
bool binder_is_shaped(const struct binder *b, const char *path, uint32_t rank, const uint64_t *shape);
/* As `binder_linear()`, but leaves the bias to the caller. */
int binder_linear_biased(struct binder *b, const char *path, uint64_t out, uint64_t in,
                         struct linear_source *ret);
/* The filters of a convolution whose stride is their size, as a matrix over what they see. Of two shapes,
 * [out, ...] with `rank` numbers each, the tensor has one: *second says which. */
int binder_filters(struct binder *b, const char *path, uint32_t rank, const uint64_t *shape_a,
                   const uint64_t *shape_b, bool *second, struct linear_source *ret);
/* The tensor `path` of three axes as a dense matrix of its last one. */
int binder_flat(struct binder *b, const char *path, const uint64_t shape[3], struct linear_source *ret);
/* A dense matrix as the tensor `path`, [in, out]. */
int binder_turned(struct binder *b, const char *path, uint64_t out, uint64_t in, struct linear_source *ret);
/* Rows [from, from + count) of a matrix. */
struct linear_source binder_rows(const struct linear_source *s, uint64_t from, uint64_t count);
/* One expert of a stack as a matrix of its own. */
struct linear_source binder_slice(const struct linear_source *s, uint64_t expert);

/* Marks the matrices that --quant quantises (binder_quantise), and packs sources of one input into a
 * projection, with their biases. */
int binder_projection(struct binder *b, struct linear_source *parts, uint32_t count, struct projection *ret);
/* Packs parts[experts][count] into stacks with their biases. Neighbours of one form are a stack, each
 * expert's one above the other. */
int binder_experts(struct binder *b, struct linear_source *parts, uint32_t experts, uint32_t count,
                   struct projection *ret);
/* Packs a matrix of each head, or its transpose, into a stack of which a token reads all. A transpose is
 * dense, that of a quantised matrix in f32. */
int binder_heads(struct binder *b, const struct linear_source *parts, uint32_t heads, bool turn_them,
                 struct projection *ret);
/* Between both, experts of the layer are bound to the machine's memory, if their placement says so: true. */
bool binder_enter_machine(struct binder *b, uint32_t layer);
void binder_leave_machine(struct binder *b);
/* The embedding table, and lm_head or, without one, the same packed table again; of an encoder no head. */
int binder_embedding(struct binder *b, struct weight *embedding, struct projection *head);

/* A table of which a token reads one row. */
int binder_table(struct binder *b, const char *path, uint64_t rows, uint64_t columns, struct weight *ret);

/* `bytes` of packed memory, 64-byte aligned; null while measuring. 0 or -ENOMEM. */
int binder_take(struct binder *b, uint64_t bytes, dev_ptr *ret);
/* Whether the bytes of the last take are to be packed. */
static inline bool binder_packs(const struct binder *b)
{
    return b->memory && b->used > b->ready;
}
/* Adds the form of a packed matrix to the digest. */
void binder_note(struct binder *b, const struct weight *w);

/* A vector of n values, unchanged. */
int binder_vector(struct binder *b, const char *path, uint64_t n, dev_ptr *ret);
/* As `binder_vector()`, but times `factor`. */
int binder_vector_times(struct binder *b, const char *path, uint64_t n, float factor, dev_ptr *ret);
/* n ones, of no tensor. */
int binder_ones(struct binder *b, uint64_t n, dev_ptr *ret);
/* A tensor of one number, which is read when weights are packed; 0 before. */
int binder_number(struct binder *b, const char *path, float *ret);
/* A vector of these numbers. */
int binder_numbers(struct binder *b, const float *values, uint64_t n, dev_ptr *ret);
/* A norm's weight, such that y = w * x / rms(x). */
int binder_norm(struct binder *b, const char *path, uint64_t n, dev_ptr *ret);
/* Binds a norm of the residual stream. It has a bias where the model's norms are LayerNorms and the
 * checkpoint has one. */
int binder_norm_biased(struct binder *b, const char *path, uint64_t n, struct norm *ret);
/* -exp of a vector: for the delta net's A_log. */
int binder_decay(struct binder *b, const char *path, uint64_t n, dev_ptr *ret);
/* linear_attn.conv1d.weight in either writer's layout, as [conv_width][channels]. */
int binder_conv(struct binder *b, const char *path, uint32_t channels, uint32_t conv_width, dev_ptr *ret);
/* As `binder_conv()`, of `count` convolutions of `each` channels side by side. */
int binder_convs(struct binder *b, const char *const *paths, uint32_t count, uint32_t each,
                 uint32_t conv_width, dev_ptr *ret);

/* ---- by role ---- */

/* The path of a layer's tensor, as the family names it: "layers.INDEX.NAME". layer NONE: a tensor of no
 * layer. */
#define BINDER_PATH_MAX 160
char *binder_path(const struct binder *b, uint32_t layer, enum tensor_role role, char ret[BINDER_PATH_MAX]);
/* As `binder_path()`, but of one expert's tensor. */
char *binder_expert_path(const struct binder *b, uint32_t layer, enum tensor_role role, uint32_t expert,
                         char ret[BINDER_PATH_MAX]);

bool binder_layer_has(const struct binder *b, uint32_t layer, enum tensor_role role);
/* A matrix has a bias in all layers or in none: -EINVAL, layer 0 has that matrix, and differs. */
int binder_check_bias(struct binder *b, uint32_t layer, enum tensor_role role, bool has_bias);

/* A matrix of a layer, [out, in of the projection]. */
struct binder_matrix {
    enum tensor_role role;
    uint64_t out;
    float bias_factor; /* linear_source.bias_factor */
};
/* Finds the matrices of a layer, as binder_linear. */
int binder_layer_matrices(struct binder *b, uint32_t layer, const struct binder_matrix *matrices,
                          uint32_t count, uint64_t in, struct linear_source *ret);
/* Finds the matrices as binder_layer_matrices() and packs them into a projection, in their order. */
int binder_layer_projection(struct binder *b, uint32_t layer, const struct binder_matrix *matrices,
                            uint32_t count, uint64_t in, struct projection *ret);

/* ---- between the files of this module ---- */

#define BINDER_NAME_MAX 512
/* prefix + path + suffix; names of ours are short. */
const char *binder_name(const struct binder *b, const char *path, const char *suffix,
                        char ret[BINDER_NAME_MAX]);
int binder_find(struct binder *b, const char *name, struct tensor *ret);
/* As `binder_find()`, of a tensor that may be absent. */
bool binder_find_optional(const struct binder *b, const char *name, struct tensor *ret);
/* A matrix of config->naming, whose shape was checked: blocks are affine, rows and columns may
 * have another order.
 * `module`: its name without ".weight". 0, -ENOTSUP. */
int binder_naming_source(struct binder *b, const char *name, const char *module, struct linear_source *s);
/* A matrix with the tensors of a writer other than MLX, if the module has them. `s` has experts, out and in.
 * 0, -EINVAL, -ENOTSUP. */
int binder_stored_source(struct binder *b, const char *module, uint32_t rank, struct linear_source *s,
                         bool *found);
/* Whether a module, or a stack, may be one. */
bool binder_has_stored(const struct binder *b, const char *module);
/* The order of the values of a vector. */
struct tensor_reorder binder_naming_order(const struct binder *b, const char *path);
/* Finds the bias of the logits by the module's full name, which need not have a matrix. Drafts by an MTP head
 * would not add it: -ENOTSUP for families with one. */
int binder_bias(struct binder *b, const char *module, struct linear_source *ret);
/* Finds the output matrix by its full name, and its bias. */
int binder_output(struct binder *b, const char *module, uint64_t out, uint64_t in, struct linear_source *ret);
/* Returns what computes the matrices that are bound now, and the mode of such a matrix. */
const struct backend *binder_backend(const struct binder *b);
enum compute_mode binder_mode(const struct binder *b, const struct linear_source *s);
int binder_check_float(struct binder *b, const char *name, const struct tensor *t);
int binder_check_shape(struct binder *b, const char *name, const struct tensor *t, uint32_t rank,
                       const uint64_t *wanted);
/* Values of `s`, rows of `from` in memory: scales, biases, and codes that are not numbers. 0 or -EINVAL. */
int binder_check_quantised(const struct checkpoint *c, const struct linear_source *from,
                           const struct linear_source *s, struct err *e);
/* Bytes of its tensors. */
uint64_t binder_source_bytes(const struct linear_source *s);
/* Matrices of floats are to be quantised in codes of `bits` bits (quantise.h) while they are packed: but
 * exact ones, and those whose rows no group divides. bits 0: none are. Idempotent. */
void binder_quantise(struct binder *b, struct linear_source *parts, uint32_t count, uint32_t bits);
/* Its tensors leave the page cache. */
void binder_drop(struct binder *b, const struct linear_source *s);
/* Packs `count` sources of one form into a matrix that has its place, and drops them from the page cache. */
int binder_pack(struct binder *b, const struct linear_source *s, uint32_t count, const struct weight *w);
int binder_check_finite(struct binder *b, const struct tensor *t, const char *what);
/* Writers of MLX files swap the axes of a convolution. */
bool binder_conv_is_mlx(const struct tensor *t, uint32_t conv_width);
/* The biases of sources side by side, zeros where one has none; null: none has one. */
int binder_biases(struct binder *b, const struct linear_source *parts, uint32_t count, dev_ptr *ret);
/* One more piece of the files has been read; reports the progress. */
int binder_advance(struct binder *b, uint64_t bytes);

#endif
