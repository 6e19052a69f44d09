/* divergence.h - how well logits predict a text, and how far they are from a reference's.
 *
 * Perplexity is exp of the mean of -ln p(token) (the cross entropy). The Kullback-Leibler divergence of a
 * position is the sum over the vocabulary of q ln(q / p), where q is the reference's distribution and p the
 * model's. Means come with their standard error. One thread at a time. */
#ifndef PLATEAU_HOST_DIVERGENCE_H
#define PLATEAU_HOST_DIVERGENCE_H

#include "base/arena.h"

#include <stdint.h>

struct divergence;

/* In `a`: 4 bytes for each of the positions_max positions, which quantiles need. NULL: no memory. */
struct divergence *divergence_create(struct arena *a, uint64_t positions_max);
/* One position, at which `token` follows. base: the reference's logits, NULL without one; either all
 * positions have it or none. Both are [vocab]. */
void divergence_add(struct divergence *d, const float *logits, const float *base, uint32_t vocab,
                    uint32_t token);

struct divergence_mean {
    double value, error; /* error: of the mean; 0 for fewer than two positions */
};

struct divergence_result {
    uint64_t positions;
    struct divergence_mean perplexity;
    /* With a reference: */
    struct divergence_mean base_perplexity;
    struct divergence_mean log_ratio; /* ln of the perplexities' ratio, position by position */
    struct divergence_mean divergence;
    double divergence_median, divergence_p99, divergence_p999, divergence_max;
    struct divergence_mean same_top; /* share of positions where both have the same likeliest token */
    struct divergence_mean probability_change; /* change of the next token's probability: model - reference */
    double probability_rms;
};
/* Sorts the divergences. At least one position. */
void divergence_end(struct divergence *d, struct divergence_result *ret);

#endif
