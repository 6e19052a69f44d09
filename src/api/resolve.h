/* resolve.h - a request and a model's defaults become what the engine is told. Pure. */
#ifndef PLATEAU_API_RESOLVE_H
#define PLATEAU_API_RESOLVE_H

#include "api/api.h"
#include "api/request.h"

/* What the request leaves open comes from the model's generation_config: its temperature and filters when it
 * says that it samples, its repetition penalty always; else temperature 1 and nothing else. `bias` has room
 * for all of logit_bias; the seed is the request's, or 0 when it gave none. */
bool resolve_sampling(const struct request *r, const struct served_model *m, struct logit_bias *bias,
                      struct sampler_params *ret, struct reject *why);

/* The seed of choice k of a prompt: the first has the request's own. */
uint64_t resolve_seed(const struct request *r, uint64_t drawn, uint32_t k);

/* How many tokens may follow a prompt of so many. */
bool resolve_max_tokens(const struct request *r, const struct served_model *m, uint32_t max_tokens_default,
                        uint32_t prompt_tokens, uint32_t *ret, struct reject *why);

#endif
