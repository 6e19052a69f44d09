/* compare.h - a sequence's logits against its golden case. */
#ifndef PLATEAU_TOOLS_COMPARE_H
#define PLATEAU_TOOLS_COMPARE_H

#include "golden/golden_file.h"
#include "golden/runner.h"

/* How far a logit may be from the golden's, and how far all of them on average. In f32 it is what the goldens
 * promise; the others are in docs/exactness.md. A token may differ within twice the first: in int8 any. */
double compare_bound(enum compute_mode mode, enum kv_form kv);
double compare_mean_bound(const char *family, enum compute_mode mode, enum kv_form kv);

struct compare {
    const struct golden_case *c;
    double bound;     /* compare_bound() */
    double error_max; /* largest difference of a logit */
    double error_sum;
    double feature_error_max;
    uint32_t logits_compared, tokens_compared, features_compared;
    bool wrong;
    char message[256]; /* the first thing that is wrong */
};

/* Looks at the logits of one position of the prompt. */
void compare_prompt(struct compare *k, uint32_t position, const float *logits, uint32_t vocab);
/* Looks at what the vision encoder gave of the image's first token: `count` values. */
void compare_features(struct compare *k, const float *features, uint32_t count);
/* After the run: the generated tokens, the same number as in the case. */
void compare_greedy(struct compare *k, const uint32_t *generated);

#endif
