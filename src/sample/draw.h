/* draw.h - the draw: from the candidates of a row to a token. Private to sample/.
 *
 * A candidate is a token within the window of the best one: it has at least 1e-12 of its weight, and at
 * least min_p. The weight is exp(below), below = (logit - largest logit) / temperature. The draw has one
 * definition:
 *   1. top_k and top_p keep candidates in order (below down, id up). All sums are sums in this order but one:
 *      the weight of all candidates of a row, of which top_p is a part. weights_sum() adds it in order of id.
 *   2. u in [0, 1) is a function of seed and position. The result is the first token whose cumulative weight
 *      exceeds u of the kept weight: best first after top_k or top_p, else highest id first.
 *
 * A pool holds all candidates of a row, or only the best ones with bounds of the row's weight. A decision
 * between the bounds is not taken: the pool does not suffice, and the caller draws from the whole row. Both
 * kinds of pool therefore give the same token, whatever the error of the bounds. */
#ifndef PLATEAU_SAMPLE_DRAW_H
#define PLATEAU_SAMPLE_DRAW_H

#include "sample/sampler.h"

struct draw_pool {
    struct sampler_candidate *list; /* logit: below. The best one comes last */
    uint32_t count;
    uint32_t unordered;        /* the first ones: in order of id, and not compared yet */
    bool whole;                /* no candidate of the row is missing, or only ones that top_k leaves out */
    bool cuts;                 /* top_k leaves some out */
    double mass_min, mass_max; /* of a row; 0 where top_k cuts, which needs none */
};

/* The largest logit's id; the lowest of equals. None is NaN. */
uint32_t draw_argmax(const float *logits, uint32_t vocab);
/* True: temperature 0 and the like; the best token is drawn without a pool. `max` is the largest logit. */
bool draw_is_greedy(const struct sampler_params *p, float max);

/* A row of logits, and which of its ids may be drawn: those that both masks have; NULL: all. */
struct draw_row {
    const float *logits; /* [vocab]; without masks none is NaN */
    uint32_t vocab;
    const uint64_t *valid, *allowed;
    const float *most; /* of each SAMPLER_BLOCK the largest logit that may be drawn; NULL: not known */
};

/* All candidates of a row that may be among the best top_k, into list[vocab]. `max`: the largest logit that
 * may be drawn. */
void draw_pool_of_row(const struct sampler_params *p, const struct draw_row *row, float max,
                      struct sampler_candidate *list, struct draw_pool *ret);
/* Those among the best tokens, into list[best->count]. */
void draw_pool_of_best(const struct sampler_params *p, const struct sampler_best *best,
                       struct sampler_candidate *list, struct draw_pool *ret);

/* Draws; reorders the pool. False: the pool does not suffice, which never happens to one of a row. */
bool draw_from(const struct sampler_params *p, struct draw_pool *c, uint32_t position, uint32_t *ret);

#endif
