/* render.h - the routes .../render: what a request becomes before a model computes it. On prep threads. */
#ifndef PLATEAU_API_RENDER_H
#define PLATEAU_API_RENDER_H

#include <stdbool.h>

struct exchange;

/* Writes the prepared request to x->reply, as vLLM's routers read it: an object, or of completions a list
 * with one for each prompt. False: the reject has the reason. */
bool render_write(struct exchange *x);

#endif
