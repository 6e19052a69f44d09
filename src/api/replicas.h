/* replicas.h - which engine serves a request, where a model has several (--replicas). On a prep thread. */
#ifndef PLATEAU_API_REPLICAS_H
#define PLATEAU_API_REPLICAS_H

struct exchange;

/* A lease on one of x->replicas: the one with the request's session, else the one with the fewest leases.
 * Missing ones are loaded meanwhile. 0; -EAGAIN: none is loaded. Any thread that owns x. */
int replicas_lease(struct exchange *x);
/* Moves the lease to the replica that computes the first prompt of x->gen soonest. The cost of a replica is
 * the tokens that its prefix cache lacks, tokens of prompts that wait there, and its other requests. */
void replicas_place(struct exchange *x);

#endif
