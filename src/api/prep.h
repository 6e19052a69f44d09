/* prep.h - the threads that read requests: JSON, templates, tokens, and handing them to an engine.
 *
 * One takes requests under 64 KiB only, one those under 1 MiB, and as many as opts.prep_threads says take
 * anything (prep_queue.h). These run at nice 10 and the medium one at nice 5, so that long texts leave the
 * processors to engines and to short requests. Work ends within milliseconds once its exchange is cancelled:
 * client gone, DELETE, or shutdown. */
#ifndef PLATEAU_API_PREP_H
#define PLATEAU_API_PREP_H

#include "api/exchange.h"
#include "text/chat_template.h"

/* The deepest user is the template's evaluation. What calls it, and the C library's part, take the rest. */
#define PREP_STACK_BYTES (CHAT_TEMPLATE_STACK_BYTES + ((size_t)128 << 10))

/* How many there are. */
uint32_t prep_threads(const struct api_opts *opts);
/* Gives an exchange to them, which is `preparing` then; `bytes`: of text that it has, as far as is known. */
void prep_put(struct exchange *x, size_t bytes);

/* Starts the threads of a->opts. 0, or what pthread_create said. */
int prep_start(struct api *a);
/* Lets them finish what is queued, and joins them. Twice is fine. */
void prep_stop(struct api *a);

#endif
