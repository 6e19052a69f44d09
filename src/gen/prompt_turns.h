/* prompt_turns.h - the prompt of a conversation that may lose its oldest turns. On prep threads. */
#ifndef PLATEAU_GEN_PROMPT_TURNS_H
#define PLATEAU_GEN_PROMPT_TURNS_H

#include <stdbool.h>

struct arena;
struct gen;

/* As `prompt_make()`, but for messages without images: drops the fewest turns for which the prompt and its
 * reply fit into the context. Sets request.dropped. */
bool prompt_turns_make(struct gen *g, struct arena *scratch);

#endif
