/* grammar_request.h - a request's grammar: compiled or found in the model's cache, and put back.
 *
 * All choices of a request share the entry; each of their jobs has a matcher of its own. */
#ifndef PLATEAU_GEN_GRAMMAR_REQUEST_H
#define PLATEAU_GEN_GRAMMAR_REQUEST_H

#include "gen/gen.h"

/* On a prep thread, with the model leased and the prompts made. Sets g->grammar if the request asks for one.
 * False: g->reject has the reason. */
bool grammar_request_begin(struct gen *g);
/* Puts the entry back. The engine's jobs keep references of their own. Twice is fine. */
void grammar_request_done(struct gen *g);

#endif
