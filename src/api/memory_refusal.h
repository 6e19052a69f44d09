/* memory_refusal.h - what a client is told whose request got no memory.
 *
 * Three answers, by who could help: 413, the client (this request alone is more than one may be); 429, time
 * (others hold what it needs and will give it back); 507, whoever runs the server (nothing that is going on
 * will make room). */
#ifndef PLATEAU_API_MEMORY_REFUSAL_H
#define PLATEAU_API_MEMORY_REFUSAL_H

#include "api/api_state.h"
#include "api/request_memory.h"

/* The ledger refused `bytes` more below `at`. 429 while `others` requests are in work, or there is room
 * again, or caches hold some of it (they are asked to give it back); else 507 with the numbers. Any thread.
 * Returns false. */
bool memory_refusal(struct api *a, struct account *at, uint64_t bytes, uint32_t others, struct reject *why);
/* A request that is in work got no memory: 413 where its own limit said so, 507 where the system did, else as
 * above. */
bool memory_refusal_of(struct api *a, const struct request_memory *m, struct reject *why);
/* When a client may come back: what the engines have to do first. 1 or more. */
uint32_t memory_refusal_retry_s(struct api *a);

#endif
