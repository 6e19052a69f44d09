/* utility.h - the routes that compute nothing: /tokenize, /detokenize, /apply-template, /api/hot-cache/clear,
 * /api/trim. On prep threads.
 *
 * vLLM and llama.cpp name their fields differently; a reply has the names of both. */
#ifndef PLATEAU_API_UTILITY_H
#define PLATEAU_API_UTILITY_H

#include <stdbool.h>

struct arena;
struct exchange;

/* Each fills x->reply with the JSON; false: the reject has the reason. */
bool utility_tokenize(struct exchange *x, struct arena *scratch);
/* The prompt of Messages or Responses: its number of tokens. */
bool utility_count_tokens(struct exchange *x, struct arena *scratch);
bool utility_detokenize(struct exchange *x);
bool utility_template(struct exchange *x, struct arena *scratch);
/* Asks every model's engine and waits for each, a step at most; continues after a failure and names it. */
bool utility_reclaim(struct exchange *x);

#endif
