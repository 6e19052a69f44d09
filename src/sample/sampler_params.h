/* sampler_params.h - how a row's tokens are sampled, and a sampled token: plain data. sampler.h samples. */
#ifndef PLATEAU_SAMPLE_SAMPLER_PARAMS_H
#define PLATEAU_SAMPLE_SAMPLER_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

struct err;

#define SAMPLER_BIAS_MAX 1024 /* entries of logit_bias */
#define SAMPLER_STOP_MAX 64   /* end tokens and stop_token_ids together */
#define SAMPLER_TOP_MAX  20   /* alternatives in logprobs */

struct logit_bias {
    uint32_t id;
    float bias; /* [-100, 100] */
};

struct sampler_params {
    float temperature;                         /* [0, 2]; 0 = greedy */
    uint32_t top_k;                            /* 0 = off */
    float top_p;                               /* (0, 1]; 1 = off */
    float min_p;                               /* [0, 1); 0 = off */
    float repetition_penalty;                  /* > 0; 1 = off; prompt and output */
    float presence_penalty, frequency_penalty; /* [-2, 2]; 0 = off; output only, as OpenAI defines them */
    uint64_t seed;
    uint32_t min_tokens;   /* no end token before this many tokens */
    bool logprobs;         /* fill sampled.logprob and the alternatives */
    uint32_t top_logprobs; /* <= SAMPLER_TOP_MAX */
    /* Tokens that end the row: end tokens (unless ignore_eos) and stop_token_ids. */
    uint32_t stop_ids[SAMPLER_STOP_MAX];
    uint32_t stop_count;
    const struct logit_bias *bias; /* copied by sampler_create */
    uint32_t bias_count;           /* <= SAMPLER_BIAS_MAX */
    bool only_biased;              /* no other id than those in `bias` is sampled */
};

#define REPETITION_PATTERN_MAX 1024
#define REPETITION_COUNT_MAX   (1u << 20)
#define REPETITION_TOKENS_MAX  (1u << 30)

/* Where a row ends because it repeats itself: repetition.h. */
struct repetition_params {
    uint32_t pattern_min; /* tokens of the shortest pattern, from 1 to pattern_max */
    uint32_t pattern_max; /* tokens of the longest one, at most REPETITION_PATTERN_MAX; 0: no detection */
    uint32_t count;       /* times that the pattern stands in a row, from 2 to REPETITION_COUNT_MAX */
    uint32_t tokens_min;  /* tokens of all of them together, at least; at most REPETITION_TOKENS_MAX */
    bool ends_reasoning;  /* a loop within reasoning ends the reasoning, not the reply */
};

/* Everything off, temperature 1, seed 0. */
void sampler_params_default(struct sampler_params *p);
/* Checks every bound; e names field, value and bounds. 0 or -EINVAL. */
int sampler_params_check(const struct sampler_params *p, uint32_t vocab, struct err *e);

struct sampler_alternative {
    uint32_t id;
    float logprob;
};

struct sampled {
    uint32_t id;
    bool none;     /* no logit of an id that may be sampled is a number above -infinity; id means nothing */
    bool stop;     /* id is one of stop_ids (and min_tokens are reached) */
    float logprob; /* with params.logprobs */
    uint32_t top_count;
    struct sampler_alternative top[SAMPLER_TOP_MAX]; /* best first, ties to the lower id */
};

#endif
