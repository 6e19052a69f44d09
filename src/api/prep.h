/* prep.h - the threads that read requests: JSON, templates, tokens, and handing them to an engine. */
#ifndef PLATEAU_API_PREP_H
#define PLATEAU_API_PREP_H

#include "api/exchange.h"

/* The deepest user is the template's evaluation: 400 levels of about 700 bytes (more under sanitizers). */
#define PREP_STACK_BYTES ((size_t)2 << 20)

/* Starts the threads of a->opts. 0, or what pthread_create said. */
int prep_start(struct api *a);
/* Lets them finish what is queued, and joins them. Twice is fine. */
void prep_stop(struct api *a);

/* The work on one exchange: afterwards x->reject says no, or x->reply is there, or its choices are with the engine. For the
 * threads and for tests. */
void prep_work(struct exchange *x);

#endif
