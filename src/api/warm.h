/* warm.h - prefixes that are computed as soon as their model is loaded: the requests of --warm files.
 *
 * A thread of its own waits for loads. After each load of a model it computes the prompts of the model's
 * requests, one after the other, with the lowest priority. The engine keeps a prefix as its request's own
 * fields say: as a session, a wish, or entries of the prefix cache. It holds a lease on the model while it
 * computes, and gives it up when the model drains. The server is ready before, and serves meanwhile. */
#ifndef PLATEAU_API_WARM_H
#define PLATEAU_API_WARM_H

#include "base/err.h"

#include <stdint.h>

struct api;
struct warm;

/* Reads and checks all files of the API's options and of its models. NULL in `ret` with 0: no file is given.
 * 0, -EINVAL with file, line and reason, -ENOMEM, or an error of the system. */
int warm_create(struct api *a, struct warm **ret, struct err *e);
/* Starts the thread. 0 or an error of pthread_create. NULL is fine. */
int warm_start(struct warm *w);
/* A model's state has changed. Any thread, returns at once. NULL is fine. */
void warm_wake(struct warm *w);
/* Ends the request under way, and joins the thread. NULL and twice are fine. */
void warm_stop(struct warm *w);
/* NULL is fine. */
void warm_free(struct warm *w);

#endif
