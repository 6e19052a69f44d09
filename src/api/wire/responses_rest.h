/* responses_rest.h - the store of responses between requests: age, memory pressure, invariants. Network
 * thread. */
#ifndef PLATEAU_API_RESPONSES_REST_H
#define PLATEAU_API_RESPONSES_REST_H

#include <stdint.h>

struct api;

/* At each tick. Drops what is too old; while the machine is short of memory, an eighth of the rest each
 * second; checks the store every 10 s while there is no request. */
void responses_rest(struct api *a, uint64_t now_ns);

#endif
