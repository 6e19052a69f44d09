/* runner.h - runs sequences through a model, several at once, in chunks.
 *
 * A small stand-in for the engine with its own pages and states. Sequences join as others finish, so
 * prefilling and decoding sequences share steps. Pages are handed out in a shuffled order and start filled
 * with NaN, as does every state, so that a read of unwritten memory shows. Prompt chunks continue in a fresh
 * state, decoding in place. */
#ifndef PLATEAU_TOOLS_RUNNER_H
#define PLATEAU_TOOLS_RUNNER_H

#include "model/model.h"

struct runner;

struct runner_opts {
    struct model *model;
    uint32_t tokens_max, seqs_max; /* limits that the model was loaded with */
    uint32_t sequence_max;         /* tokens of the longest sequence */
};

struct runner_sequence {
    const uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t generate;              /* tokens; the last one is not fed back */
    uint32_t *generated;            /* [generate], filled in */
    uint64_t hash;                  /* hash of all logits in order, filled in */
    const struct model_grid *grids; /* images of the prompt */
    uint32_t grid_count;
    void *arg; /* for `see` */
};

/* 0 or -ENOMEM. */
int runner_create(const struct runner_opts *opts, struct runner **ret);
void runner_free(struct runner *r);

/* Runs all sequences with at most `batch` at once and at most `chunk` prompt tokens of each in a step. `see`
 * (may be NULL) gets every row of logits: of prompt position `position`, or the one after it. 0, or an error
 * of model_forward. */
typedef void runner_see_fn(struct runner_sequence *q, uint32_t position, const float *logits, uint32_t vocab);
int runner_run(struct runner *r, struct runner_sequence *sequences, uint32_t count, uint32_t chunk,
               uint32_t batch, runner_see_fn *see);

uint32_t runner_argmax(const float *logits, uint32_t vocab);

#endif
