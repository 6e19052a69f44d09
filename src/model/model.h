/* model.h - a loaded model: one forward pass over a batch of sequences.
 *
 * Of each sequence a step has the next tokens: one while decoding, a chunk while its prompt is read. The
 * sequences of a step share every product with the weights; a sequence's numbers depend on nothing but its
 * own tokens and positions (docs/architecture.md#exactness). The model owns weights and workspace; pages and
 * states are the caller's. Calls come from one thread, the engine's, inside a turn of the workers. */
#ifndef PLATEAU_MODEL_MODEL_H
#define PLATEAU_MODEL_MODEL_H

#include "base/err.h"
#include "compute/mode.h"
#include "compute/shape.h"
#include "memory/dev.h"
#include "memory/ledger.h"
#include "memory/placement.h"

#include <stdatomic.h>

struct backend;
struct batch_shard;
struct device;
struct model;
struct model_files;

/* "auto", "f32", ... False on anything else. */
bool compute_mode_parse(const char *name, enum compute_mode *ret);
const char *compute_mode_name(enum compute_mode m);
struct model_shape;
/* Returns the name of the form of the model's keys and values. */
const char *model_kv_dtype(const struct model_shape *s);
/* The next smaller one that its pages can have; NULL: none. */
const char *model_kv_smaller(const struct model_shape *s);

/* Requested form of K and V: the one that suits the mode and the device. */
#define KV_AUTO ((enum kv_form)KV_FORMS)

/* Which device of model_opts has each layer; all else of a model is on the first one. */
struct model_shards {
    uint32_t count; /* 0 counts as 1 */
    uint8_t layer[PLACEMENT_LAYERS_MAX];
};

/* Requested parts of a checkpoint in addition to its text model, room for the options that depend on them,
 * and what computes them. Zeros: none. */
struct model_parts {
    const struct backend *backend; /* that will compute it; NULL: the CPU's */
    enum compute_mode compute;     /* COMPUTE_AUTO: int16, bf16 or f32, see measure.c */
    enum kv_form kv_form;          /* form of K and V in pages */
    uint32_t quant;            /* bits of codes that matrices of floats become (quantise.h); 0: they stay */
    bool vision;               /* the vision encoder, if there is one */
    uint64_t image_pixels_max; /* limit of an image after resizing, if the model allows more; 0: 4194304 */
    uint32_t image_tokens;     /* budget of an image where the model has one; 0: the model's own */
    bool mtp; /* the MTP head, if there is one and drafts_max > 0: its weights, and K and V of it in the
               * pages */
    /* With mtp: directory of an EAGLE-3 checkpoint whose head is taken instead. NULL: the checkpoint's own.
     * Not used after the load. */
    const char *eagle;
    uint32_t drafts_max;  /* longest draft after a known token (of any drafter): room for its inputs in each
                             state. At most MODEL_DRAFTS_MAX */
    uint32_t draft_vocab; /* draft only from this many recently used tokens, which takes a copy of their rows
                             of the output matrix; 0, or more than half the vocabulary: from all */
    /* Bytes that each page of the first group has after its own K and V, for the K and V of a draft model; a
     * multiple of 64. */
    size_t page_beside;
    /* With a draft model's own load: bytes of a page of the target's first group, where its K and V lie. All
     * its groups have the same pages. 0: pages of its own. */
    size_t page_stride;
    struct placement placement;    /* zeros: all parts are on the model's device */
    struct placement_sizes *sizes; /* gets the bytes of the text model's parts; NULL: not wanted */
    struct model_shards shards;    /* zeros: one device has all of it */
};
#define MODEL_DRAFTS_MAX       8
#define MODEL_DRAFT_VOCAB_AUTO UINT32_MAX /* a quarter of the vocabulary, from 1024 to 16384 */

/* Text and tokens around an image in a prompt. NULL: none. */
struct model_image_marks {
    const char *mark;           /* special token that the template writes, instead of the image token */
    const char *before, *after; /* text that stands around the image tokens, instead of the mark; without a
                                 * mark special tokens */
    const char *row_end, *end;  /* special tokens after each row of image tokens, and after the last row */
    /* With tiles: text before each one, whose numbers of row and column stand between these three; after a
     * row of them; before the whole image, after tiles and alone. */
    const char *tile[3], *tiles_row_end, *whole, *alone;
    const char *tokens[4]; /* tokens among these texts */
};

/* How an image's size becomes that of the encoder's input. */
enum model_image_size {
    IMAGE_BY_AREA,    /* the ratio stays, the area is bounded */
    IMAGE_BY_LONGEST, /* the ratio stays, the longer edge is bounded */
    IMAGE_BY_BUDGET,  /* the ratio stays, the area becomes the largest */
    IMAGE_PADDED,     /* the ratio stays, patches and edges are bounded, black pixels complete tokens */
    IMAGE_FIXED       /* a square */
};

/* How an image becomes tiles (vision/tiles.h), each of which the encoder reads as an image of its own. */
struct model_tiles {
    uint32_t edge; /* 0: images have no tiles */
    uint32_t count_min, count_max;
    uint32_t longest;
    double area_above;
};

/* The vision encoder, from config.json and the checkpoint's preprocessor files (contract 4.1); zeros
 * without parts.vision or without an encoder. */
struct model_vision {
    bool present;
    uint32_t patch, merge;   /* pixels of a patch's edge; patches of a token's edge */
    uint32_t feature_floats; /* per token: what replaces its embedding, then a DeepStack layer's each */
    uint64_t pixels_min, pixels_max;             /* limits of an image after resizing */
    uint64_t video_pixels_min, video_pixels_max; /* limits of all frames of a video together */
    double video_fps;
    uint32_t video_frames_min, video_frames_max;
    double video_seconds_max; /* media_sample.longest */
    bool video_images; /* each pair of frames stands in the prompt as an image does, then its whole seconds */
    uint32_t image_token, video_token, start_token, end_token;
    const struct model_image_marks *marks; /* NULL: the template writes the image token, and nothing else is
                                            * there */
    enum model_image_size size;
    struct model_tiles tiles;
    uint32_t edge_max;    /* IMAGE_BY_LONGEST: longer edge; IMAGE_FIXED: edge */
    uint32_t patches_max; /* IMAGE_PADDED */
    bool grows;           /* IMAGE_BY_AREA: an edge shorter than a token's grows first */
    uint32_t filter;      /* filter of resizing by its number in Pillow; 0: bicubic */
    bool both_ways;       /* an image's tokens see each other, so one step computes them all */
    bool linear; /* image tokens have positions one after the other, as text has; else those of a grid */
    uint64_t weight_bytes; /* the vision encoder's part of model_shape.weight_bytes */
    uint64_t encode_fixed_bytes,
        encode_patch_bytes; /* memory for encoding an image; see model_encode_bytes */
};

/* Layers of equal size in a page. */
struct model_kv {
    uint32_t layers, heads, k_width, v_width; /* numbers of a head's key and value */
    bool v_in_k;                              /* the value is a part of the key, stored once */
    uint32_t window;                          /* keys that a query sees, its own counted; 0: all */
    uint32_t group;                           /* index in model_shape.groups */
    size_t page_bytes;                        /* bytes of a page for all these layers together */
};
/* The part of a model on a device beside the first: its layers. */
struct model_shard {
    uint64_t weight_bytes;
    size_t page_bytes[PAGE_GROUPS_MAX], state_bytes; /* parts of a page of each group, and of a state */
};
#define MODEL_KV_MAX 8
/* Bytes of a text that names keys of config.json. */
#define MODEL_UNKNOWN_MAX 256

/* A model's numbers for all other modules; filled before a weight is read. */
struct model_shape {
    char family[32]; /* "qwen3_5_moe" */
    uint32_t vocab;  /* logits per row */
    uint32_t layers, hidden;
    uint32_t context_max;  /* max_position_embeddings */
    bool both_ways;        /* a text is one step of one sequence, from position 0: tokens see later ones */
    bool encoder;          /* it has no logits */
    uint32_t token_types;  /* rows of their table; 0: none */
    uint32_t vector_width; /* values of a vector: hidden, or those of the last Dense module */
    uint32_t vector_room;  /* floats of a pooled vector and of what the head makes of it */
    uint32_t labels;       /* classes of its classifier: a vector is their scores; 0: it has none */
    const char *longrope;  /* factors of a longrope for the context: "short" or "long"; NULL: none */
    struct kv_group groups[PAGE_GROUPS_MAX]; /* groups of attention layers: each has its own pages */
    uint32_t group_count;
    size_t page_bytes; /* a page of each group: 32 tokens of K and V of all layers; a multiple of 64 */
    struct model_kv kv[MODEL_KV_MAX]; /* layouts of pages; the last one also has the layers without a place in
                                       * the list */
    uint32_t kv_count;
    uint32_t recurrent_layers;
    size_t state_bytes; /* one sequence's recurrent state; 0 without recurrent layers; a multiple of 64 */
    uint32_t state_pending_max; /* tokens whose inputs a state has room for; 0: none */
    uint64_t weight_bytes;      /* packed */
    uint64_t experts_bytes;     /* packed experts in the machine's memory, of a model on a device; 0: none */
    bool mapped;                /* they lie in a packed file, else in anonymous memory */
    uint64_t checkpoint_bytes;
    uint64_t loading_bytes; /* during the load: tables of its tensors, and a piece of one */
    uint64_t tables_bytes;  /* descriptions of its layers, at most */
    uint64_t
        active_weight_bytes; /* read per decoded token of one sequence: experts counted by those chosen */
    uint64_t active_checkpoint_bytes; /* bytes of those weights in the checkpoint */
    uint64_t token_products; /* multiply-adds with weights per token, vocab * hidden of them for its logits */
    bool routed;             /* it has experts, of which a token uses some */
    uint64_t parameters;
    struct compute_cost workspace; /* cost of a step's workspace per unit of model_opts: on each device */
    /* Devices that have parts of it. Bytes of weights, pages and states above are those of the first one. */
    uint32_t shard_count;
    struct model_shard beside[SHARDS_MAX - 1]; /* [shard_count - 1] */
    bool apart;                                /* it computes in memory that is not the machine's */
    bool samples;                              /* its device samples tokens from rows of logits */
    bool ranges;                               /* its workspace there is a range of the device's domain */
    struct model_vision vision;
    char form[64];             /* form of its matrices in the files: "BF16", "Q4_K and 2 others"
                                * (weight_forms.h) */
    enum compute_mode compute; /* f32 also where another was asked for and no matrix takes it */
    enum kv_form kv_form;      /* f32 also where another was asked for and no layer can have it */
    enum kv_form kv_smaller;   /* the next smaller form that layers can have; KV_AUTO: none */
    uint32_t quant;            /* requested bits of codes; 0: floats stay */
    size_t page_beside;        /* part of a page of the first group for K and V of a draft model */
    bool text_alone;           /* the checkpoint is of a larger model, of which the text alone is computed */
    bool has_vision, has_mtp;  /* in the checkpoint, requested or not */
    bool mtp;                  /* requested and complete: model_draft() works */
    uint64_t mtp_weight_bytes; /* packed, in addition to weight_bytes */
    bool eagle;                /* the head is an EAGLE-3 checkpoint's */
    bool mtp_mapped;           /* the head is mapped and part of weight_bytes; its draft vocabulary is not */
    char mtp_absent[160];      /* why a requested MTP head is missing; else empty */
    /* Keys of config.json that the program does not know, for the log; else empty. */
    char unknown_keys[MODEL_UNKNOWN_MAX];
};

struct model_opts {
    uint32_t tokens_max; /* tokens of one step, all sequences */
    uint32_t seqs_max;   /* sequences of one step */
    uint32_t logits_max; /* logit rows of one step */
    uint32_t context;    /* tokens of the longest sequence; 0: the model's own limit */
    struct model_parts parts;
    struct device *device; /* outlives the model; of parts.backend */
    struct device *cpu;    /* computes experts that parts.placement has in the machine; NULL: it has none */
    /* Accounts `weights`, `workspace`, `tables` and, while loading, `checkpoint` are opened below it. NULL:
     * uncounted (tests). */
    struct account *parent;
    /* `weights`, `workspace`, `recorded steps`, `mtp` and `vision` open below it instead: an account in the
     * memory of the device. What the host keeps of the workspace stays below parent. NULL: parent. */
    struct account *device_parent;
    /* The other devices of parts.shards, of one backend, and accounts in their memory, below which `weights`,
     * `workspace` and `recorded steps` are opened, too. */
    struct model_beside {
        struct device *device;
        struct account *parent;
    } beside[SHARDS_MAX - 1];
    /* Called from the loading thread as bytes are packed; may be NULL. Nonzero stops the load: -ECANCELED. */
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_arg;
};

/* Reads config.json and every tensor's header, and computes the memory that a load will take; loads
 * nothing. parts: NULL as zeros. 0, -ENOENT, -EINVAL, -ENOTSUP (an unknown family or quantisation), with the
 * reason in e. */
int model_probe(struct model_files *files, const struct model_parts *parts, struct model_shape *ret,
                struct err *e);
/* Bytes of workspace for steps of up to tokens_max tokens of seqs_max sequences: in the memory in which the
 * model computes, and in the machine's where that is another. */
struct model_workspace {
    uint64_t device_bytes, host_bytes;
};
struct model_workspace model_workspace_bytes(const struct model_shape *s, uint32_t tokens_max,
                                             uint32_t seqs_max, uint32_t workers);

/* Loads what `model_probe()` reads: packs the weights. On failure nothing remains. */
int model_load(struct model_files *files, const struct model_opts *opts, struct model **ret, struct err *e);
void model_free(struct model *m);
const struct model_shape *model_shape(const struct model *m);
/* The memory of its device, where pages, states and features of images lie. */
const struct domain *model_domain(const struct model *m);

/* An image among the tokens of a sequence: rows of placeholders from `first` on. */
struct model_grid {
    uint32_t first, rows, columns;
    uint32_t row_ends;      /* tokens after each row that are text */
    bool linear, both_ways; /* flags of model_vision */
    /* [rows * columns][model_vision.feature_floats]; null: no token of this step lies in it. */
    dev_ptr features;
};

/* Tokens of the largest image that the encoder reads: a tile, where images have some. */
uint32_t model_image_tokens_max(const struct model_vision *v);
/* Tiles of an image with the whole one after them, at most; 1: images have none. */
uint32_t model_image_parts_max(const struct model_vision *v);
/* The image's grid in a model's prompt, without features. */
struct model_grid model_grid_of(const struct model_vision *v, uint32_t first, uint32_t width,
                                uint32_t height);
static inline uint32_t model_grid_tokens(const struct model_grid *g)
{
    return g->rows * (g->columns + g->row_ends);
}

struct model_seq {
    const uint32_t *tokens; /* ids < vocab */
    uint32_t token_count;   /* >= 1 */
    uint32_t position;      /* position of tokens[0] in the sequence */
    uint32_t second;        /* token types: 1 from this position on; 0: all are 0 */
    /* By group: the page of token t is pages[group][t / 32], for every t < position + token_count that one of
     * these tokens sees; the others are not looked at. */
    const uint32_t *pages[PAGE_GROUPS_MAX];
    uint32_t state_in;    /* state at `position`; NONE: zeros (position 0) */
    uint32_t pending;     /* accepted tokens that state_in keeps pending (keep_pending). Not read without
                             * state_in, and in models without recurrent layers */
    uint32_t state_out;   /* place of the state after the last token; may be state_in */
    uint32_t logits_from; /* tokens [logits_from, token_count) give a row of logits each; token_count: none */
    bool values;          /* they give the final norm's output instead: a row of values each */
    /* The sequence's images, ascending; those after the sequence's last token may be left out. They decide
     * the positions (contract 4.4) of all following tokens. */
    const struct model_grid *grids;
    uint32_t grid_count;
    /* Some of these tokens are draft tokens: state_out gets the state at `position` and the tokens' inputs.
     * At most 1 + drafts_max tokens. The caller stores how many of them were accepted, at least 1, beside the
     * state: it is `pending` of each sequence that continues from it. Nothing is computed for that. */
    bool keep_pending;
};

struct model_step {
    const struct model_seq *seqs;
    uint32_t seq_count;
    dev_ptr pages[PAGE_GROUPS_MAX]; /* bases of the page pools: page p at pages[g] + p * page_bytes of g */
    dev_ptr states;                 /* base of the state pool; null without states */
    const struct batch_shard *beside_shards; /* [shard_count - 1]: bases on the other devices */
    float *logits;                           /* [logit rows][vocab]: of sequence 0 first */
    const struct row_samples *samples; /* [logit rows]; NULL: all of each row. batch.h, like the next two */
    struct row_top *tops;              /* [logit rows] */
    const uint64_t *valid_ids;
    float *values;                 /* [value rows][hidden]: likewise; may be NULL without such rows */
    atomic_bool *cancel;           /* read between layers; may be NULL */
    atomic_bool *stop;             /* read between layers; may be NULL */
    _Atomic uint64_t *progress_ns; /* set to the clock's time after each layer; may be NULL */
    struct batch_beside *beside;   /* tasks of the caller; NULL: none */
};

/* Begins a step: gives its operations to the device, which may compute until model_step_end(). Until then
 * the caller leaves sequences, tokens, page tables and features alone, and begins nothing else. */
void model_step_begin(struct model *m, const struct model_step *s);
/* Waits for the step; then its logits are complete. 0, -ECANCELED between two layers, -ENOMEM: the device had
 * no memory for the step, or a failure of the device: -EIO, -ENODEV (it is lost). After any of them pages and
 * states of this step's tokens are undefined (states only when state_out == state_in), and the step counts as
 * not done. */
int model_step_end(struct model *m);
/* After a step, before anything else begins: a row that was sampled from comes into the
 * step's `logits`. As model_step_end(). */
int model_row(struct model *m, uint32_t row);
static inline int model_forward(struct model *m, const struct model_step *s)
{
    if (s->seq_count == 0)
        return 0;
    model_step_begin(m, s);
    return model_step_end(m);
}

/* The pooled vector of vector_room values becomes the result, in place: Dense modules, or the classifier. One
 * thread, the engine's. */
void model_finish_vector(const struct model *m, float *vector);

/* Drafts with the MTP head after tokens that are known but not computed yet. */
struct model_draft_seq {
    uint32_t token, position;               /* the last known token, and where it is in its sequence; >= 1 */
    const uint32_t *pages[PAGE_GROUPS_MAX]; /* model_seq.pages for t < position + count; K and V of rejected
                                             * drafts are overwritten later */
    uint32_t state; /* the next model_seq's state_in: after it lies the hidden state of token position - 1 */
    uint32_t pending; /* model_seq.pending */
    const struct model_grid *grids;
    uint32_t grid_count;
    uint32_t count;   /* requested: 1..drafts_max */
    uint32_t *drafts; /* [count]: the draft tokens, each the best of the valid ones in the draft vocabulary */
    float *logits;    /* [count]: theirs; may be NULL */
};
struct model_draft {
    const struct model_draft_seq *seqs; /* seq_count <= seqs_max */
    uint32_t seq_count;
    dev_ptr pages[PAGE_GROUPS_MAX], states; /* pages and states of model_step */
    const uint64_t *valid_ids;              /* bit per id that may be drafted; NULL: all */
    atomic_bool *stop;                      /* model_step.stop */
};
/* Needs parts.mtp and a checkpoint with the head. Begins with the first token of each draft; the others
 * follow in model_draft_end(), for each needs the one before. `d` stays until then. */
void model_draft_begin(struct model *m, const struct model_draft *d);
/* Waits for the draft tokens. As model_step_end(). */
int model_draft_end(struct model *m);
static inline int model_draft(struct model *m, const struct model_draft *d)
{
    model_draft_begin(m, d);
    return model_draft_end(m);
}

#endif
