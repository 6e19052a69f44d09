/* cuda_step.h - a workspace on the device, and the step that is put into its queue.
 *
 * An operation launches kernels; nothing waits before the step's end. Engine thread only. */
#ifndef PLATEAU_COMPUTE_CUDA_STEP_H
#define PLATEAU_COMPUTE_CUDA_STEP_H

#include "compute/backend.h"
#include "compute/cuda/cuda_args.h"
#include "compute/cuda/cuda_device.h"
#include "compute/ops.h"
#include "compute/shape.h"
#include "compute/weight.h"

#include "base/check.h"
#include "kernel/matrix.h"
#include "memory/dev.h"
#include "tensor/tensor.h"

#include <errno.h>

#define CUDA_PARTS_BYTES ((uint64_t)32 << 20)
/* Tokens of a step that is recorded, and such steps that are kept, at most. */
#define CUDA_RECORD_TOKENS 64u
#define CUDA_RECORDS_MAX   24u
/* Tokens of a step whose shared experts have their activation in the product before it. */
#define CUDA_SHARED_TOKENS 128u

struct cuda_array {
    float *base;
    uint32_t stride;
    enum array_rows rows;
};

/* A step's operations as the driver repeats them. They are recorded when a step comes for the second time. */
struct cuda_record {
    uint32_t key;
    struct cuda_step step; /* all that the operations' arguments depend on */
    uint32_t kernels;      /* kernels of the step */
    bool charged;          /* for them */
    void *made;            /* NULL: it is not recorded */
    uint64_t used;         /* when; 0: a free place */
    uint64_t took_ns;      /* the shortest of its last replays; 0: none was waited for */
};

/* A norm of one token that waits for the product that reads it, whose kernel may compute it. */
struct cuda_norm_held {
    bool held;
    struct act y;
    struct cuda_norm_op k;
};

/* A product that waits for the next operation. */
struct cuda_held {
    const struct weight *w; /* NULL: none */
    struct act x, y;
    uint32_t count;
    const float *bias;
    struct cuda_norm_held norm; /* pending norm of x */
    bool experts;               /* each pair of a token and an expert is a column */
    bool beside;                /* cuda_product.beside */
};

/* Queries and keys that wait for their attention, whose kernel may take them. */
struct cuda_append {
    bool held;
    uint32_t layer;
    enum cuda_kernel kernel; /* where it does not */
    struct cuda_grid grid;
    struct cuda_attention k;
};

struct cuda {
    struct compute compute; /* first */
    /* Constant after cuda_open. */
    struct cuda_device *device;
    const struct compute_shape *shape;
    struct cuda_array arrays[COMPUTE_ARRAYS_MAX];
    uint32_t tokens_max, seqs_max, pages_max; /* pages_max: of a sequence's table */
    /* Workspace on the device. */
    char *batch;                      /* the batch's arrays, one after the other */
    uint32_t *expert;                 /* [pairs] */
    float *pair_weight;               /* [pairs] */
    uint32_t *order;                  /* [pairs]: struct cuda_sorted */
    struct cuda_expert_group *groups; /* [pairs] */
    uint32_t *group_count;            /* [1] */
    float *shared_gate;               /* [tokens] */
    float *logits;                    /* [seqs_max][vocab] */
    float *best;                      /* [seqs_max][2] */
    struct row_top *tops;             /* [seqs_max], like the next three */
    struct row_sample *samples;
    struct row_sampled *sampled;
    struct row_edit *edits; /* ROW_EDITS_EACH of each */
    uint64_t *masks;        /* [seqs_max][words], bit per id */
    float *most;            /* [seqs_max][blocks], like block_weights: struct cuda_sample */
    double *block_weights;
    uint64_t *valid;     /* bit per id */
    uint32_t *draft_ids; /* [draft_vocab] */
    struct cuda_ropes *ropes;
    uint16_t *rounded[2];     /* bf16 mode: a product's inputs */
    uint64_t rounded_bytes;   /* bytes of each buffer */
    uint8_t *small;           /* fp8 mode: a product's inputs as small floats, then their scales */
    uint16_t *rounded_shared; /* bf16 mode: the shared expert's activation, of CUDA_SHARED_TOKENS at most */
    float *parts;             /* bf16 mode: CUDA_PARTS_BYTES of attention's segments, of products' chains */
    uint32_t *meet;           /* bf16 mode: where blocks of a product meet, 2 words */
    uint32_t *attend_ended;   /* bf16 mode: [CUDA_ATTEND_ENDS], all 0 between kernels */
    /* On the host. */
    struct cpu_experts *experts; /* experts in the machine's memory; NULL: none */
    char *staging;               /* staging of the batch */
    struct cuda_ropes host_ropes;
    const struct rope_tables *ropes_of; /* that `ropes` hold; NULL: none yet */
    const uint64_t *valid_of;           /* that `valid` holds; NULL: none yet */
    /* The step. */
    const struct batch *in;
    int error; /* failure since the last step's end: 0, -ENOMEM: memory alone was lacking, or -EIO */
    struct cuda_step step;
    bool logits_here;      /* all rows of logits are in `logits`; else the host has them */
    uint32_t rows_left;    /* rows in `logits` that may not be on the host, since the last step */
    float *rows_to;        /* where they go */
    uint32_t sorted_by;    /* columns of a group of the sorted pairs; 0: they are not sorted yet */
    uint32_t rounded_turn; /* which of them was written last */
    struct act rounded_of; /* activation that this buffer has, in all of its rows; width 0: none */
    struct act shared_of;  /* activation that rounded_shared has; width 0: none */
    struct cuda_held held;
    struct cuda_norm_held norm;
    struct cuda_append append;
    void *recording;              /* the queue that is recorded; NULL: none was needed yet */
    struct cuda_record *record;   /* that is being made; NULL: none */
    bool record_failed;           /* a call for it did */
    struct cuda_record *replayed; /* by this step, and when; NULL: none */
    uint64_t replayed_ns;
    struct cuda_record *noted; /* record of this step, which came for the first time; NULL: it did not */
    uint32_t kernels;          /* kernels of this step until now */
    bool lets_beside;          /* the last of them lets a product run beside it (cuda_product.beside) */
    bool routed;               /* it is of a route: since then no array was written */
    const struct charge *recorded, *recorded_host; /* for the records' memory */
    struct cuda_record records[CUDA_RECORDS_MAX];
    uint64_t clock; /* counts the records' uses */
    /* cuda_encode.c: events after pieces of an image, the one that is put into the queue next, and the work
     * since the last one. */
    void *encoded[2];
    uint32_t encode_turn;
    uint64_t encode_cost;
    const float *encode_rounded; /* rows whose values the image's `rounded` has; NULL: none */
    uint64_t refused_ns;         /* when the driver last did not make or launch one; 0: it never did not */
};

static inline struct cuda *cuda_of(struct compute *c)
{
    return (struct cuda *)c;
}

/* ---- arguments ---- */

/* Host code does not follow it. */
static inline void *cuda_pointer(dev_ptr p)
{
    return (void *)(uintptr_t)p.at;
}
static inline struct cuda_rows cuda_rows(const struct cuda *c, struct act a)
{
    if (a.width == 0)
        return (struct cuda_rows){0};
    return (struct cuda_rows){c->arrays[a.array].base + a.from, c->arrays[a.array].stride, a.width};
}
_Static_assert((int)CUDA_FRAGMENTS > MATRIX_I8 && (int)CUDA_AFFINE == MATRIX_AFFINE &&
                   (int)CUDA_I8 == MATRIX_I8,
               "forms have one number");
_Static_assert((int)CUDA_CODES_E4M3 == CODES_E4M3 && (int)CUDA_BIASES_ZEROS == BIASES_ZEROS,
               "codes and biases, too");

static inline struct cuda_matrix cuda_matrix(const struct weight *w)
{
    return w ? (struct cuda_matrix){.data = cuda_pointer(w->data),
                                    .expert_bytes = w->expert_bytes,
                                    .n = w->n,
                                    .k = w->k,
                                    .experts = w->experts,
                                    .form = w->form,
                                    .qparams = w->qparams,
                                    .bits = w->bits,
                                    .group = w->group,
                                    .codes = w->codes,
                                    .biases = w->biases,
                                    .super = w->super}
             : (struct cuda_matrix){0};
}
struct cuda_norm cuda_norm_of(const struct cuda *c, const struct norm *n);
struct cuda_residual cuda_residual_of(const struct cuda *c, const struct residual *r);
/* The tables on the device; brings them there the first time. */
const struct cuda_ropes *cuda_ropes_of(struct cuda *c, const struct rope_tables *t);

/* A block of CUDA_THREADS for each of `rows`. */
static inline struct cuda_grid cuda_by_row(uint32_t rows)
{
    return (struct cuda_grid){rows, 1, 1, CUDA_THREADS, 0};
}

/* The product, the norm or the queries that wait. */
void cuda_flush(struct cuda *c); /* cuda_project.c */

/* Takes note of a failure, which fails the step; true: there was none. */
static inline bool cuda_done(struct cuda *c, cuda_result r, const char *what)
{
    bool ok = cuda_ok(c->device, r, what);
    if (!ok)
        c->error = r == CUDA_ERROR_OUT_OF_MEMORY && c->error != -EIO ? -ENOMEM : -EIO;
    return ok;
}

/* The launch for the record that is being made, if any. */
static inline void cuda_record_launch(struct cuda *c, enum cuda_kernel k, struct cuda_grid g,
                                      void **arguments)
{
    if (c->record && !c->record_failed)
        c->record_failed =
            !cuda_ok(c->device, cuda_launch(c->device, c->recording, k, g, arguments), "record");
}

/* Whether the kernel calls grid_wait_next(). */
static inline bool cuda_lets_beside(enum cuda_kernel k)
{
    return (k >= CUDA_KERNEL_product && k <= CUDA_KERNEL_product16) || k == CUDA_KERNEL_product_deep ||
           k == CUDA_KERNEL_route;
}

/* Launches, unless the step has failed: kernels would read what the missing one did not write. Rounded inputs
 * stay valid. */
static inline void cuda_run_beside(struct cuda *c, enum cuda_kernel k, struct cuda_grid g, void **arguments)
{
    c->kernels++;
    c->lets_beside = cuda_lets_beside(k);
    c->routed = k == CUDA_KERNEL_route;
    if (c->error < 0)
        return;
    (void)cuda_done(c, cuda_launch(c->device, c->device->stream, k, g, arguments), "launch");
    cuda_record_launch(c, k, g, arguments);
}
/* Launches with the step and the operation's struct, or with that alone. Rounded inputs count no more. */
static inline void cuda_run_all(struct cuda *c, enum cuda_kernel k, struct cuda_grid g, void **arguments)
{
    cuda_flush(c);
    c->rounded_of.width = 0;
    cuda_run_beside(c, k, g, arguments);
}
static inline void cuda_run_step(struct cuda *c, enum cuda_kernel k, struct cuda_grid g, const void *a)
{
    void *arguments[] = {&c->step, (void *)(uintptr_t)a};
    cuda_run_all(c, k, g, arguments);
}
static inline void cuda_run(struct cuda *c, enum cuda_kernel k, struct cuda_grid g, const void *a)
{
    void *arguments[] = {(void *)(uintptr_t)a};
    cuda_run_all(c, k, g, arguments);
}
static inline void cuda_run_product(struct cuda *c, enum cuda_kernel k, struct cuda_grid g, const void *a)
{
    void *arguments[] = {(void *)(uintptr_t)a};
    cuda_run_beside(c, k, g, arguments);
}

/* Rows of `a` in this step. */
static inline uint32_t cuda_rows_of(const struct cuda *c, struct act a, uint32_t tokens)
{
    return tokens * (c->arrays[a.array].rows == ROWS_PAIRS ? c->shape->top_k : 1);
}
/* Where an operation writes `a` as bf16, too; nowhere in other modes. The caller says when it has been put
 * into the queue: cuda_has_rounded(). */
static inline struct cuda_rounded cuda_rounded_for(const struct cuda *c, struct act a)
{
    uint64_t bytes = 2 * (uint64_t)cuda_rows_of(c, a, c->tokens_max) * ROUND_UP(a.width, CUDA_UNIT);
    bool fits = a.width > 0 && bytes <= c->rounded_bytes;
    return fits ? (struct cuda_rounded){c->rounded[!c->rounded_turn], cuda_rows_of(c, a, c->step.tokens), 0}
                : (struct cuda_rounded){0};
}
/* As `cuda_rounded_for()`, but for an operation that writes no zeros past a row. */
static inline struct cuda_rounded cuda_rounded_whole(const struct cuda *c, struct act a)
{
    return a.width % CUDA_UNIT == 0 ? cuda_rounded_for(c, a) : (struct cuda_rounded){0};
}
static inline void cuda_has_rounded(struct cuda *c, struct cuda_rounded r, struct act a)
{
    if (!r.at)
        return;
    c->rounded_of = a;
    c->rounded_turn = !c->rounded_turn;
}
/* `a` as bf16 if it is there. */
static inline bool cuda_is_act(struct act a, struct act b)
{
    return a.width > 0 && a.width == b.width && a.array == b.array && a.from == b.from;
}
static inline struct cuda_rounded cuda_rounded_of(const struct cuda *c, struct act a)
{
    if (cuda_is_act(a, c->shared_of))
        return (struct cuda_rounded){c->rounded_shared, c->step.tokens, 0};
    return cuda_is_act(a, c->rounded_of)
               ? (struct cuda_rounded){c->rounded[c->rounded_turn], cuda_rows_of(c, a, c->step.tokens), 0}
               : (struct cuda_rounded){0};
}
/* After operations that wrote `written` in f32 only: the values of `before` are still there as bf16. */
static inline void cuda_keep_rounded(struct cuda *c, struct act before, struct act written)
{
    if (before.array != written.array)
        c->rounded_of = before;
}

/* y = w x of matrix `w`, for rows [0, count) of x. */
void cuda_multiply(struct cuda *c, const struct weight *w, struct cuda_rows x, struct cuda_rows y,
                   const float *bias, uint32_t count);
/* Whether a product of w = gate | up can have the activation in it. */
bool cuda_takes_glu(const struct cuda *c, const struct weight *w, uint32_t count); /* cuda_fragments.c */
/* As `cuda_takes_glu()`, but for a product of experts; cuda_fragments.c. */
bool cuda_takes_experts_glu(const struct cuda *c, const struct weight *w, uint32_t pairs);

/* Whether the kernel for few columns computes the product. */
bool cuda_is_narrow(const struct cuda *c, const struct weight *w, uint32_t count); /* cuda_fragments.c */
/* Whether a product can add its outputs to the residual stream. */
bool cuda_takes_add(const struct cuda *c, const struct weight *w, uint32_t count); /* cuda_fragments.c */

/* The activation becomes a part of the product before it. False: it does not. */
bool cuda_glu_of_held(struct cuda *c, const struct op_glu *a); /* cuda_project.c */
/* As `cuda_glu_of_held()`, but of a shared expert's product, whose activation goes to `rounded_shared`. */
bool cuda_shared_glu_of_held(struct cuda *c, const struct op_glu *a); /* cuda_project.c */
/* The product before it adds its outputs to h, which is all of `add`. False: it does not. */
bool cuda_add_of_held(struct cuda *c, const struct residual *add, struct act h); /* cuda_project.c */

/* cuda_record.c: adds the memory of all records of a model, at most. */
void cuda_records_cost(const struct compute_shape *s, struct compute_cost *ret);
/* A step that comes again. */
bool cuda_replay(struct compute *c, uint32_t key);
/* The step's operations have been called. The record goes into the queue, or is dropped. */
void cuda_record_end(struct cuda *c, bool run);
/* A step that was replayed has ended. Threads that sleep wake late: this one is awake for the last quarter of
 * the time that the step took before. */
void cuda_replay_wait(struct cuda *c);
void cuda_records_free(struct cuda *c);

/* All that is in the queue has been done. 0, -ENODEV, -EIO, or -ENOMEM: something was not done since the last
 * step's end, because the driver had no memory for it alone. */
int cuda_finish_step(struct cuda *c); /* cuda_sample.c */
/* The valid ids on the device; brings them there the first time. NULL: all are. */
const uint64_t *cuda_valid(struct cuda *c); /* cuda_project.c */
/* Puts the samples from the step's logits, or their copies, into the queue. */
void cuda_get_logits(struct cuda *c);          /* cuda_sample.c */
int cuda_row(struct compute *c, uint32_t row); /* cuda_sample.c */

/* Columns of one expert that a block of a product with fragments takes; 1: the pairs are not to be sorted. */
uint32_t cuda_expert_columns(const struct cuda *c, const struct weight *w,
                             uint32_t pairs); /* cuda_fragments.c */

/* Experts in the machine's memory: their rows there are pinned until the close. 0 or -ENOMEM. */
int cuda_experts_open(struct cuda *c, const struct compute_opts *o); /* cuda_experts.c */
void cuda_experts_close(struct cuda *c);                             /* cuda_experts.c */

/* Multiplies with fragments, also for experts; cuda_fragments.c. */
void cuda_multiply_fragments(struct cuda *c, const struct weight *w, const struct cuda_product *k);

/* ---- the operations ---- */

COMPUTE_OPS(COMPUTE_OP_FUNCTION, cuda)
void cuda_project(struct compute *c, const struct op_product *l, uint32_t count); /* cuda_project.c */
bool cuda_encode(struct compute *c, const struct op_encode *a, uint32_t *at);     /* cuda_encode.c */
void cuda_encode_end(struct cuda *c);

#endif
