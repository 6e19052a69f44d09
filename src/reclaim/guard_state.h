/* guard_state.h - shared by the files of the guard only. */
#ifndef PLATEAU_RECLAIM_GUARD_STATE_H
#define PLATEAU_RECLAIM_GUARD_STATE_H

#include "reclaim/guard.h"
#include "reclaim/holders.h"

#include "base/threads/thread_stack.h"

#include <pthread.h>
#include <stdatomic.h>

/* Bytes taken back, by kind of holder. */
struct guard_given {
    _Atomic uint64_t free_bytes, cached_bytes, idle_bytes;
};

struct guard {
    struct guard_opts opts; /* constant */
    struct thread_stack stack;
    pthread_t thread;
    bool started;

    /* Held while room is made and while models are unloaded: one at a time, and guard_set_models() waits for
     * it. */
    pthread_mutex_t room;
    struct guard_models models; /* under `room`; zeroed: none */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool wanted, ends;            /* under `lock`: an engine needs memory; the thread is to end */
    struct pressure pressure;     /* under `lock`; the thread changes it */
    struct guard_numbers numbers; /* under `lock`, except the counters below */

    struct guard_given given;
    _Atomic uint64_t rooms_made, rooms_refused, helps;
};

/* guard_take.c: each waits for its answers, a step of each engine, and returns how many bytes have come. */

/* Units of the domain that hold nothing, of all but `except` (0: of all). */
uint64_t guard_take_free(struct guard *g, const struct domain *domain, uint64_t except, uint64_t bytes);

/* Holders that returned no cached bytes when asked. */
struct guard_silent {
    uint64_t ids[HOLDERS_MAX];
    uint32_t count;
};
/* Takes the least useful prefixes of the domain, from the holder that has them, while they stay the least
 * useful. `name`: the model that needs the memory; NULL: the machine runs short. 0: that holder returned
 * nothing and is silent from now on, or no holder is left. */
uint64_t guard_take_cached(struct guard *g, const struct domain *domain, struct guard_silent *silent,
                           uint64_t bytes, const char *name);
/* Marks holders as silent whose free and cached bytes lie within their accounts' floors: reclaiming them
 * releases nothing. */
void guard_pass_over_floors(struct guard *g, struct guard_silent *silent);
struct guard_count {
    uint64_t free_bytes, cached_bytes, reach_bytes; /* sums of holder_numbers */
};
/* Sums the domain's bytes over all holders except the silent; reach_bytes: over all. */
struct guard_count guard_count(struct guard *g, const struct domain *domain,
                               const struct guard_silent *silent);
/* Unloads idle models until the domain has room for `bytes` more. Takes `room`, which the caller does not
 * hold. */
uint64_t guard_take_idle(struct guard *g, const struct domain *domain, uint64_t bytes, const char *name);
/* As `guard_take_idle()`, but for a caller that holds `room`. */
uint64_t guard_take_idle_locked(struct guard *g, const struct domain *domain, uint64_t bytes,
                                const char *name);

#endif
