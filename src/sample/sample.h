/* sample.h - sampling: from the candidates of a row to a token. Private to sample/.
 *
 * A candidate is a token within the window of the best one: it has at least 1e-12 of its weight, and at
 * least min_p. The weight is exp(below), below = (logit - largest logit) / temperature. Sampling has one
 * definition:
 *   1. top_k and top_p keep candidates in order (below down, id up). All sums are sums in this order but one:
 *      the weight of all candidates of a row, of which top_p is a part. It is the sum of its blocks' weights,
 *      from id 0 on; a block is the candidates among ROW_SAMPLE_BLOCK ids, and weights_sum() adds them.
 *   2. u in [0, 1) is a function of seed and position. The result is the first token whose cumulative weight
 *      exceeds u of the kept weight: best first after top_k or top_p, else highest id first.
 *
 * A device samples by the same definition (compute/row_sample.h). */
#ifndef PLATEAU_SAMPLE_SAMPLE_H
#define PLATEAU_SAMPLE_SAMPLE_H

#include "sample/sampler.h"

/* A token this much less likely than the best one is never sampled. 248,000 such tokens weigh 2.5e-7
 * together. */
#define SAMPLE_WINDOW 27.631021f /* ln 1e12 */

/* The candidates of a row, but for some that are not kept. */
struct sample_pool {
    struct candidate *list; /* logit: below. The best one comes last */
    uint32_t count;
    uint32_t unordered; /* the first ones: in order of id, and not compared yet */
    bool cuts;          /* top_k leaves some out */
    bool few;           /* most candidates that top_p leaves out are missing */
    double mass;        /* sum of the row's weights; 0 where top_k cuts, which needs none */
};

/* A row of logits, and which of its ids may be sampled: those that both masks have; NULL: all. */
struct sample_row {
    const float *logits; /* [vocab]; without masks none is NaN */
    uint32_t vocab;
    const uint64_t *valid, *allowed;
    const struct sampler_blocks *blocks; /* NULL: nothing is known of them */
};

/* ---- sample_row.c: whole rows ---- */

/* Weighs blocks [from, until) for sampler_weigh(). */
void sample_weigh(const struct sampler_params *p, const struct sample_row *row, uint32_t from,
                  uint32_t until);
/* Samples from a row into whose `list` all of it fits. False: no logit that may be sampled is a number above
 * -infinity; the id is 0. */
bool sample_of_row(const struct sampler_params *p, const struct sample_row *row, struct candidate *list,
                   uint32_t position, uint32_t *ret);

/* ---- sample.c: pools ---- */

/* Samples; reorders the pool. */
uint32_t sample_from(const struct sampler_params *p, struct sample_pool *c, uint32_t position);

/* ---- sample_parts.c ---- */

/* True: temperature 0 and the like; the best token is sampled without a pool. `max` is the largest logit. */
bool sample_is_greedy(const struct sampler_params *p, float max);
/* The least `below` of a candidate is minus this. */
float sample_window(const struct sampler_params *p);
/* True if top_k keeps fewer than `count` candidates. */
bool sample_top_k_cuts(const struct sampler_params *p, uint32_t count);

/* Bins of candidates by their logit, each a sixteenth wide. */
uint32_t sample_bin_of(float below);
/* The bins up to this one hold the best `count` candidates; with count 0 the best ones of `weight` together,
 * but seldom (sums know better), and not many more. */
uint32_t sample_last_bin(const uint32_t bins[SAMPLER_BINS], uint32_t count, double weight);

/* Sums the weights of a list in order of id, and samples the token at `target` of the sum. */
double sample_weight_by_id(const struct candidate *list, uint32_t count);
uint32_t sample_by_id(const struct candidate *list, uint32_t count, double target);

#endif
