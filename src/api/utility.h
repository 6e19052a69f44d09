/* utility.h - the routes that need no engine: /tokenize, /detokenize, /apply-template. On prep threads.
 *
 * vLLM and llama.cpp name their fields differently; a reply has the names of both. */
#ifndef PLATEAU_API_UTILITY_H
#define PLATEAU_API_UTILITY_H

#include "api/exchange.h"

/* Each fills x->reply with the JSON; false: x->reject says why. */
bool utility_tokenize(struct exchange *x, struct arena *scratch);
bool utility_detokenize(struct exchange *x);
bool utility_template(struct exchange *x, struct arena *scratch);

#endif
