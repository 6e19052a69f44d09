/* resolve.h - a request and a model's defaults become the engine's job options. Pure. */
#ifndef PLATEAU_GEN_RESOLVE_H
#define PLATEAU_GEN_RESOLVE_H

#include "gen/reject.h"
#include "sample/sampler_params.h"

#include <stdbool.h>
#include <stdint.h>

struct gen_request;
struct logit_bias;
struct reject;
struct served_model;

/* Parameters that the request omits come from the model's generation_config. Temperature and filters apply
 * when it enables sampling, the repetition penalty always. Without it: temperature 1, no filter. `bias` has
 * room for all of logit_bias; the seed is the request's, or 0 when it gave none. */
bool resolve_sampling(const struct gen_request *r, const struct served_model *m, struct logit_bias *bias,
                      struct sampler_params *ret, struct reject *why);

/* How loops of the output are found: as the request says. Else in conversations, but not with ignore_eos, as
 * the model's settings say. */
struct repetition_params resolve_repetition(const struct gen_request *r, const struct served_model *m);

/* The seed of choice k of a prompt: the first choice has the request's own. */
uint64_t resolve_seed(const struct gen_request *r, uint64_t sampled, uint32_t k);

/* Checks that the prompt of an output without tokens fits. */
bool resolve_length(const struct gen_request *r, const struct served_model *m, uint32_t prompt_tokens,
                    struct reject *why);

/* How many tokens may follow a prompt of `prompt_tokens`. */
bool resolve_max_tokens(const struct gen_request *r, const struct served_model *m,
                        uint32_t max_tokens_default, uint32_t prompt_tokens, uint32_t *ret,
                        struct reject *why);

/* Context of the request. A compaction has the model's reserve, too. */
struct reject_context resolve_limit(const struct gen_request *r, const struct served_model *m);
/* Tokens of a prompt and its reply: those of `resolve_limit()`. */
uint32_t resolve_context(const struct gen_request *r, const struct served_model *m);
/* Tokens of a summary, at most. */
uint32_t resolve_summary(const struct gen_request *r, const struct served_model *m);

#endif
