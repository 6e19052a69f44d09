/* model.h - a loaded model: one forward pass over rows.
 *
 * A row is a sequence's next tokens: one while decoding, a chunk while its prompt is read. Rows of one step share every
 * product with the weights; a row's numbers depend on nothing but its own tokens and positions (DESIGN 5).
 * The model owns weights and workspace; pages and slots are the caller's. Calls come from one thread, the
 * engine's, inside a turn of the workers. */
#ifndef PLATEAU_MODEL_MODEL_H
#define PLATEAU_MODEL_MODEL_H

#include "base/arena.h"
#include "base/err.h"
#include "kernel/kern.h"
#include "kernel/workers.h"
#include "memory/ledger.h"

#include <stdatomic.h>

struct model;

enum compute_mode { COMPUTE_AUTO, COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8 };
/* "auto", "f32", ... False on anything else. */
bool compute_mode_parse(const char *name, enum compute_mode *ret);
const char *compute_mode_name(enum compute_mode m);

/* What a step's workspace takes: fixed, and per unit of model_opts. */
struct model_workspace {
    uint64_t fixed_bytes, token_bytes, row_bytes, worker_bytes;
};

/* What everyone else needs to know of a model; filled before a weight is read. */
struct model_shape {
    char family[32]; /* "qwen3_5_moe" */
    uint32_t vocab;  /* logits per row */
    uint32_t layers, hidden;
    uint32_t context_max;  /* max_position_embeddings */
    size_t page_bytes;     /* 32 tokens of K and V of all full-attention layers; a multiple of 64 */
    size_t slot_bytes;     /* one sequence's recurrent state; 0 without recurrent layers; a multiple of 64 */
    uint64_t weight_bytes; /* packed, in anonymous memory */
    uint64_t checkpoint_bytes;
    uint64_t loading_bytes;           /* of the checkpoint's files, resident at once while it is packed */
    uint64_t tables_bytes;            /* what its layers are described in, at most */
    uint64_t active_weight_bytes;     /* read per decoded token of one row: experts counted by those chosen */
    uint64_t active_checkpoint_bytes; /* the same weights as the checkpoint has them */
    uint64_t token_products; /* multiply-adds with weights per token, vocab * hidden of them for its logits */
    uint64_t parameters;
    struct model_workspace workspace;
    bool has_vision, has_mtp; /* in the checkpoint; not computed yet */
};

struct model_opts {
    enum compute_mode compute; /* COMPUTE_AUTO is f32 at present; bf16 and int8 are refused with -ENOTSUP */
    uint32_t tokens_max;       /* of one step, all rows */
    uint32_t rows_max;         /* of one step */
    uint32_t logits_max;       /* logit rows of one step */
    const struct kern_ops *ops;
    struct workers *workers;
    /* Accounts `weights`, `workspace`, `tables` and, while loading, `checkpoint` are opened below it. NULL:
     * uncounted (tests). */
    struct account *parent;
    /* Called from the loading thread as bytes are packed; may be NULL. Nonzero stops the load: -ECANCELED. */
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_arg;
};

/* Reads DIR/config.json and every tensor's header, and says what a load will take; loads nothing.
 * 0, -ENOENT, -EINVAL, -ENOTSUP (a family or quantisation we do not have), with the reason in e. */
int model_probe(const char *dir, struct model_shape *ret, struct err *e);
/* Bytes of workspace for steps of so many tokens in so many rows. */
uint64_t model_workspace_bytes(const struct model_shape *s, uint32_t tokens_max, uint32_t rows_max,
                               uint32_t workers);

/* As model_probe, then packs the weights. On failure nothing remains. */
int model_load(const char *dir, const struct model_opts *opts, struct model **ret, struct err *e);
void model_free(struct model *m);
const struct model_shape *model_shape(const struct model *m);

#define MODEL_SLOT_NONE UINT32_MAX

struct model_row {
    const uint32_t *tokens; /* ids < vocab */
    uint32_t token_count;   /* >= 1 */
    uint32_t position;      /* of tokens[0] in the sequence */
    const uint32_t *pages;  /* page of token t: pages[t / 32], for every t < position + token_count */
    uint32_t slot_in;       /* state at `position`; MODEL_SLOT_NONE: zeros (position 0) */
    uint32_t slot_out;      /* where the state behind the last token goes; may be slot_in */
    uint32_t logits_from; /* tokens [logits_from, token_count) give a row of logits each; token_count: none */
};

struct model_step {
    const struct model_row *rows;
    uint32_t row_count;
    char *pages;                   /* base of the page pool: page p at pages + p * page_bytes */
    char *slots;                   /* base of the slot pool; NULL without slots */
    float *logits;                 /* [logit rows][vocab]: of row 0 first */
    atomic_bool *cancel;           /* looked at between layers; may be NULL */
    atomic_bool *stop;             /* likewise */
    _Atomic uint64_t *progress_ns; /* set to the clock's time after each layer; may be NULL */
};

/* 0, or -ECANCELED between two layers: pages and slots of this step's tokens are then undefined (slots only when slot_out
 * == slot_in), and the step counts as not done. */
int model_forward(struct model *m, const struct model_step *s);

#endif
