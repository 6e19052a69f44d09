/* pair_prompt.h - the prompts of a reranker: each asks whether a document answers a query. Prep threads. */
#ifndef PLATEAU_GEN_PAIR_PROMPT_H
#define PLATEAU_GEN_PAIR_PROMPT_H

#include <jansson.h>
#include <stdbool.h>

struct arena;
struct gen;

/* The text of a query or document: a string, or an object with "text". An empty slice without pointer: it is
 * neither. */
struct slice pair_text(const json_t *v);

/* Fills g->prompts and g->prompt_count from the request's pairs. False: g->reject has the error. */
bool pair_prompts_make(struct gen *g, struct arena *scratch);

#endif
