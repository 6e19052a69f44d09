/* wait.h - exchanges that wait for a model: for its load, or for the load or unload that an operator ordered.
 *
 * They wait on the network thread, in the phase EXCHANGE_WAITING, and hold only their place among the model's
 * waiters; no prep thread waits. When the model is loaded the exchange gets a lease and goes to a prep thread
 * again. A wait ends when the model is loaded, when its load has failed, after --load-timeout, or when the
 * client leaves. */
#ifndef PLATEAU_API_WAIT_H
#define PLATEAU_API_WAIT_H

#include <stdint.h>

struct exchange;

/* Prep thread. PREPARE_DONE: x has a lease on the model that the request names. */
enum prepare wait_find_model(struct exchange *x);
/* Prep thread. PREPARE_DONE: the operator's order is done, and x->reply is written. */
enum prepare wait_order(struct exchange *x);

/* Network thread. How the wait of an exchange goes on. */
enum wait_end {
    WAIT_GOES_ON,  /* or x does not wait */
    WAIT_PREPARES, /* it is over, and a prep thread continues */
    WAIT_ANSWERS   /* it is over, and the reject or x->reply is the answer */
};
enum wait_end wait_poll(struct exchange *x, uint64_t now_ns);
/* Releases the place among the waiters and the lease. For every end; twice is fine. */
void wait_done(struct exchange *x);

#endif
