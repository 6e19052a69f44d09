/* step.h - one forward pass under way: its workspace and the ways work is split.
 *
 * The tokens of all sequences lie side by side as columns: sequence 0's first. Work goes to the workers in
 * tiles of outputs. Every step_* function below is one barrier (a single tile runs without). Between
 * barriers a tile only writes what it owns. The blocks (attention, delta net, MLP, experts) leave their
 * result in `block_out` or elsewhere; `pending_residual` adds a token's part of it to the residual stream.
 * The next norm calls it first, which saves a barrier each. Engine thread only; the tiles run on the
 * workers. */
#ifndef PLATEAU_MODEL_STEP_H
#define PLATEAU_MODEL_STEP_H

#include "model/layer.h"
#include "model/model.h"
#include "model/rope.h"

#include "base/check.h"

/* Tokens of one sequence whose absolute positions share position / 16. Attention takes a span as a block of
 * queries. Two spans never write into the same cache line of a page. */
#define STEP_SPAN_TOKENS 16
struct step_span {
    uint32_t seq, column, position, count;
};

/* One product with a matrix, cut into tiles. */
struct step_product {
    struct matrix matrix;
    struct kern_columns columns;
    uint32_t tile_begin, panels_step, columns_step, column_tiles;
};

/* Column pointers of the projections in a list. */
struct step_columns {
    const float **x;
    const float **xsum[3]; /* by group size */
    float **y[PROJECTION_PARTS_MAX];
    uint32_t used;
};
#define STEP_PROJECTIONS_MAX 2 /* of all tokens, in one list */

/* A draft in progress: its sequence of model_draft, and the place of its hidden state of the pass before. */
struct step_draft {
    uint32_t seq, column;
};
struct step_best {
    float logit;
    uint32_t id;
};
/* Limits of drafting: panels of the head at a time, and sequences. */
#define STEP_DRAFT_PANELS  16
#define STEP_DRAFT_LOGITS  (STEP_DRAFT_PANELS * MATRIX_PANEL)
#define STEP_DRAFT_COLUMNS 16

struct step {
    /* Constant after step_create. */
    const struct config *config;
    const struct kern_ops *ops;
    struct workers *workers;
    struct rope rope;
    uint32_t tokens_max, seqs_max, logits_max;
    uint32_t wide;                  /* floats per token in proj */
    uint32_t mid_wide, normed_wide; /* likewise in mid and normed */
    uint32_t products_max;
    /* The step. */
    const struct model_step *in;
    uint32_t tokens, seqs, span_count;
    uint32_t imaged;                                          /* tokens with features */
    void (*pending_residual)(struct step *s, uint32_t token); /* NULL: nothing pending */
    /* Workspace. */
    uint32_t *seq_column;  /* [seqs]: column of the sequence's first token */
    uint32_t *seq_pending; /* [seqs]: tokens pending in state_in that count */
    uint32_t *token_seq;   /* [tokens] */
    struct step_span *spans;
    uint32_t *ids; /* [tokens] */
    struct rope_position *positions;
    const float **features; /* [tokens]: image embeddings of image tokens; NULL: the token's own embedding */
    float *cosines, *sines; /* [tokens][rot / 2] */
    float *residual;        /* [tokens][hidden]: the residual stream */
    float *normed, *normed_sums;   /* [tokens][normed_wide]: normed, and its group sums */
    float *proj;                   /* [tokens][wide]: outputs of projections of normed */
    float *conv;                   /* [tokens][conv channels] */
    float *alpha, *beta;           /* [tokens][value_heads] */
    float *mid, *mid_sums;         /* [tokens][mid_wide]: inputs of the second projection */
    float *block_out;              /* [tokens][hidden]: its outputs */
    uint32_t *logit_columns;       /* [tokens] */
    struct step_columns columns;   /* [STEP_PROJECTIONS_MAX * tokens] each */
    struct step_product *products; /* [products_max] */
    /* Experts: a pair is (token, rank), at token * top_k + rank. */
    uint32_t *pair_expert, *pair_order;                            /* [pairs]; pairs sorted by expert */
    uint32_t *expert_begin;                                        /* [experts + 1] into pair_order */
    float *pair_weight, *shared_gate;                              /* [pairs], [tokens] */
    float *pair_up;                                                /* [pairs][2 * expert_intermediate] */
    float *pair_up_sums;                                           /* of the first half of pair_up */
    float *pair_out;                                               /* [pairs][hidden] */
    const float **pair_x, **pair_xsum, **pair_mid, **pair_mid_sum; /* [pairs] */
    float **pair_up_y, **pair_out_y;
    /* Drafts. */
    struct step_draft *drafts;    /* [seqs] */
    struct model_seq *draft_seqs; /* [seqs] */
    struct step_best *draft_best; /* [seqs][step_draft_tiles_max] */
    /* Per worker. */
    float *attention_scratch;   /* [workers][KERN_ATTN_SCRATCH] */
    struct kern_query *queries; /* [workers][STEP_QUERIES_MAX] */
    float *delta_scratch;       /* [workers][KERN_DELTA_SCRATCH(key_dim)] */
    float *draft_logits;        /* [workers][STEP_DRAFT_COLUMNS][STEP_DRAFT_LOGITS] */
};
#define STEP_QUERIES_MAX 64

/* The cost of a workspace: fixed + token * tokens_max + seq * seqs_max + worker * workers. */
struct model_workspace step_cost(const struct config *c);
/* Lays the workspace out in `a`. 0 or -ENOMEM. */
int step_create(struct arena *a, const struct config *c, const struct model_opts *opts, struct step **ret);
/* Takes the sequences in: columns, spans, positions. */
void step_begin(struct step *s, const struct model_step *in);

/* Floats from one token's row to the next, for at least n: whole cache lines, and not a multiple of 1 KiB.
 * Otherwise a product's columns would share a few sets of the first cache and evict each other. */
static inline uint32_t step_row_stride(uint32_t n)
{
    n = (n + 15) / 16 * 16;
    return n % 256 == 0 ? n + 16 : n;
}

/* Floats of group sums of n values, all three sizes, and the offset of one size. */
static inline uint32_t step_sums_floats(uint32_t n)
{
    return (n + 31) / 32 + (n + 63) / 64 + (n + 127) / 128;
}
static inline uint32_t step_sums_offset(uint32_t n, uint32_t group)
{
    return group == 32 ? 0 : group == 64 ? (n + 31) / 32 : (n + 31) / 32 + (n + 63) / 64;
}
/* Group sums of x, of the sizes in `groups` (GROUP_*). */
void step_sums(const struct step *s, unsigned groups, float *sums, const float *x, uint32_t n);
/* The same of x[from, to): from is a multiple of 128, and so is to, unless it is n. */
void step_sums_part(const struct step *s, unsigned groups, float *sums, const float *x, uint32_t n,
                    uint32_t from, uint32_t to);

/* fn(arg, tile, worker) for tile < tiles. */
void step_run(struct step *s, workers_fn *fn, void *arg, uint32_t tiles);
/* fn for each token, on any worker. The caller runs all of them alone when they take less time than a
 * barrier. `values`: values read and written per token, about; one that takes an exponential counts
 * tenfold. */
typedef void step_token_fn(struct step *s, const void *arg, uint32_t token);
void step_each_token(struct step *s, step_token_fn *fn, const void *arg, uint32_t values);
/* The same for each of `count` of something else. */
void step_each(struct step *s, step_token_fn *fn, const void *arg, uint32_t count, uint32_t values);
/* fn for each token's values [0, width), cut at multiples of 128 where there are fewer tokens than
 * workers. */
typedef void step_part_fn(struct step *s, const void *arg, uint32_t token, uint32_t from, uint32_t to);
void step_each_part(struct step *s, step_part_fn *fn, const void *arg, uint32_t width);

/* A matrix of activations, one row per token. */
struct step_rows {
    float *data, *sums; /* sums: of `width` values per row, or NULL */
    size_t stride;      /* floats */
    uint32_t width;
};
/* y[t] = projection of x[t] for t < count; y.width is not used. */
void step_project(struct step *s, const struct projection *p, struct step_rows x, struct step_rows y,
                  uint32_t count);
/* The same as products of the list, to be run later; returns the list's new length. At most
 * STEP_PROJECTIONS_MAX in a list. */
uint32_t step_project_add(struct step *s, uint32_t list, const struct projection *p, struct step_rows x,
                          struct step_rows y, uint32_t count);
/* Adds a product to the list; returns the list's new length. The columns' arrays stay until step_products. */
uint32_t step_product_add(struct step *s, uint32_t count, const struct matrix *m,
                          const struct kern_columns *c);
void step_products(struct step *s, uint32_t count);

/* Adds the pending residual, then normed = rmsnorm(residual) with group sums. */
void step_norm(struct step *s, const float *weight, unsigned groups);
/* Adds the pending residual, then the vision encoder's features for the finished layer to image tokens. */
void step_add_features(struct step *s, uint32_t layer);
/* The usual pending residual: residual += block_out. */
void step_add_block_out(struct step *s, uint32_t token);

/* One linear layer's part of a state, and its pending tokens; NULL for NONE. */
float *step_state(const struct step *s, uint32_t state, uint32_t linear_index);
float *step_state_pending(const struct step *s, uint32_t state, uint32_t linear_index);
/* The header of a state; NULL where the configuration has no pending tokens. */
struct state_header *step_state_header(const struct config *c, char *states, uint32_t state);

/* Size of the draft vocabulary. */
static inline uint32_t step_draft_vocab(const struct config *c)
{
    return c->draft_vocab ? c->draft_vocab : c->vocab;
}
/* Panels of a tile: fewer where there would be too few tiles for an even load. */
static inline uint32_t step_draft_panels(const struct config *c, uint32_t workers)
{
    uint32_t all = DIV_UP(step_draft_vocab(c), MATRIX_PANEL), panels = STEP_DRAFT_PANELS;
    while (panels > 4 && DIV_UP(all, panels) < 2 * workers)
        panels /= 2;
    return panels;
}
/* Bound on tiles, with any number of workers. */
static inline uint32_t step_draft_tiles_max(const struct config *c)
{
    return DIV_UP(DIV_UP(step_draft_vocab(c), MATRIX_PANEL), 4u);
}

static inline struct step_rows step_x(const struct step *s)
{
    return (struct step_rows){s->normed, s->normed_sums, s->normed_wide, s->config->hidden};
}
static inline struct step_rows step_proj(const struct step *s)
{
    return (struct step_rows){.data = s->proj, .stride = s->wide};
}
/* `width` values at the head of each row of mid. */
static inline struct step_rows step_mid(const struct step *s, uint32_t width)
{
    return (struct step_rows){s->mid, s->mid_sums, s->mid_wide, width};
}
static inline struct step_rows step_d(const struct step *s)
{
    return (struct step_rows){.data = s->block_out, .stride = s->config->hidden};
}

#endif
