/* shared_backend.h - the store below the shared tier: values by name, in calls that may block.
 *
 * Only the tier's threads call it, each with its own number. A call fails with -errno if the store failed: it
 * is gone, slow, full or refuses. A missing value is not a failure. */
#ifndef PLATEAU_STORE_SHARED_BACKEND_H
#define PLATEAU_STORE_SHARED_BACKEND_H

#include "cache/prefix_key.h"

#include <stdbool.h>
#include <stdint.h>

#define SHARED_THREADS   2
#define SHARED_BATCH_MAX 8  /* values of one read */
#define SHARED_QUERY_MAX 64 /* names of one query */

/* Value number `i` of a read. The bytes are valid during the call. */
typedef void shared_found_fn(void *arg, uint32_t i, const char *value, size_t len);

struct shared_backend {
    void *arg;
    uint32_t
        query_max; /* names of one query, at most SHARED_QUERY_MAX: fewer where each costs a round trip */
    /* Opens or reopens what the thread needs. 0: the store can be used. */
    int (*ready)(void *arg, uint32_t thread);
    /* Reports each value that is there, of at most SHARED_BATCH_MAX. */
    int (*get)(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count,
               shared_found_fn *found, void *found_arg);
    /* Also -EDQUOT: the limit is reached, which is not a failure. */
    int (*put)(void *arg, uint32_t thread, const struct prefix_key *name, const char *value, size_t len);
    int (*has)(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count, bool *ret);
    /* Removes a value that is damaged or forged, if it can. */
    void (*drop)(void *arg, uint32_t thread, const struct prefix_key *name);
    /* Work at intervals, by one thread at a time. Returns the nanoseconds until the next. NULL: none. */
    uint64_t (*tend)(void *arg, uint32_t thread);
    /* Bytes that the store holds, by the last count; 0: unknown. NULL: always unknown. */
    uint64_t (*bytes)(void *arg);
    /* No thread is in a call. */
    void (*close)(void *arg);
};

#endif
