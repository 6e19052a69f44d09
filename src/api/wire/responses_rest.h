/* responses_rest.h - the stores of responses and of conversations between requests: age, memory pressure,
 * invariants. Network thread. */
#ifndef PLATEAU_API_RESPONSES_REST_H
#define PLATEAU_API_RESPONSES_REST_H

#include <stdint.h>

struct api;

/* At each tick. Drops responses that are too old; while the machine is short of memory, an eighth of each
 * store each second; checks the stores every 10 s while there is no request. */
void responses_rest(struct api *a, uint64_t now_ns);

#endif
