/* sampler.h - from a row of logits to a token, per row.
 *
 * Order: allowed ids, only_biased, logit_bias, min_tokens (end tokens masked), repetition / presence /
 * frequency penalties, temperature, min_p, top_k, top_p, sample. Temperature 0 is greedy: the largest logit,
 * ties to the lower id. A sample is a function of (seed, the row's position) and of this row's logits:
 * nothing else in the batch can change it. Logprobs are the model's own: log-softmax of the logits before
 * any of the above. Ids without a token (rows past the tokenizer's size) are never sampled or listed. */
#ifndef PLATEAU_SAMPLE_SAMPLER_H
#define PLATEAU_SAMPLE_SAMPLER_H

#include "sample/sampler_params.h"

#include "base/arena.h"

struct row_sample;
struct row_sampled;
struct row_edit;
struct row_top;

/* One row's sampler: its parameters and what it has seen. Lives in the row's arena. */
struct sampler;

/* The most bytes of arena of a sampler for this many tokens (prompt + output): the table of seen tokens,
 * only with penalties. It takes 8 bytes for each of at least tokens_max * 4 / 3 slots, and 4 bytes for each
 * token. */
size_t sampler_bytes(const struct sampler_params *p, uint32_t tokens_max);
/* 0 or -ENOMEM. */
int sampler_create(struct arena *a, const struct sampler_params *p, uint32_t tokens_max,
                   struct sampler **ret);
/* Tells it the prompt's tokens (repetition penalty). Call once, in order or not. */
void sampler_see_prompt(struct sampler *s, const uint32_t *ids, uint32_t count);
/* Tells it an output token; sampler_sample does not do that by itself. */
void sampler_see_output(struct sampler *s, uint32_t id);

const struct sampler_params *sampler_params_of(const struct sampler *s);
/* Samples from now on only ids whose bit is set; NULL: all again. `allowed` outlives the samples, has one of
 * the valid ids, and changes no logprob. Where all its ids stop the row, the caller gives min_tokens
 * outputs. */
void sampler_allow(struct sampler *s, const uint64_t *allowed);

/* Scratch for samples, one per engine: vocab * 12 bytes. */
struct sampler_scratch;
int sampler_scratch_create(struct arena *a, uint32_t vocab, struct sampler_scratch **ret);

/* Samples from logits[vocab], which it overwrites. `valid_ids`: bit i says that id i has a token (NULL: all).
 * `position` is the index of the sampled token in the sequence (prompt + output); `outputs` how many came
 * before it. */
void sampler_sample(struct sampler *s, struct sampler_scratch *scratch, float *logits, uint32_t vocab,
                    const uint64_t *valid_ids, uint32_t position, uint32_t outputs, struct sampled *ret);

/* ---- in parts ----
 *
 * A part of a sample does not depend on other samples, and several threads may do it before: each block of
 * ids is made ready, and some rows are weighed. Then the row is sampled from. The token is the same. */
#define SAMPLER_BINS 512u

/* Facts of a row's blocks, before its sample. The caller's arrays. */
struct sampler_blocks {
    float *most;     /* [blocks]: what sampler_ready() returned */
    bool weighed;    /* every block; the two below are read only then */
    double *weights; /* [blocks]: by sampler_weigh() */
    uint32_t *bins;  /* [SAMPLER_BINS]: by sampler_weigh(), 0 before */
};

/* A row of logits before its sample. */
struct sampler_row {
    float *logits; /* [vocab] */
    uint32_t vocab;
    const uint64_t *valid_ids; /* see sampler_sample() */
    const uint64_t *allowed;   /* see sampler_allow(), which comes before the sample */
};

/* Makes ids [block * ROW_SAMPLE_BLOCK, the next block) ready; may overwrite the logits of those that cannot
 * be sampled. Returns the largest logit of the block that may be sampled. */
float sampler_ready(const struct sampler *s, const struct sampler_row *row, uint32_t block);
/* Whether the sample needs the weights of all its candidates, and not of edited logits. */
bool sampler_weighs(const struct sampler *s, const uint64_t *allowed);
/* Weighs the blocks [from, until) of a row whose blocks are all ready. */
void sampler_weigh(const struct sampler *s, const struct sampler_row *row,
                   const struct sampler_blocks *blocks, uint32_t from, uint32_t until);
/* sampler_sample() of a row whose blocks are ready. */
void sampler_sample_ready(struct sampler *s, struct sampler_scratch *scratch, const struct sampler_row *row,
                          const struct sampler_blocks *blocks, uint32_t position, uint32_t outputs,
                          struct sampled *ret);

/* ---- samples of a device ----
 *
 * A device that has the row of logits can sample from it: compute/row_sample.h. The token and the bits of its
 * logprobs are equal to sampler_sample()'s. */

/* A sample, and where it is in its sequence. */
struct sampler_position {
    uint32_t position, outputs; /* see sampler_sample() */
    /* Output tokens that the sampler has not seen, before the sample; outputs has them counted. */
    const uint32_t *drafts;
    uint32_t draft_count;
};

/* Fills *ret, but for `wanted`, `mask` and `edits`, and the edits of a row of `vocab` logits, at most `room`.
 * The mask is sampler_allow()'s, and with only_biased also sampler_mask_biased()'s. False: the edits have no
 * room, or logit_bias names an id twice. Then the host samples. */
bool sampler_order(const struct sampler *s, const struct sampler_position *at, uint32_t vocab,
                   struct row_edit *edits, uint32_t room, struct row_sample *ret);
/* Clears the bits of ids that logit_bias has no entry for. */
void sampler_mask_biased(const struct sampler *s, uint64_t *bits, uint32_t vocab);
/* Takes the token that a device sampled from a row, as sampler_sample() would have sampled it. False: the
 * device left the sample to the host, or found fewer alternatives than params.top_logprobs. */
bool sampler_take(const struct sampler *s, const struct row_sampled *sampled, const struct row_top *top,
                  uint32_t outputs, struct sampled *ret);

/* Takes this id without sampling, as if it had been sampled there; logits: NULL without logprobs. False:
 * it would end the sequence before min_tokens are reached, and nothing has happened. */
bool sampler_keep(const struct sampler *s, const float *logits, uint32_t vocab, const uint64_t *valid_ids,
                  uint32_t id, uint32_t outputs, struct sampled *ret);

/* Log-softmax of one id and the best alternatives of a row of logits (prompt_logprobs). Does not change
 * logits. */
void sampler_logprobs(const float *logits, uint32_t vocab, const uint64_t *valid_ids, uint32_t id,
                      uint32_t top, struct sampled *ret);

#endif
