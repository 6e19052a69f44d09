/* batch.h - what differs from one step to the next: tokens, sequences, positions, places in the pools.
 *
 * The tokens of all sequences lie side by side as columns: sequence 0's first. Arrays are host memory;
 * from compute_step_begin() to compute_step_end() they are the backend's, which may change them, but not the
 * tables of pages. Operations take nothing else that differs between two steps, so a
 * backend may record one and repeat it with another batch. */
#ifndef PLATEAU_COMPUTE_BATCH_H
#define PLATEAU_COMPUTE_BATCH_H

#include "memory/dev.h"
#include "base/page_tokens.h"
#include "compute/rope.h"

struct row_samples;
struct row_top;

struct batch_seq {
    uint32_t first, count;        /* columns [first, first + count); count >= 1 */
    uint32_t position;            /* position of the first token in its sequence */
    uint32_t second;              /* token types are 1 from this position on; NONE: all are 0 */
    uint32_t state_in, state_out; /* recurrent states; NONE: zeros, none */
    uint32_t pending;             /* tokens after state_in that were accepted, whose inputs it keeps */
    bool keep_pending;            /* state_out gets the state before the tokens, and their inputs */
    /* By group: the page of token t is pages[group][t / 32]. Entries before the window of the first token are
     * not read. */
    const uint32_t *pages[PAGE_GROUPS_MAX];
    struct rope_position previous; /* position of the token before the first; unused at position 0 */
};

/* Tasks of the caller that a backend may run beside the products of logits, on threads that compute: run(arg,
 * i) once for each i < count, and then `done` is set. Otherwise the caller runs them. */
struct batch_beside {
    void (*run)(void *arg, uint32_t i);
    void *arg;
    uint32_t count;
    bool done;
};

/* Bases of the pools of a shard of the model beside the first. */
struct batch_shard {
    dev_ptr pages[PAGE_GROUPS_MAX], states;
};

struct batch {
    uint32_t token_count, seq_count, logit_count, value_count;
    uint32_t image_count; /* tokens with features */
    const struct batch_seq *seqs;
    const uint32_t *ids;                   /* [tokens] < vocab */
    const uint32_t *token_seq;             /* [tokens] */
    const struct rope_position *positions; /* [tokens] */
    const dev_ptr *features;               /* [tokens]: embeddings of an image's token; null: the id's own */
    const uint32_t *logit_columns;         /* [logits + values]: tokens with logits, then tokens with
                                            * values, each in order */
    /* [tokens]: with op_attention.image_ends a query sees the tokens before this position of its sequence,
     * all of them known; NULL: there are none. Not with op_attention.both_ways. */
    const uint32_t *ends;
    const uint32_t *hidden_columns; /* [tokens]: of a draft after the first, the column of its hidden state in
                                     * the step before */
    dev_ptr pages[PAGE_GROUPS_MAX]; /* bases of the pools, by group */
    dev_ptr states;
    const struct batch_shard *beside_shards; /* [shards - 1]; NULL: the step stays in the first shard */
    struct batch_beside *beside;             /* NULL: none */
    /* For a backend with `samples`: complete when compute_step_end() is called, which samples. At most
     * ROW_EDITS_EACH * seqs_max edits and seqs_max masks. NULL: all logits of all rows. */
    const struct row_samples *samples;
    /* Results in host memory, complete after compute_step_end(). */
    float *logits;             /* [logits][vocab]; a row with a sample: by compute_row() */
    struct row_top *tops;      /* [logits]: of rows with a sample that wants some */
    float *values;             /* [values][hidden]: of compute_values() */
    struct draft_best *best;   /* [tokens]: of compute_best() */
    const uint64_t *valid_ids; /* bit per id for compute_best() and samples, constant; NULL: all */
};

#endif
