/* bench_rows.h - rows of a batch with pages and states of their own, for timing a model's steps.
 *
 * Row 0 reads a prompt; the others get copies of its pages and its state, so that all decode from the same
 * depth. */
#ifndef PLATEAU_BENCH_ROWS_H
#define PLATEAU_BENCH_ROWS_H

#include "model/model.h"

struct bench_rows;
struct row_sample;

struct bench_rows_opts {
    struct model *model;
    uint32_t rows, prompt; /* tokens of the prompt; a multiple of 32 */
    uint32_t decode_max;   /* tokens that may follow */
    uint32_t drafts_max;   /* limit that the model was loaded with */
    struct device *device; /* logits are pinned for it; NULL: they are not */
};

/* Bytes of pages, states and logits. */
uint64_t bench_rows_bytes(const struct model_shape *s, const struct bench_rows_opts *o);
/* 0 or -ENOMEM. */
int bench_rows_create(const struct bench_rows_opts *o, struct bench_rows **ret);
void bench_rows_free(struct bench_rows *b);

/* Reads the prompt into row 0, whole; logits for its last token. Inside a turn of the workers, like all
 * below. */
void bench_rows_prefill(struct bench_rows *b);
/* The last `tokens` of the prompt once more, as after a hit in the prefix cache. */
void bench_rows_tail(struct bench_rows *b, uint32_t tokens);
/* Instead: row 0 has made-up keys and values, all finite. In memory of the machine alone. */
void bench_rows_invent(struct bench_rows *b);
/* Copies what row 0 has read to the others. */
void bench_rows_spread(struct bench_rows *b);
/* A token each for rows [0, count), with logits. */
void bench_rows_decode(struct bench_rows *b, uint32_t count);
/* One step: a token each for rows [0, count), with logits, and the first `tokens` of the prompt for one more,
 * the last row. Rows keep their positions. */
void bench_rows_mixed(struct bench_rows *b, uint32_t count, uint32_t tokens);
/* From now on the backend samples a token from each row of logits, if it can, as `d` says; NULL: the host
 * gets all logits. Without drafts. */
void bench_rows_samples(struct bench_rows *b, const struct row_sample *d);
/* The head drafts `ahead` tokens for each of rows [0, count). Then these are computed after a known one, all
 * with logits, and the first `right` of them are accepted. */
void bench_rows_draft(struct bench_rows *b, uint32_t count, uint32_t ahead);
void bench_rows_verify(struct bench_rows *b, uint32_t count, uint32_t ahead, uint32_t right);

#endif
