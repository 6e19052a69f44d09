/* wait.h - exchanges that wait for a model: for one they need to be loaded, or for one an operator loads or
 * unloads.
 *
 * They wait on the network thread, in the phase EXCHANGE_WAITING, and hold nothing but their place among the
 * model's waiters; no prep thread waits. When the model is there the exchange gets a lease and goes to a prep
 * thread again. A wait is over when the model is there, when its load has failed, after --load-timeout, or
 * when the client leaves. */
#ifndef PLATEAU_API_WAIT_H
#define PLATEAU_API_WAIT_H

#include "api/exchange.h"

/* Prep thread. The model that the request names gets a lease; or, false and x->waits set, it is being loaded;
 * or x->reject. */
bool wait_find_model(struct exchange *x);
/* Prep thread: what an operator asked for has begun, and x->waits set; or x->reject, or x->reply is written
 * already (true). */
bool wait_order(struct exchange *x);

/* Network thread. With x->waits: looks, and again at each change of a model and at each tick. */
void wait_look(struct exchange *x, uint64_t now_ns);
/* Lets go of the place among the waiters, and of the lease. Every end; twice is fine. */
void wait_done(struct exchange *x);

#endif
