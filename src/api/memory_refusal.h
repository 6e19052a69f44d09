/* memory_refusal.h - the error of a request that got no memory.
 *
 * The status names the remedy. 413: a smaller request, since this one alone is over the limit of one request.
 * 429: time, since other requests will release memory. 507: the operator, since no running work will make
 * room. */
#ifndef PLATEAU_API_MEMORY_REFUSAL_H
#define PLATEAU_API_MEMORY_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

struct account;
struct api;
struct reject;
struct request_memory;

/* The ledger refused `bytes` more below `at`. 429 while `others` requests are running, or memory is free
 * again, or caches hold some of it (this call asks them to release it). Otherwise 507 with the numbers. Any
 * thread. Returns false. */
bool memory_refusal(struct api *a, struct account *at, uint64_t bytes, uint32_t others, struct reject *why);
/* A running request got no memory: 413 when its own limit refused, 507 when the system did, otherwise as
 * above. */
bool memory_refusal_of(struct api *a, const struct request_memory *m, struct reject *why);
/* True: the machine's memory is so short that no new work starts. Requests that take no memory, and requests
 * that free some, continue. */
bool memory_refusal_by_guard(struct api *a, struct reject *why);
/* Retry-After in seconds, from the work that the engines have queued; at least 1. */
uint32_t memory_refusal_retry_s(struct api *a);

#endif
