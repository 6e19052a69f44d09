/* prep.h - the threads that prepare requests: JSON, templates, tokens, and submitting to an engine.
 *
 * One takes requests under 64 KiB only, one those under 1 MiB, and opts.prep_threads more take requests of
 * any size (prep_queue.h). The latter run at nice 10 and the medium one at nice 5, so that long texts leave
 * the processors to engines and to short requests. Work ends within milliseconds once its exchange is
 * cancelled: client gone, DELETE, or shutdown. */
#ifndef PLATEAU_API_PREP_H
#define PLATEAU_API_PREP_H

#include "template/chat_template.h"

struct api;
struct api_opts;
struct exchange;

/* The template's evaluation needs the deepest stack. Its callers and the C library need the rest. */
#define PREP_STACK_BYTES (CHAT_TEMPLATE_STACK_BYTES + ((size_t)128 << 10))

/* The number of prep threads. */
uint32_t prep_threads(const struct api_opts *opts);
/* Queues an exchange, which is then `preparing`; `bytes`: its text, as far as its size is known. */
void prep_put(struct exchange *x, size_t bytes);

/* Starts the threads of a->opts. 0, or an error of pthread_create. */
int prep_start(struct api *a);
/* Waits until the threads have finished the queue, and joins them. Twice is fine. */
void prep_stop(struct api *a);

#endif
