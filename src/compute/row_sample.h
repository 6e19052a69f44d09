/* row_sample.h - samples of tokens that a device makes from its rows of logits.
 *
 * The host says what a row's sample needs, and gets the token. sampler.h has the definition of a sample, and
 * sample/sample.h that of its sums. A device has their bits: where a decision is nearer to a sum than the
 * device's own sums tell, it leaves the sample to the host. Read by C and by CUDA C++. */
#ifndef PLATEAU_COMPUTE_ROW_SAMPLE_H
#define PLATEAU_COMPUTE_ROW_SAMPLE_H

#include "base/candidate.h"

#include <stdint.h>

#define ROW_SAMPLE_BLOCK 1024u /* ids of a block, whose weights are added first */
#define ROW_SAMPLE_ALL   UINT32_MAX
#define ROW_EDITS_EACH   4096u /* edits of a step, at most, for each sequence that it may have */

/* A change of a logit. Its value is a summand, or the number of times that the token was put out. */
struct row_edit {
    uint32_t id; /* < vocab */
    float value;
};

struct row_sample {
    double part;       /* in [0, 1): the part of the kept weight up to the token that is sampled */
    uint32_t wanted;   /* 0: all logits go to the host, and nothing is sampled */
    float temperature; /* 0: the largest logit is sampled, as with top_k 1 */
    float window;      /* (logit - largest logit) / temperature of a candidate is at least minus this */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off */
    float repetition_penalty, presence_penalty, frequency_penalty;
    /* Edits, from `edits` on: logits that are added to, tokens that are not sampled, tokens that penalties
     * are for. Each kind names an id once. */
    uint32_t edits, bias_count, banned_count, seen_count;
    uint32_t mask; /* the ids that may be sampled; ROW_SAMPLE_ALL: all */
    uint32_t sums; /* 1: `largest` and `sum`, too */
    uint32_t tops; /* alternatives, at most ROW_TOP_MAX (row_top.h) */
};

enum row_sampled_state {
    ROW_LEFT,    /* to the host */
    ROW_SAMPLED, /* id */
    ROW_EMPTY    /* no logit of an id that may be sampled is a number above -infinity */
};

/* Logits here are the model's own: without edits and mask. */
struct row_sampled {
    uint32_t state, id;
    float logit;   /* logit of `id` */
    float largest; /* largest logit of valid ids */
    /* Sum of exp(logit - largest) over the valid ids, at least exp(-500) of each: by blocks. Nothing where
     * the largest is not a finite number. */
    double sum;
};

/* A step's samples. */
struct row_samples {
    const struct row_sample *rows; /* [logits] */
    const struct row_edit *edits;  /* [edit_count] */
    const uint64_t *masks;         /* [mask_count][DIV_UP(vocab, 64)]: bit per id */
    uint32_t edit_count, mask_count;
    struct row_sampled *sampled; /* [logits]: results */
};

#define ROW_SAMPLE_LEAST (-500.0f) /* least exponent of a term of `sum` */

#ifdef __cplusplus
extern "C" {
#endif
/* The sample of row `row` in its plainest form. Edits the logits. valid: bit per id; NULL: all. `list` has
 * room for all ids. Any thread. */
void row_sample_of(const struct row_samples *samples, uint32_t row, float *logits, uint32_t vocab,
                   const uint64_t *valid, struct candidate *list, struct row_sampled *ret);
#ifdef __cplusplus
}
#endif

#endif
