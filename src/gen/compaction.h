/* compaction.h - prompts whose reply is a summary of the conversation. On prep threads.
 *
 * The request for it follows the conversation, which other turns render alike, so the prefix cache has all
 * of that. Tools stay in the prompt, and the reply calls none. */
#ifndef PLATEAU_GEN_COMPACTION_H
#define PLATEAU_GEN_COMPACTION_H

#include <stdbool.h>

struct arena;
struct gen;

/* As `prompt_make()`, for a request with compaction.ask. Sets compaction.on if the conversation is to be
 * compacted. The oldest turns leave one that is too long; request.dropped counts them. */
bool compaction_make(struct gen *g, struct arena *scratch);

#endif
