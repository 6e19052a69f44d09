/* grammar_request.h - a request's grammar: compiled or found in the model's cache, and put back.
 *
 * All choices of a request share the entry; each of their jobs has a matcher of its own. */
#ifndef PLATEAU_GEN_GRAMMAR_REQUEST_H
#define PLATEAU_GEN_GRAMMAR_REQUEST_H

#include "gen/gen.h"

#define GRAMMAR_WAIT_S 60 /* for room among the grammars in use; then 429 */

/* On a prep thread, with the model leased and the prompts made. PREPARE_DONE: the request has its grammar, or
 * needs none. PREPARE_WAITS: others in use leave no room; call again at g->grammar_retry_ns. */
enum prepare grammar_request_begin(struct gen *g);
/* Puts the entry back. The engine's jobs keep references of their own. Twice is fine. */
void grammar_request_done(struct gen *g);

#endif
